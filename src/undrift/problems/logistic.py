"""Regularised logistic regression."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from functools import cached_property
from typing import NamedTuple, Self

import numpy as np
import torch
from numpy.typing import ArrayLike
from scipy.special import roots_sh_jacobi
from torch import Tensor
from torch.nn.functional import logsigmoid

from undrift._threads import each
from undrift.problems.exact import Values, digest, exact, largest_eigenvalue, narrowed, pick
from undrift.problems.ragged import Ragged
from undrift.problems.regression import Pooled, Regression, RegressionOracle, Regularised

LARGE = 1 << 16
"""Numbers of a client that keep a CPU core busy on their own."""
_NODES, _WEIGHTS = (torch.from_numpy(part) for part in roots_sh_jacobi(6, 2, 1))


class LogisticBlock(NamedTuple):
    """Rows ``[m, d]``, each -label * features, and their scores at the optimum if that is known."""

    rows: Tensor
    best: Tensor | None


class Logistic(Regression[LogisticBlock]):
    r"""Clients with :math:`f_i(x) = \frac NM\sum_{j\in i}\log(1+e^{-y_ja_j^\top x})
    + \frac{l_2}2\|x\|^2`.

    ``features [M, d]`` and ``labels [M]`` in {-1, +1}, or in {0, 1}, are split by ``parts``, index
    arrays of N clients that hold M samples together: f is the pooled loss. ``l2`` defaults to 1/M.
    """

    pooled = True
    mean, sd = torch.zeros(()), torch.ones(())
    """What was taken from a table's columns, and what they were then divided by."""

    def __init__(
        self, features: Values, labels: Values, parts: Sequence[ArrayLike], l2: float | None = None
    ):
        a, y = exact("features", features), exact("labels", labels)
        if bool(((y == 0) | (y == 1)).all()):
            y = 2 * y - 1
        if not bool((y.abs() == 1).all()):
            raise ValueError("labels must be -1 or +1, or 0 or 1; map the two classes to them")
        order = self._divide(a, y, parts, l2)
        self.dim, self.weight = a.shape[1], self.clients / self.total
        # One row of zeros at the end: index -1, the mark of no sample and of padding, adds nothing
        # to a gradient.
        self.rows = torch.cat([-y[order, None] * a[order], a.new_zeros(1, self.dim)])
        self._place(torch.float64, a.device)

    def among(self, clients: int, total: int) -> Self:
        twin = copy.copy(self)
        twin.weight = clients / total
        return twin

    def tensors(self, x: Tensor) -> dict[str, Tensor]:
        scaled = {"mean": self.mean, "sd": self.sd} if self.mean.dim() else {}
        return super().tensors(x) | scaled

    def digest(self) -> str:
        return digest("logistic", self.rows, self.held.first, self.held.sizes, self.l2)

    def _relabel(self, rows: Tensor, classes: Tensor) -> None:
        signs = torch.ones(len(self.rows), 1, dtype=self.rows.dtype)
        signs[rows] = -1
        self.rows = self.rows * signs.to(self.rows.device)

    def _measure(self, x: Tensor, block: LogisticBlock) -> Tensor:
        """A score of 0 counts half as classified right."""
        rows, best = block
        t, share = rows @ x, len(rows) / self.total
        slope, x, stack = torch.sigmoid(t).view(1, 1, -1), x.view(1, 1, -1), rows.unsqueeze(0)
        grad = torch.baddbmm(x, slope, stack, beta=share * self.l2, alpha=1 / self.total)
        loss, right = -logsigmoid(-t).sum() / self.total, (1 - t.sign()).sum() / 2
        gap = t.new_zeros(()) if best is None else divergence(t, best).sum() / self.total
        return torch.cat([torch.stack([loss, right, gap]), grad.view(-1)])

    def _judge(self, x: Tensor, block: LogisticBlock) -> tuple[Tensor, Tensor]:
        t = block.rows @ x
        return -logsigmoid(-t), (1 - t.sign()) / 2

    def _gather(self, members: np.ndarray | None) -> list[LogisticBlock]:
        best = self._known

        def block(which: np.ndarray, halted: Callable[[], bool]) -> LogisticBlock:
            rows = pick(self._exact, which)
            return LogisticBlock(rows, None if best is None else rows @ best)

        return each(block, self._split(members, self.precise))

    def _place(self, dtype: torch.dtype, device: torch.device) -> None:
        self.device = device
        self._exact = self.rows.to(self.precise)
        self._rows = narrowed("features", self._exact, dtype, device)

    def _oracle(self, members: np.ndarray) -> LogisticOracle:
        return LogisticOracle(self._rows, self._exact, self.held[members], self.weight, self.l2)

    def _curvatures(self) -> tuple[float, float]:
        clients = self._held(self.held).pieces(1)
        each = [largest_eigenvalue(f.stack[0]) for f in clients]
        return self.weight * max(each) / 4, largest_eigenvalue(self.rows[:-1]) / (4 * self.total)

    def _pooled(self) -> Pooled:
        rows, nothing = self.rows, self.rows.new_zeros(1, self.dim)
        stacks = (pick(rows, which).unsqueeze(0) for which in self._split(None, rows.device))
        return Pooled([Logits(stack, 1 / self.total, 0.0, nothing) for stack in stacks], self.l2)

    def _held(self, held: Ragged) -> LogisticOracle:
        return LogisticOracle(self.rows, self.rows, held, self.weight, self.l2)


class LogisticOracle(RegressionOracle):
    """Clients hold ``rows``, each -label * features, the last one zero."""

    def __init__(self, rows: Tensor, exact: Tensor, held: Ragged, weight: float, l2: float):
        self.rows, self.exact, self.held, self.weight, self.l2 = rows, exact, held, weight, l2
        self.device, self.is_exact = exact.device, rows is exact

    several = True

    def grad(self, y: Tensor, batch: Tensor | None = None) -> Tensor:
        points = y if y.dim() == 3 else y.unsqueeze(1)
        if batch is not None:
            return self._on(points, batch).view_as(y)
        if self.held.wasteful or (self._large and not self.held.equal):
            rows = torch.split(y, 1)
            return torch.cat([f.grad(row) for f, row in zip(self.apart, rows, strict=True)])
        share = torch.sigmoid(torch.bmm(points, self.stack.mT))
        found = torch.baddbmm(points, share, self.stack, beta=self.l2, alpha=self.weight)
        return found.view_as(y)

    def some(self, which: slice, exact: bool = False) -> LogisticOracle:
        rows = self.exact if exact else self.rows
        return LogisticOracle(rows, self.exact, self.held[which], self.weight, self.l2)

    def side_by_side(self, dim: int) -> int:
        return 1 if self.held.wasteful or self._large else len(self.held)

    def regularised(self, v: Tensor, lam: float) -> Logits:
        return Logits(self.stack, self.weight, self.l2 + lam, v)

    @cached_property
    def stack(self) -> Tensor:
        """The clients' rows ``[C, m, d]``, padded with zeros."""
        return self.held.stack(self.rows)

    def _on(self, y: Tensor, batch: Tensor) -> Tensor:
        rows, (_, sizes) = self.held.drawn(self.rows, batch), self.held.spans(y.device)
        scale = self.weight * sizes.to(y.dtype) / (batch >= 0).sum(1, keepdim=True).clamp(min=1)
        share = scale.unsqueeze(1) * torch.sigmoid(torch.bmm(y, rows.mT))
        return torch.baddbmm(y, share, rows, beta=self.l2)

    @cached_property
    def _large(self) -> bool:
        """Whether padding, and waiting for the slowest, costs more than going one by one."""
        return self.rows.device.type == "cpu" and self.held.most * self.rows.shape[1] > LARGE


class Logits(Regularised):
    """``stack [C, m, d]`` are the clients' rows."""

    def __init__(self, stack: Tensor, weight: float, lam: float, v: Tensor):
        super().__init__(lam, v)
        self.stack, self.weight = stack, weight

    def losses(self, y: Tensor) -> Tensor:
        return -logsigmoid(-self._scores(y)).sum((1, 2)) * self.weight

    def slopes(self, y: Tensor) -> tuple[Tensor, Tensor]:
        share = torch.sigmoid(self._scores(y))
        grad = torch.bmm(share, self.stack).squeeze(1) * self.weight
        curved = torch.bmm(self.stack.mT * (share * (1 - share)), self.stack)
        return grad, curved * self.weight

    def terms(self) -> Tensor:
        return self.stack.abs().sum(1) * self.weight

    def _scores(self, y: Tensor) -> Tensor:
        return torch.bmm(y.unsqueeze(1), self.stack.mT)


def divergence(t: Tensor, s: Tensor) -> Tensor:
    r"""Bregman divergence of softplus, :math:`(t-s)^2\int_0^1(1-u)\,\sigma'(s+u(t-s))\,du`.

    By quadrature where t and s are close. With the scores s at the optimum, its mean is the gap
    less the l2 term, and nothing cancels.
    """
    step = t - s
    between = s.unsqueeze(-1) + step.unsqueeze(-1) * _NODES.to(s.device)
    u = torch.sigmoid(-between.abs())  # at most 1 / 2
    near = step * step * ((u * (1 - u)) @ _WEIGHTS.to(s.device))
    far = logsigmoid(-s) - logsigmoid(-t) - torch.sigmoid(s) * step
    return torch.where(step.abs() < 1, near, far)
