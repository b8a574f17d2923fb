"""Products of stacks of matrices on a processor for which torch has no MKL.

There torch multiplies matrix by matrix, with several microseconds between them.
"""

from __future__ import annotations

import torch
from torch import Tensor

ONE_BY_ONE = not torch.backends.mkl.is_available()  # type: ignore[no-untyped-call]
SMALL = 1 << 18
"""Multiplications of a product that BLAS does on the thread that asks for it."""


def by_numpy(device: torch.device, multiplications: int) -> bool:
    """Whether products of so many multiplications each are NumPy's, which loses half that time."""
    return ONE_BY_ONE and device.type == "cpu" and multiplications <= SMALL


def times_transposed(a: Tensor, b: Tensor) -> Tensor:
    """``a @ b.mT`` of stacks ``[C, n, i]`` and ``[C, o, i]``.

    On aarch64 torch hands just this product in float32 to oneDNN, which takes up to five times as
    long as BLAS. Written as its own transpose it goes to BLAS, as all others do.
    """
    if not ONE_BY_ONE or a.device.type != "cpu":
        return torch.bmm(a, b.mT)
    found = torch.empty(a.shape[0], a.shape[1], b.shape[1], dtype=a.dtype)
    torch.bmm(b, a.mT, out=found.mT)
    return found
