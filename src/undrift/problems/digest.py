"""What a problem was made from, as one SHA-256."""

from __future__ import annotations

import hashlib
from typing import Any

import numpy as np
import torch
from torch import Tensor


def digest(*parts: Any) -> str:
    """Of arrays and tensors (type, shape and content), texts and numbers, in their order.

    Float64 counts by its first seven digits: data that are computed, standardised features or drawn
    Hessians, differ in
    the last ones from machine to machine and are still the same data.
    """
    total = hashlib.sha256()
    for part in parts:
        if isinstance(part, Tensor | np.ndarray):
            tensor = torch.as_tensor(part).detach()
            tensor = (
                (tensor.float() if tensor.dtype == torch.float64 else tensor).cpu().contiguous()
            )
            total.update(f"{tensor.dtype} {list(tensor.shape)}\n".encode())
            content: Any = tensor.reshape(-1).view(torch.uint8).numpy()
            total.update(content)
        else:
            total.update(f"{part!r}\n".encode())
    return total.hexdigest()
