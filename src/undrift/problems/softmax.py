"""Multinomial logistic regression."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cached_property
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import ArrayLike
from scipy.special import roots_sh_jacobi
from torch import Tensor

from undrift.problems.exact import Values, digest, exact, finite, narrowed, pick, weights
from undrift.problems.ragged import Ragged, relabelled
from undrift.problems.regression import Pooled, Regression, RegressionOracle, Regularised
from undrift.problems.small_matmul import by_numpy, times_transposed
from undrift.problems.softmax_steps import (
    BITS,
    Inner,
    Slopes,
    Small,
    StepsByNumpy,
    StepsByTorch,
    evened,
)

PASS = 1 << 16
"""Samples at a time where constants are computed."""
REACH = 1e10
"""The optimum is found where a Newton step, of samples * d * d products, takes no more than this;
deltas likewise.
"""
ROOM = 1 << 23
"""Numbers in the Hessians of the clients that are solved side by side."""
_NODES, _WEIGHTS = (torch.from_numpy(part) for part in roots_sh_jacobi(8, 2, 1))


class SoftmaxSamples(NamedTuple):
    """All samples, with one of zeros at the end that stands for none."""

    rows: Tensor
    """``[M + 1, p + 1]``: features and a 1 for the bias."""
    labels: Tensor
    """``[M + 1]``, whole numbers."""
    classes: int
    l2: float

    def to(self, device: torch.device) -> SoftmaxSamples:
        return self._replace(rows=self.rows.to(device), labels=self.labels.to(device))

    def is_small(self, held: Ragged) -> bool:
        """Whether gradients of these clients are made of products by NumPy."""
        return by_numpy(self.rows.device, self.classes * self.rows.shape[1] * held.most)

    def hot(self, labels: Tensor, dtype: torch.dtype) -> Tensor:
        """Labels ``[C, m]`` as zeros and ones ``[C, classes, m]``."""
        shape = len(labels), self.classes, labels.shape[1]
        zeros = torch.zeros(shape, dtype=dtype, device=labels.device)
        return zeros.scatter_(1, labels.unsqueeze(1), 1)


class SoftmaxBlock(NamedTuple):
    """Some samples: rows and labels as in :class:`SoftmaxSamples`, and their weights in f."""

    rows: Tensor
    labels: Tensor
    weights: Tensor

    def exactly(self) -> SoftmaxBlock:
        """With rows in float64."""
        return self._replace(rows=self.rows.double())


class Softmax(Regression[SoftmaxBlock]):
    r"""Clients with :math:`f_i(x) = \frac1{n_i}\sum_{j\in i}-\log\mathrm{softmax}(Wa_j+b)_{y_j}
    +\frac{l_2}2\|x\|^2`.

    ``features [M, p]`` and ``labels [M]``, whole numbers from 0 on, are split by ``parts``, index
    arrays of the clients. x holds the rows of [W, b]: p weights and a bias for each class. ``l2``
    defaults to 1/M. Features in float32 are stored as such, and converted to the precision of the
    run for every computation.

    >>> Softmax([[1.0], [2.0], [3.0]], [0, 2, 1], [[0, 1], [2]]).dim
    6
    >>> round(Softmax([[1.0], [-1.0]], [0, 1], [[0, 1]], l2=0.0).constants.L, 12)
    0.5
    """

    def __init__(
        self,
        features: Values,
        labels: Values,
        parts: Sequence[ArrayLike],
        l2: float | None = None,
        classes: int | None = None,
    ):
        a, y = _features(features), torch.as_tensor(labels)
        order = self._divide(a, y, parts, l2)
        low, high = int(y.min()), int(y.max())
        self.classes = high + 1 if classes is None else classes
        if y.is_floating_point() or not 0 <= low <= high < self.classes:
            raise ValueError(
                f"labels must be whole numbers from 0 to classes - 1 = {self.classes - 1}"
            )
        self.dim = self.classes * (a.shape[1] + 1)
        rows = a.new_empty(self.total + 1, a.shape[1] + 1)
        torch.index_select(a, 0, order, out=rows[:-1, :-1])
        rows[:, -1] = 1
        rows[-1] = 0
        y = torch.nn.functional.pad(y.to(a.device, torch.int64)[order], (0, 1))
        self.table = SoftmaxSamples(rows, y, self.classes, self.l2)
        self._place(torch.float64, a.device)

    def digest(self) -> str:
        held, (rows, labels, classes, l2) = self.held, self.table
        return digest("softmax", rows, labels, classes, held.first, held.sizes, l2)

    def _relabel(self, rows: Tensor, classes: Tensor) -> None:
        self.table = self.table._replace(
            labels=relabelled(self.table.labels, rows, classes, self.classes)
        )

    def _measure(self, x: Tensor, block: SoftmaxBlock) -> Tensor:
        a, own, w = block.rows.double(), block.labels.unsqueeze(0), block.weights
        W = x.view(self.classes, -1)
        scores, share = W @ a.T, len(a) / self.total
        logs = scores.log_softmax(0)
        loss, top = -(w @ logs.gather(0, own)[0]), logs == logs.amax(0)
        right = top.gather(0, own).to(w) / top.sum(0)
        gap = x.new_zeros(())
        if (best := self._known) is not None:
            gap = w @ divergence(scores, best.view_as(W) @ a.T)
        slope = logs.exp_().scatter_add_(0, own, -torch.ones_like(right))
        grad = (slope * w) @ a + share * self.l2 * W
        return torch.cat([torch.stack([loss, right.sum(), gap]), grad.view(-1)])

    def _judge(self, x: Tensor, block: SoftmaxBlock) -> tuple[Tensor, Tensor]:
        own = block.labels.unsqueeze(0)
        logs = (x.view(self.classes, -1) @ block.rows.double().T).log_softmax(0)
        top = logs == logs.amax(0)
        right = top.gather(0, own)[0].double() / top.sum(0)
        return -logs.gather(0, own)[0], right

    def _gather(self, members: np.ndarray | None) -> list[SoftmaxBlock]:
        return self._blocks(self._exact, self._split(members, self.precise))

    def _blocks(self, table: SoftmaxSamples, rows: Sequence[np.ndarray]) -> list[SoftmaxBlock]:
        sizes = self.held.sizes
        weights = torch.from_numpy(np.repeat(1 / (self.clients * sizes), sizes))
        every = table.rows, table.labels, weights.to(table.rows.device)
        return [SoftmaxBlock(*(pick(part, which) for part in every)) for which in rows]

    def _place(self, dtype: torch.dtype, device: torch.device) -> None:
        self.device = device
        self._exact, kept = self.table.to(self.precise), self.table.rows.dtype
        kept = kept if dtype == torch.float64 else dtype
        rows = narrowed("features", self._exact.rows, kept, device)
        self._table = self._exact.to(device)._replace(rows=rows)
        self._inner = Inner(rows, self.held, dtype, self._table.is_small(self.held))

    def _oracle(self, members: np.ndarray) -> SoftmaxOracle:
        inner = self._inner if self._inner.pays else None
        return SoftmaxOracle(self._table, self._exact, self.held[members], self.dtype, inner)

    def _reach(self) -> float:
        return REACH if self.l2 else 0.0  # without l2 there are many minimisers

    def _curvatures(self) -> tuple[float, float]:
        """A softmax has curvature at most 1/2."""
        held, everyone = self.held, self._held(self.held)
        side = 1 if held.wasteful else max(1, ROOM // (held.most * self.table.rows.shape[1]))
        stacks = (f.stack for f in everyone.pieces(side))
        each = max(float(torch.linalg.eigvalsh(_moments(x, w)).max()) for x, _, w in stacks)
        blocks = (block.exactly() for block in self._blocks(self.table, held.passes(PASS)))
        moments = [x.T @ (w.unsqueeze(1) * x) for x, _, w in blocks]
        mean = float(torch.linalg.eigvalsh(torch.stack(moments).sum(0))[-1])
        return each / 2, mean / 2

    def _pooled(self) -> Pooled:
        parts, device = [], self.table.rows.device
        for block in self._blocks(self.table, self._split(None, device)):
            x, labels, w = (part.unsqueeze(0) for part in block.exactly())
            hot = self.table.hot(labels, x.dtype)
            parts.append(Scores(x, hot, w.unsqueeze(1), 0.0, x.new_zeros(1, self.dim)))
        return Pooled(parts, self.l2)

    def _held(self, held: Ragged) -> SoftmaxOracle:
        return SoftmaxOracle(self.table, self.table, held, torch.float64)


class SoftmaxOracle(RegressionOracle):
    """Scores are ``[C, classes, m]``: torch's softmax over a short last axis is slow."""

    def __init__(
        self,
        table: SoftmaxSamples,
        exact: SoftmaxSamples,
        held: Ragged,
        dtype: torch.dtype,
        inner: Inner | None = None,
    ):
        self.table, self.exact, self.held, self.dtype = table, exact, held, dtype
        self.device = exact.rows.device
        self.is_exact = table.rows is exact.rows and dtype == torch.float64
        self.is_small = table.is_small(held)
        self._inner = inner

    several = True

    def grad(self, y: Tensor, batch: Tensor | None = None) -> Tensor:
        # The products of several points of a client are large together.
        small = self.is_small and y.dim() == 2
        if batch is not None:
            x = self.held.drawn(self.table.rows, batch).to(self.dtype)
            labels = self.held.drawn(self.table.labels, batch)
            if not small:
                hot = self.table.hot(labels, self.dtype)
                return self._slope(y, x, hot, weights(batch, self.dtype).unsqueeze(1))
            sizes = (batch >= 0).sum(1, keepdim=True).clamp(min=1)
            given = Small.of(x, labels, sizes, self.table.classes, x.shape[1])
            return self._by_numpy(y, given, x.mT.numpy(), BITS)
        if self.held.wasteful:
            rows = torch.split(y, 1)
            return torch.cat([f.grad(row) for f, row in zip(self.apart, rows, strict=True)])
        if small:
            return self._by_numpy(y, self.small, self.columns_in_bits)
        return self._slope(y, *self.stack, self.columns)

    def descend_(self, y: Tensor, lr: float | Tensor, steps: Iterable[object]) -> Tensor:
        """All steps in the same arrays, by inner products where they take less time."""
        inner, l2 = self._inner, self.table.l2
        if self.held.wasteful or isinstance(lr, Tensor):
            return super().descend_(y, lr, steps)
        with np.errstate(all="ignore"):  # what is not finite is judged later
            if inner and not inner.by_numpy:
                return StepsByTorch(*self.stack, lambda: self.inner, lr, l2).descend_(y, steps)
            if inner:
                small = StepsByNumpy(self.small, lambda: self.inner.numpy(), lr, l2)
                return small.descend_(y, steps)
            if not self.is_small:
                return super().descend_(y, lr, steps)
            W = y.numpy().reshape(len(y), self.table.classes, -1)
            slopes = Slopes(self.small, self.columns_in_bits)
            grad = torch.from_numpy(slopes.found).view_as(y)
            for _ in steps:
                slopes.at(W, W, l2)
                y.sub_(grad, alpha=lr)
        return y

    def some(self, which: slice, exact: bool = False) -> SoftmaxOracle:
        table, dtype = (self.exact, torch.float64) if exact else (self.table, self.dtype)
        inner = None if exact else self._inner
        return SoftmaxOracle(table, self.exact, self.held[which], dtype, inner)

    def side_by_side(self, dim: int) -> int:
        return 1 if self.held.wasteful else max(1, ROOM // dim**2)

    def regularised(self, v: Tensor, lam: float) -> Scores:
        return Scores(*self.stack, self.table.l2 + lam, v)

    @cached_property
    def stack(self) -> tuple[Tensor, Tensor, Tensor]:
        """Samples ``[C, m, p + 1]``, labels ``[C, classes, m]`` and weights ``[C, 1, m]``."""
        x = self.held.stack(self.table.rows).to(self.dtype)
        _, sizes = self.held.spans(x.device)
        weights = (torch.arange(self.held.most, device=x.device) < sizes).to(self.dtype) / sizes
        hot = self.table.hot(self.held.stack(self.table.labels), self.dtype)
        return x, hot, weights.unsqueeze(1)

    @cached_property
    def columns(self) -> Tensor:
        """The samples ``[C, p + 1, m]``; in this layout the scores of a step take half the time."""
        return self.stack[0].mT.contiguous()

    @cached_property
    def inner(self) -> Tensor:
        """The inner products of each client's samples."""
        assert self._inner is not None
        return self._inner.of(self.held)

    @cached_property
    def small(self) -> Small:
        """All samples for products by NumPy."""
        x, held = self.held.stack(self.table.rows).to(self.dtype), self.held
        sizes, labels = torch.from_numpy(held.sizes).unsqueeze(1), held.stack(self.table.labels)
        return Small.of(x, labels, sizes, self.table.classes, evened(held.most))

    @cached_property
    def columns_in_bits(self) -> np.ndarray:
        """``[C, p + 1, M]``: the samples transposed, in bits, and more columns of zeros."""
        rows, most = self.small.rows, self.held.most
        columns = np.zeros((len(rows), rows.shape[2], evened(most)), rows.dtype)
        np.multiply(rows.transpose(0, 2, 1), BITS, out=columns[..., :most])
        return columns

    def _by_numpy(self, y: Tensor, given: Small, columns: np.ndarray, unit: float = 1.0) -> Tensor:
        clients, dim = y.shape
        W, slopes = y.numpy().reshape(clients, self.table.classes, -1), Slopes(given, columns)
        with np.errstate(all="ignore"):  # what is not finite is judged later
            slopes.at(W if unit == 1 else unit * W, W, self.table.l2)
        return torch.from_numpy(slopes.found.reshape(clients, dim))

    def _slope(
        self, y: Tensor, x: Tensor, hot: Tensor, weights: Tensor, columns: Tensor | None = None
    ) -> Tensor:
        # Points of a client, [C, d] or [C, T, d], are so many times as many rows for its samples.
        W = y.reshape(len(y), -1, x.shape[2])
        scores = times_transposed(W, x) if columns is None else torch.bmm(W, columns)
        by_class = torch.unflatten(scores, 1, (-1, self.table.classes))
        share = by_class.softmax(2).sub_(hot.unsqueeze(1)).mul_(weights.unsqueeze(1))
        return torch.baddbmm(W, share.flatten(1, 2), x, beta=self.table.l2).view(y.shape)


class Scores(Regularised):
    """Samples ``x``, labels ``hot`` and ``weights`` as in :attr:`SoftmaxOracle.stack`."""

    def __init__(self, x: Tensor, hot: Tensor, weights: Tensor, lam: float, v: Tensor):
        super().__init__(lam, v)
        self.x, self.hot, self.weights = x, hot, weights

    def losses(self, y: Tensor) -> Tensor:
        scores = self._scores(y)
        losses = scores.logsumexp(1) - (scores * self.hot).sum(1)
        return (self.weights[:, 0] * losses).sum(1)

    def slopes(self, y: Tensor) -> tuple[Tensor, Tensor]:
        share = self._scores(y).softmax(1)
        grad = torch.bmm((share - self.hot) * self.weights, self.x).flatten(1)
        return grad, self._curvature(share)

    def terms(self) -> Tensor:
        return torch.bmm(self.weights, self.x.abs()).squeeze(1)

    def _scores(self, y: Tensor) -> Tensor:
        return torch.bmm(torch.unflatten(y, 1, (self.hot.shape[1], -1)), self.x.mT)

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
    r"""Bregman divergence of log-sum-exp over the first axis.

    That is :math:`\log\sum_kp_ke^{d_k}` with p = softmax(s) and d = t - s less its mean under p, or
    log(1 + sum p (e^d - 1 - d)), the bracket by quadrature where d is small: nothing cancels. With
    the scores s at the optimum, its mean is the gap less the l2 term.
    """
    p, step = s.softmax(0), t - s
    step = step - (p * step).sum(0)
    powers = torch.exp(step.unsqueeze(-1) * _NODES.to(s.device))
    near = step * step * (powers @ _WEIGHTS.to(s.device))
    bracket = torch.where(step.abs() < 1, near, torch.expm1(step) - step)
    far = (s.log_softmax(0) + step).logsumexp(0)
    return torch.where(step.amax(0) < 500, torch.log1p((p * bracket).sum(0)), far)


def _moments(x: Tensor, weights: Tensor) -> Tensor:
    """The sums of w_j x_j x_j', or matrices with the same largest eigenvalues."""
    z = x * weights.mT.sqrt()
    return torch.bmm(z, z.mT) if z.shape[1] < z.shape[2] else torch.bmm(z.mT, z)


def _features(values: Values) -> Tensor:
    """A tensor of finite numbers: float32 is left as it is, all else becomes float64."""
    if isinstance(values, np.ndarray) and values.dtype == np.float32:
        values = torch.from_numpy(values)
    if not isinstance(values, Tensor) or values.dtype != torch.float32:
        return exact("features", values)
    return finite("features", values.detach())
