"""What binary and softmax regression share: data, optimum, constants and exact local minimisers."""

from __future__ import annotations

import abc
import math
from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import Self

import torch
from numpy.typing import ArrayLike
from torch import Tensor

from undrift.core.problem import Constants, Oracle
from undrift.problems.exact import ExactProblem
from undrift.problems.newton import NotConverged, minimise
from undrift.problems.ragged import Ragged, owned
from undrift.problems.spectra import Matrix, dissimilarity, numpy


class Regularised(abc.ABC):
    """f_i(y) - <v, y> + (lam/2)|y|^2 for Newton's method; ``lam`` includes the clients' own l2."""

    def __init__(self, lam: float, v: Tensor):
        self.lam, self.v = lam, v

    @abc.abstractmethod
    def losses(self, y: Tensor) -> Tensor:
        """The weighted losses of the clients without any regularisation, ``[C]``."""

    @abc.abstractmethod
    def slopes(self, y: Tensor) -> tuple[Tensor, Tensor]:
        """Gradients ``[C, d]`` and Hessians ``[C, d, d]`` of the losses."""

    @abc.abstractmethod
    def largest(self) -> Tensor:
        """How large the terms of the losses' gradients can be, ``[C]``."""

    def value(self, y: Tensor) -> Tensor:
        return self.losses(y) + (y * (0.5 * self.lam * y - self.v)).sum(1)

    def derivatives(self, y: Tensor) -> tuple[Tensor, Tensor]:
        grad, hessian = self.slopes(y)
        eye = torch.eye(y.shape[1], dtype=y.dtype, device=y.device)
        return grad + self.lam * y - self.v, hessian + self.lam * eye

    def minimiser(self, tolerance: float, least: float = 0.0) -> Tensor:
        """Where gradients are within ``tolerance``, relative to their terms or to ``least``."""
        size = (self.largest() + self.v.norm(dim=1)).clamp(min=least)
        return minimise(self, torch.zeros_like(self.v), tolerance * size)


class RegressionOracle(Oracle):
    """The losses of some clients, whose samples are rows of one table."""

    held: Ragged
    device: torch.device
    """Of the float64 data."""
    is_exact: bool
    """Whether the data are in float64 already."""

    @abc.abstractmethod
    def some(self, which: slice, exact: bool = False) -> Self:
        """Some of these clients, in float64 if ``exact``."""

    @abc.abstractmethod
    def side_by_side(self, dim: int) -> int:
        """How many clients are solved at a time."""

    @abc.abstractmethod
    def regularised(self, v: Tensor, lam: float) -> Regularised:
        """What :meth:`solve` minimises."""

    def solve(self, v: Tensor, lam: float) -> Tensor:
        """By Newton's method in float64, to a gradient of 1e-12 relative to its terms."""
        if len(v) > (side := self.side_by_side(v.shape[1])):
            pieces, rows = self.apart if side == 1 else self.pieces(side), torch.split(v, side)
            return torch.cat([f.solve(row, lam) for f, row in zip(pieces, rows, strict=True)])
        f = self if self.is_exact else self._precise
        return f.regularised(v.to(self.device, torch.float64), lam).minimiser(1e-12).to(v)

    def pieces(self, side: int) -> Iterator[Self]:
        """So many clients at a time."""
        return (self.some(slice(c, c + side)) for c in range(0, len(self.held), side))

    @cached_property
    def apart(self) -> list[Self]:
        """The clients one by one."""
        return list(self.pieces(1))

    @cached_property
    def _precise(self) -> Self:
        return self.some(slice(None), exact=True)


class Regression(ExactProblem):
    """f_i is a convex loss of client i's samples plus (l2/2)|x|^2; ``l2`` defaults to 1/M."""

    held: Ragged
    total: int
    """M, the samples of all clients."""
    l2: float

    def _divide(self, parts: Sequence[ArrayLike], samples: int, l2: float | None) -> Tensor:
        """Who holds which of ``samples``; their numbers, client by client."""
        order, self.held = owned(parts, samples)
        self.clients, self.samples = len(self.held), self.held.sizes.tolist()
        self.total = len(order)
        self.l2 = 1 / self.total if l2 is None else float(l2)
        if not 0 <= self.l2 < float("inf"):
            raise ValueError(f"l2 = {l2} is not allowed: a finite number >= 0")
        return torch.from_numpy(order)

    @abc.abstractmethod
    def _pooled(self) -> Regularised:
        """f as the problem of one client with all samples."""

    @abc.abstractmethod
    def _local(self, client: int) -> Regularised:
        """f_i."""

    @abc.abstractmethod
    def _curvatures(self) -> tuple[float, float]:
        """Bounds on the curvature of every loss and of their mean, without l2."""

    def _reach(self) -> float:
        """Products that may be spent on a Newton step for the optimum, and on the deltas."""
        return math.inf

    @cached_property
    def optimum(self) -> Tensor | None:
        """The minimiser to a gradient of 1e-13; ``None`` where it is not unique or out of reach."""
        if self.total * self.dim**2 > self._reach():
            return None
        try:
            return self._pooled().minimiser(1e-13, least=1)[0].cpu()
        except NotConverged:
            return None

    @cached_property
    def constants(self) -> Constants:
        """``L`` bounds the curvature everywhere; the deltas are local, at the optimum if known."""
        each, mean = self._curvatures()
        delta_A = delta_B = None
        if (x := self.optimum) is not None and self.clients * self.dim**3 <= self._reach():
            delta_A, delta_B = dissimilarity(
                lambda i: _hessian(self._local(i), x), _hessian(self._pooled(), x), self.clients
            )
        return Constants(
            L=each + self.l2,
            mu=self.l2,
            L_mean=mean + self.l2,
            mu_mean=self.l2,
            delta_A=delta_A,
            delta_B=delta_B,
        )


def _hessian(f: Regularised, x: Tensor) -> Matrix:
    return numpy(f.derivatives(x.to(f.v).unsqueeze(0))[1][0])
