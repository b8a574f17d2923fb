"""Local logistic losses: gradients, minimisers, and the divergence that measures a gap without
cancellation.
"""

from __future__ import annotations

from functools import cached_property

import torch
from scipy.special import roots_sh_jacobi
from torch import Tensor
from torch.nn.functional import logsigmoid

from undrift.core.problem import Oracle
from undrift.problems.newton import minimise
from undrift.problems.ragged import Held

_NODES, _WEIGHTS = (torch.from_numpy(part) for part in roots_sh_jacobi(6, 2, 1))


class LogisticOracle(Oracle):
    """Clients hold ``rows``, each -label * features, the last one zero."""

    def __init__(self, rows: Tensor, exact: Tensor, held: Held, weight: float, l2: float):
        self.rows, self.exact, self.held, self.weight, self.l2 = rows, exact, held, weight, l2

    def grad(self, y: Tensor, batch: Tensor | None = None) -> Tensor:
        if batch is not None:
            return self._on(y.unsqueeze(1), batch)
        if self.held.wasteful or (self._large and not self.held.equal):
            return torch.cat([f.grad(row) for f, row in zip(self._apart, y.split(1), strict=True)])
        y = y.unsqueeze(1)
        share = torch.sigmoid(torch.bmm(y, self.stack.mT))
        return torch.baddbmm(y, share, self.stack, beta=self.l2, alpha=self.weight).squeeze(1)

    def solve(self, v: Tensor, lam: float) -> Tensor:
        """By Newton's method in float64, to a gradient of 1e-12 relative to the size of its terms."""
        if len(v) > 1 and (self.held.wasteful or self._large):
            return torch.cat(
                [f.solve(row, lam) for f, row in zip(self._apart, v.split(1), strict=True)]
            )
        precise = self if self.rows is self.exact else self._precise
        f = precise.regularised(v.to(self.exact), lam)
        return minimise(f, torch.zeros_like(f.v), 1e-12 * f.size()).to(v)

    def regularised(self, v: Tensor, lam: float) -> Regularised:
        return Regularised(self.stack, self.weight, self.l2 + lam, v)

    @cached_property
    def stack(self) -> Tensor:
        """The clients' rows ``[C, m, d]``, padded with zeros."""
        return self.held.stack(self.rows)

    def _on(self, y: Tensor, batch: Tensor) -> Tensor:
        rows, (_, sizes) = self.held.drawn(self.rows, batch), self.held.spans(y.device)
        scale = self.weight * sizes.to(y.dtype) / (batch >= 0).sum(1, keepdim=True).clamp(min=1)
        share = scale.unsqueeze(1) * torch.sigmoid(torch.bmm(y, rows.mT))
        return torch.baddbmm(y, share, rows, beta=self.l2).squeeze(1)

    @cached_property
    def _apart(self) -> list[LogisticOracle]:
        """The clients one by one."""
        return [self._of(self.rows, slice(c, c + 1)) for c in range(len(self.held))]

    @cached_property
    def _large(self) -> bool:
        """Whether clients keep a CPU busy on their own: then padding and waiting for the slowest
        only cost.
        """
        return self.rows.device.type == "cpu" and self.held.most * self.rows.shape[1] > 1 << 16

    @cached_property
    def _precise(self) -> LogisticOracle:
        return self._of(self.exact, slice(None))

    def _of(self, rows: Tensor, which: slice) -> LogisticOracle:
        return LogisticOracle(rows, self.exact, self.held[which], self.weight, self.l2)


class Regularised:
    """f_i(y) - <v, y> + (lam/2)|y|^2 for Newton's method, ``lam`` with the clients' own l2 in it."""

    def __init__(self, stack: Tensor, weight: float, lam: float, v: Tensor):
        self.stack, self.weight, self.lam, self.v = stack, weight, lam, v

    def value(self, y: Tensor) -> Tensor:
        loss = -logsigmoid(-self._scores(y)).sum((1, 2))
        return self.weight * loss + (y * (0.5 * self.lam * y - self.v)).sum(1)

    def derivatives(self, y: Tensor) -> tuple[Tensor, Tensor]:
        share = torch.sigmoid(self._scores(y))
        grad = self.weight * torch.bmm(share, self.stack).squeeze(1) + self.lam * y - self.v
        curved = torch.bmm(self.stack.mT * (share * (1 - share)), self.stack)
        eye = torch.eye(y.shape[1], dtype=y.dtype, device=y.device)
        return grad, self.weight * curved + self.lam * eye

    def size(self) -> Tensor:
        """How large the terms of a gradient can be, ``[C]``."""
        return self.weight * self.stack.abs().sum(1).norm(dim=1) + self.v.norm(dim=1)

    def _scores(self, y: Tensor) -> Tensor:
        return torch.bmm(y.unsqueeze(1), self.stack.mT)


def divergence(t: Tensor, s: Tensor) -> Tensor:
    r"""Bregman divergence of softplus, :math:`(t-s)^2\int_0^1(1-u)\,\sigma'(s+u(t-s))\,du`, by
    quadrature when close.

    With the scores s at the optimum, its mean is the gap less the l2 term, and nothing cancels.
    """
    step = t - s
    u = torch.sigmoid(
        -(s.unsqueeze(-1) + step.unsqueeze(-1) * _NODES.to(s.device)).abs()
    )  # at most 1 / 2
    near = step * step * ((u * (1 - u)) @ _WEIGHTS.to(s.device))
    far = logsigmoid(-s) - logsigmoid(-t) - torch.sigmoid(s) * step
    return torch.where(step.abs() < 1, near, far)
