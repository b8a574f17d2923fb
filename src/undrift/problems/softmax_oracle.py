"""Local softmax losses: gradients by two batched products, minimisers, and the divergence that
measures a gap.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from typing import NamedTuple

import torch
from scipy.special import roots_sh_jacobi
from torch import Tensor

from undrift.core.problem import Oracle
from undrift.problems.newton import minimise
from undrift.problems.ragged import Held

ROOM = 1 << 23
"""Numbers in the Hessians of the clients that are solved side by side."""
_NODES, _WEIGHTS = (torch.from_numpy(part) for part in roots_sh_jacobi(8, 2, 1))


class Table(NamedTuple):
    """All samples, with one of zeros at the end that stands for none."""

    rows: Tensor
    """``[M + 1, p + 1]``: features and a 1 for the bias."""
    labels: Tensor
    """``[M + 1]``, whole numbers."""
    classes: int
    l2: float

    def to(self, device: torch.device, dtype: torch.dtype | None = None) -> Table:
        return self._replace(
            rows=self.rows.to(device, dtype or self.rows.dtype), labels=self.labels.to(device)
        )

    def hot(self, labels: Tensor, dtype: torch.dtype) -> Tensor:
        """Labels ``[C, m]`` as zeros and ones ``[C, classes, m]``."""
        zeros = torch.zeros(
            len(labels), self.classes, labels.shape[1], dtype=dtype, device=labels.device
        )
        return zeros.scatter_(1, labels.unsqueeze(1), 1)


class SoftmaxOracle(Oracle):
    """Scores are ``[C, classes, m]``, samples last: a softmax over few classes is slow where those
    lie side by side.
    """

    def __init__(self, table: Table, exact: Table, held: Held, dtype: torch.dtype):
        self.table, self.exact, self.held, self.dtype = table, exact, held, dtype

    def grad(self, y: Tensor, batch: Tensor | None = None) -> Tensor:
        if batch is not None:
            x = self.held.drawn(self.table.rows, batch).to(self.dtype)
            hot = self.table.hot(self.held.drawn(self.table.labels, batch), self.dtype)
            present = (batch >= 0).to(self.dtype)
            return self._slope(
                y, x, hot, (present / present.sum(1, keepdim=True).clamp(min=1)).unsqueeze(1)
            )
        if self.held.wasteful:
            return torch.cat([f.grad(row) for f, row in zip(self._apart, y.split(1), strict=True)])
        return self._slope(y, *self.stack, self.columns)

    def solve(self, v: Tensor, lam: float) -> Tensor:
        """By Newton's method in float64, to a gradient of 1e-12 relative to the size of its terms."""
        side = 1 if self.held.wasteful else max(1, ROOM // v.shape[1] ** 2)
        if len(v) > side:
            return torch.cat(
                [
                    f.solve(rows, lam)
                    for f, rows in zip(self.pieces(side), v.split(side), strict=True)
                ]
            )
        precise = SoftmaxOracle(self.exact, self.exact, self.held, torch.float64)
        f = precise.regularised(v.to(precise.stack[0]), lam)
        return minimise(f, torch.zeros_like(f.v), 1e-12 * f.size()).to(v)

    def regularised(self, v: Tensor, lam: float) -> Regularised:
        return Regularised(*self.stack, self.table.l2 + lam, v)

    @cached_property
    def stack(self) -> tuple[Tensor, Tensor, Tensor]:
        """The clients' samples ``[C, m, p + 1]``, their labels ``[C, classes, m]`` and their
        weights ``[C, 1, m]``.
        """
        x = self.held.stack(self.table.rows).to(self.dtype)
        _, sizes = self.held.spans(x.device)
        weights = (torch.arange(self.held.most, device=x.device) < sizes).to(self.dtype) / sizes
        return (
            x,
            self.table.hot(self.held.stack(self.table.labels), self.dtype),
            weights.unsqueeze(1),
        )

    @cached_property
    def columns(self) -> Tensor:
        """The samples ``[C, p + 1, m]``: laid out so, scores take half the time, and every local
        step needs them.
        """
        return self.stack[0].mT.contiguous()

    def _slope(
        self, y: Tensor, x: Tensor, hot: Tensor, weights: Tensor, columns: Tensor | None = None
    ) -> Tensor:
        W = y.unflatten(1, (self.table.classes, -1))
        share = (
            torch.bmm(W, x.mT if columns is None else columns).softmax(1).sub_(hot).mul_(weights)
        )
        return torch.baddbmm(W, share, x, beta=self.table.l2).flatten(1)

    def pieces(self, side: int) -> Iterator[SoftmaxOracle]:
        """So many clients at a time."""
        for c in range(0, len(self.held), side):
            yield SoftmaxOracle(self.table, self.exact, self.held[c : c + side], self.dtype)

    @cached_property
    def _apart(self) -> list[SoftmaxOracle]:
        return list(self.pieces(1))


class Regularised:
    """f_i(y) - <v, y> + (lam/2)|y|^2 for Newton's method, ``lam`` with the clients' own l2 in it."""

    def __init__(self, x: Tensor, hot: Tensor, weights: Tensor, lam: float, v: Tensor):
        self.x, self.hot, self.weights, self.lam, self.v = x, hot, weights, lam, v

    def value(self, y: Tensor) -> Tensor:
        scores = self._scores(y)
        losses = scores.logsumexp(1) - (scores * self.hot).sum(1)
        return (self.weights[:, 0] * losses).sum(1) + (y * (0.5 * self.lam * y - self.v)).sum(1)

    def derivatives(self, y: Tensor) -> tuple[Tensor, Tensor]:
        share = self._scores(y).softmax(1)
        grad = (
            torch.bmm((share - self.hot) * self.weights, self.x).flatten(1) + self.lam * y - self.v
        )
        return grad, self._curvature(share) + self.lam * torch.eye(
            y.shape[1], dtype=y.dtype, device=y.device
        )

    def size(self) -> Tensor:
        """How large the terms of a gradient can be, ``[C]``."""
        return torch.bmm(self.weights, self.x.abs()).squeeze(1).norm(dim=1) + self.v.norm(dim=1)

    def _scores(self, y: Tensor) -> Tensor:
        return torch.bmm(y.unflatten(1, (self.hot.shape[1], -1)), self.x.mT)

    def _curvature(self, share: Tensor) -> Tensor:
        """Blocks (k, l) of the Hessians: the sum of w_j (s_kj [k = l] - s_kj s_lj) x_j x_j'."""
        rows = []
        for k in range(share.shape[1]):
            part = -share[:, k : k + 1] * share
            part[:, k] += share[:, k]
            weighted = (part * self.weights).mT.unsqueeze(-1) * self.x.unsqueeze(2)
            rows.append(torch.bmm(self.x.mT, weighted.flatten(2)))
        return torch.cat(rows, 1)


def divergence(t: Tensor, s: Tensor) -> Tensor:
    r"""Bregman divergence of log-sum-exp over the first axis, :math:`\log\sum_kp_ke^{d_k}` with
    :math:`p = softmax(s)`

    and d = t - s less its mean under p. That is log(1 + sum p (e^d - 1 - d)), the bracket by
    quadrature where d is
    small: nothing cancels. With the scores s at the optimum, its mean is the gap less the l2 term.
    """
    p, step = s.softmax(0), t - s
    step = step - (p * step).sum(0)
    near = (
        step * step * (torch.exp(step.unsqueeze(-1) * _NODES.to(s.device)) @ _WEIGHTS.to(s.device))
    )
    bracket = torch.where(step.abs() < 1, near, torch.expm1(step) - step)
    far = (s.log_softmax(0) + step).logsumexp(0)
    return torch.where(step.amax(0) < 500, torch.log1p((p * bracket).sum(0)), far)
