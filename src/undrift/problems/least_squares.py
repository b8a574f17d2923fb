"""Least squares."""

from __future__ import annotations

from functools import cached_property

import numpy as np
import torch
from torch import Tensor

from undrift.problems.digest import digest
from undrift.problems.exact import Values, exact, narrowed, pick, weights
from undrift.problems.quadratic_form import Dense, QuadraticForm, QuadraticOracle
from undrift.problems.ragged import Ragged
from undrift.problems.spectra import Matrix, numpy


class LeastSquares(QuadraticForm):
    r"""Clients with :math:`f_i(x) = \frac12\|A_ix-b_i\|^2`, a sum over rows.

    ``A`` is ``[N, m, d]`` and ``b`` is ``[N, m]``.

    >>> LeastSquares([[[1.0], [1.0]]], [[1.0, 3.0]]).optimum.tolist()
    [2.0]
    """

    def __init__(self, A: Values, b: Values):
        self.A, self.b = exact("A", A), exact("b", b)
        if self.A.ndim != 3 or 0 in self.A.shape:
            raise ValueError(f"A has shape {list(self.A.shape)}; give [clients, rows, d]")
        if self.b.shape != self.A.shape[:2]:
            raise ValueError(
                f"b has shape {list(self.b.shape)}; give {list(self.A.shape[:2])}, one per row of A"
            )
        self.clients, rows, self.dim = self.A.shape
        self.samples = [rows] * self.clients
        self.q = torch.bmm(self.b.unsqueeze(1), self.A).squeeze(1)
        self.c = 0.5 * self.b.square().sum(1)
        self._place(torch.float64, self.A.device)

    def digest(self) -> str:
        return digest("least squares", self.A, self.b)

    def hessian(self, client: int) -> Matrix:
        return numpy(self.A[client].T @ self.A[client])

    def mean(self, members: Tensor | None = None) -> Tensor:
        rows = (self.A if members is None else self.A[members]).flatten(0, 1)
        return rows.T @ rows / self.clients

    def _values(self, y: Tensor, who: Tensor | slice) -> Tensor:
        residual = torch.bmm(y.unsqueeze(1), self.A[who].mT).squeeze(1) - self.b[who]
        return 0.5 * residual.square().sum(1)

    def _place(self, dtype: torch.dtype, device: torch.device) -> None:
        self.device = device
        self._A = narrowed("A", self.A, dtype, device)
        self._b = narrowed("b", self.b, dtype, device)
        self._q = narrowed("A'b", self.q, dtype, device)
        rows, columns = self.A.shape[1:]
        self._gram: Tensor | None = None
        if columns <= rows:
            self._gram = narrowed("A'A", torch.bmm(self.A.mT, self.A), dtype, device)

    def _oracle(self, members: np.ndarray) -> QuadraticOracle:
        sample = RowSampler(members, self._A, self._b)
        if self._gram is None:
            return Wide(members, self._A, self._b, self._q, sample)
        return Dense(members, self._gram, self._q, sample=sample)


class RowSampler:
    """Gradients over the rows of a mini-batch, scaled up to all rows of a client."""

    def __init__(self, members: np.ndarray, A: Tensor, b: Tensor):
        self.A, self.b, self.held = A.flatten(0, 1), b.flatten(), Ragged.blocks(members, b.shape[1])

    def __call__(self, y: Tensor, batch: Tensor) -> Tensor:
        A, b = self.held.drawn(self.A, batch), self.held.drawn(self.b, batch)
        residual = (A @ y.unsqueeze(-1)).squeeze(-1) - b
        weight = self.held.most * weights(batch, y.dtype)
        return torch.bmm((weight * residual).unsqueeze(1), A).squeeze(1)


class Wide(QuadraticOracle):
    """Fewer rows than columns: gradients through A, and A'A only for ``solve``."""

    def __init__(self, members: np.ndarray, A: Tensor, b: Tensor, q: Tensor, rows: RowSampler):
        super().__init__(members, q, 0.0, rows)
        self._A, self._b = A, b

    @cached_property
    def A(self) -> Tensor:
        return pick(self._A, self.members)

    @cached_property
    def minus_b(self) -> Tensor:
        return -pick(self._b, self.members).unsqueeze(1)

    def full(self, y: Tensor) -> Tensor:
        return torch.bmm(torch.baddbmm(self.minus_b, y.unsqueeze(1), self.A.mT), self.A).squeeze(1)

    def hessians(self) -> Tensor:
        return torch.bmm(self.A.mT, self.A)
