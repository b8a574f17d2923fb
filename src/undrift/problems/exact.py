"""Problems whose data are tensors: exact in float64, with a copy in the precision of the run.

Curvatures come from their Hessians, dense ``[d, d]`` or diagonal ``[d]``.
"""

from __future__ import annotations

import abc
import copy
import hashlib
from collections.abc import Callable
from functools import cached_property
from typing import Self

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from undrift._device import upload
from undrift.core.problem import Oracle, Problem
from undrift.data.files import dense

Values = ArrayLike | Tensor
"""What a user gives as data: an array, a tensor, nested lists, or matrices of scipy.sparse."""
Matrix = NDArray[np.float64]
PLACED = ("_everyone", "_gathered", "_known")
"""What is computed once for each precision and device."""


class ExactProblem(Problem):
    """Constants, optimum and metrics come from float64 data whatever the precision of the run."""

    dtype: torch.dtype = torch.float64
    device: torch.device

    @property
    def precise(self) -> torch.device:
        """Where float64 data are: beside the run, or on the CPU where the device has no float64."""
        return torch.device("cpu") if self.device.type == "mps" else self.device

    def at(self, members: np.ndarray | None = None) -> Oracle:
        if members is None or (
            len(members) == self.clients and np.array_equal(members, np.arange(self.clients))
        ):
            return self._everyone
        return self._oracle(np.asarray(members, dtype=np.int64))

    def to(self, dtype: torch.dtype, device: torch.device) -> Self:
        twin = copy.copy(self)
        for cached in PLACED:
            twin.__dict__.pop(cached, None)
        twin.dtype = dtype
        twin._place(dtype, torch.device(device))
        return twin

    @abc.abstractmethod
    def _place(self, dtype: torch.dtype, device: torch.device) -> None:
        """Lay out the tensors of the run."""

    @abc.abstractmethod
    def _oracle(self, members: np.ndarray) -> Oracle:
        """The local problems of ``members``, in their order."""

    @cached_property
    def _everyone(self) -> Oracle:
        return self._oracle(np.arange(self.clients))


def exact(name: str, values: Values) -> Tensor:
    """A copy of an array, tensor or nested list as a float64 tensor of finite numbers."""
    try:
        if isinstance(values, Tensor):
            tensor = values.detach().to(torch.float64, copy=True)
        else:
            parts = values if isinstance(values, list | tuple) else [values]
            found = [dense(name, one) if hasattr(one, "toarray") else one for one in parts]
            whole = found if isinstance(values, list | tuple) else found[0]
            tensor = torch.from_numpy(np.array(whole, dtype=np.float64))
    except (TypeError, ValueError, RuntimeError) as error:
        raise ValueError(
            f"{name} is not an array of numbers ({error}); code words as numbers, and give rows of "
            "equal length"
        ) from error
    return finite(name, tensor)


def finite(name: str, tensor: Tensor) -> Tensor:
    """``tensor``, refused unless its numbers are finite."""
    if tensor.numel() and not all(map(torch.isfinite, tensor.aminmax())):
        where = ", ".join(map(str, (~tensor.isfinite()).nonzero()[0].tolist()))
        raise ValueError(
            f"{name} holds numbers that are not finite, the first at [{where}]; remove them, scale "
            "them, or run with dtype float64"
        )
    return tensor


def narrowed(name: str, tensor: Tensor, dtype: torch.dtype, device: torch.device) -> Tensor:
    """``tensor`` in the precision of a run and on its device, refused unless it stays finite."""
    found = tensor.to(dtype).to(device)
    short = f"{name} in {str(dtype).removeprefix('torch.')}"
    return found if dtype == tensor.dtype else finite(short, found)


def pick(tensor: Tensor, members: np.ndarray) -> Tensor:
    """Rows of a tensor: a view where they are consecutive, else a copy."""
    first, last = int(members[0]), int(members[-1])
    if last - first + 1 == len(members) and bool((np.diff(members) == 1).all()):
        return tensor[first : last + 1]
    return tensor.index_select(0, upload(members, tensor.device))


def weights(batch: Tensor, dtype: torch.dtype) -> Tensor:
    """Equal weights ``[C, B]`` of the samples present in each row, 0 where ``batch`` is -1."""
    present = (batch >= 0).to(dtype)
    return present / present.sum(1, keepdim=True).clamp(min=1)


def numbers(values: dict[str, Tensor]) -> dict[str, float]:
    """Scalars by name, read from the device in one transfer."""
    found: list[float] = torch.stack(list(values.values())).tolist()
    return dict(zip(values, found, strict=True))


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


def spectrum(hessian: Matrix) -> Matrix:
    """Eigenvalues."""
    values = np.linalg.eigvalsh(hessian) if hessian.ndim == 2 else hessian
    return np.asarray(values, dtype=np.float64)


def dissimilarity(
    hessian: Callable[[int], Matrix], mean: Matrix, clients: int
) -> tuple[float, float]:
    """delta_A = |mean_i (H_i - H)^2|^(1/2) and delta_B = max_i |H_i - H|, in the spectral norm."""
    squares, largest = np.zeros_like(mean), 0.0
    for i in range(clients):
        gap = hessian(i) - mean
        squares += (gap @ gap if gap.ndim == 2 else gap * gap) / clients
        largest = max(largest, float(np.abs(spectrum(gap)).max()))
    return float(np.sqrt(max(spectrum(squares).max(), 0.0))), largest


def largest_eigenvalue(of: Tensor) -> float:
    """Largest eigenvalue of A'A for a matrix A."""
    rows = of.numpy(force=True)
    gram = rows.T @ rows if rows.shape[0] > rows.shape[1] else rows @ rows.T
    return float(np.linalg.eigvalsh(gram)[-1])
