"""The device of a run: whether it is here, and NumPy arrays onto it."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np
    import torch
    from torch import Tensor


def absent(device: str) -> str | None:
    """The complaint about a device that this machine lacks."""
    import torch

    kind, _, number = device.partition(":")
    here = {"cuda": torch.cuda.device_count(), "mps": int(torch.backends.mps.is_available())}
    if int(number or 0) < here.get(kind, 1):
        return None
    return f"device = {device!r} is not on this machine; use 'cpu'"


def upload(array: np.ndarray, device: torch.device) -> Tensor:
    """``array`` as a tensor: shared on a CPU; copied to a GPU while that works, on a stream that
    the current one waits for.
    """
    import torch

    tensor = torch.from_numpy(array)
    if device.type != "cuda":
        return tensor.to(device)
    index = torch.cuda.current_device() if device.index is None else device.index
    main, beside = torch.cuda.current_stream(index), _beside(index)
    with torch.cuda.stream(beside):
        there = tensor.pin_memory().to(device, non_blocking=True)
    main.wait_stream(beside)
    there.record_stream(main)  # its memory is not given to others before that stream is done
    return there


@functools.cache
def _beside(index: int) -> torch.cuda.Stream:
    import torch

    return torch.cuda.Stream(index)  # type: ignore[no-untyped-call]
