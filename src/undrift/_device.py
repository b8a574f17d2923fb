"""NumPy arrays onto the device of a run."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np
    import torch
    from torch import Tensor


def upload(array: np.ndarray, device: torch.device) -> Tensor:
    """``array`` as a tensor: shared on a CPU, copied to a GPU without waiting for its work."""
    import torch

    tensor = torch.from_numpy(array)
    if device.type == "cuda":
        return tensor.pin_memory().to(device, non_blocking=True)
    return tensor.to(device)
