"""What a problem was made from, as one SHA-256."""

from __future__ import annotations

import hashlib

import numpy as np
import torch
from torch import Tensor


def digest(*parts: object) -> str:
    """Of arrays and tensors (type, shape and content), bytes, and the ``repr`` of everything else.

    Float64 counts by its first seven digits: computed data, as standardised features or drawn
    Hessians, differ in the last ones from machine to machine and are still the same data.
    """
    total = hashlib.sha256()
    for part in parts:
        if isinstance(part, Tensor | np.ndarray):
            tensor = torch.as_tensor(part).detach()
            if tensor.dtype == torch.float64:
                tensor = tensor.float()
            tensor = tensor.cpu().contiguous()
            total.update(f"{tensor.dtype} {list(tensor.shape)}\n".encode())
            total.update(tensor.reshape(-1).view(torch.uint8).numpy().data)
        else:
            total.update((part if isinstance(part, bytes) else repr(part).encode()) + b"\n")
    return total.hexdigest()
