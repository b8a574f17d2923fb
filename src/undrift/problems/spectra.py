"""Curvature of a federation from its Hessians, dense ``[d, d]`` or diagonal ``[d]``."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

Matrix = NDArray[np.float64]


def numpy(tensor: Tensor) -> Matrix:
    """A float64 tensor as an array on the host."""
    array: Matrix = tensor.cpu().numpy()
    return array


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
    rows = numpy(of)
    gram = rows.T @ rows if rows.shape[0] > rows.shape[1] else rows @ rows.T
    return float(np.linalg.eigvalsh(gram)[-1])
