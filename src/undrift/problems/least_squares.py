"""Least squares."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from undrift.problems.form import Dense, Form, FormOracle
from undrift.problems.resident import exact, pick, weights
from undrift.problems.spectra import Matrix


class LeastSquares(Form):
    r"""Clients with :math:`f_i(x) = \frac12\|A_ix-b_i\|^2`, a sum over rows: ``A [N, m, d]``, ``b [N, m]``.

    >>> LeastSquares([[[1.0], [1.0]]], [[1.0, 3.0]]).optimum.tolist()
    [2.0]
    """

    def __init__(self, A: Any, b: Any):
        self.A, self.b = exact("A", A), exact("b", b)
        if self.A.ndim != 3 or 0 in self.A.shape:
            raise ValueError(f"A has shape {list(self.A.shape)}; give [clients, rows, d]")
        if self.b.shape != self.A.shape[:2]:
            raise ValueError(f"b has shape {list(self.b.shape)}; give {list(self.A.shape[:2])}, one per row of A")
        self.clients, rows, self.dim = self.A.shape
        self.samples = [rows] * self.clients
        self.q = torch.bmm(self.b.unsqueeze(1), self.A).squeeze(1)
        self.c = float(0.5 * self.b.square().sum(1).mean())
        self._place(torch.float64, self.A.device)

    def hessian(self, client: int) -> Matrix:
        return (self.A[client].T @ self.A[client]).cpu().numpy()

    @property
    def frobenius_L(self) -> float:
        """max_i |A_i'A_i|_F, the smoothness constant that FedRecu's authors used."""
        return max(float(np.linalg.norm(self.hessian(i))) for i in range(self.clients))

    def _place(self, dtype: torch.dtype, device: torch.device) -> None:
        self.device = device
        self._A, self._b, self._q = (part.to(device, dtype) for part in (self.A, self.b, self.q))
        rows, columns = self.A.shape[1:]
        self._gram = torch.bmm(self.A.mT, self.A).to(device, dtype) if columns <= rows else None

    def _oracle(self, members: np.ndarray) -> FormOracle:
        sample = Rows(pick(self._A, members), pick(self._b, members))
        if self._gram is None:
            return Wide(sample, pick(self._q, members))
        return Dense(pick(self._gram, members), pick(self._q, members), sample=sample)


class Rows:
    """Gradients over the rows of a mini-batch, scaled to stand for all rows."""

    def __init__(self, A: Tensor, b: Tensor):
        self.A, self.b = A, b
        self.clients = torch.arange(len(b), device=b.device).unsqueeze(1)

    def __call__(self, y: Tensor, batch: Tensor) -> Tensor:
        A, b = self.A[self.clients, batch], self.b[self.clients, batch]
        residual = (A @ y.unsqueeze(-1)).squeeze(-1) - b
        weight = self.b.shape[1] * weights(batch, y.dtype)
        return torch.bmm((weight * residual).unsqueeze(1), A).squeeze(1)


class Wide(FormOracle):
    """Fewer rows than columns: gradients through A, and A'A only for ``solve``."""

    def __init__(self, rows: Rows, q: Tensor):
        super().__init__(q, 0.0, rows)
        self.A, self.minus_b = rows.A, -rows.b.unsqueeze(1)

    def full(self, y: Tensor) -> Tensor:
        return torch.bmm(torch.baddbmm(self.minus_b, y.unsqueeze(1), self.A.mT), self.A).squeeze(1)

    def hessians(self) -> Tensor:
        return torch.bmm(self.A.mT, self.A)
