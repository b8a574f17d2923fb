"""Residuals of a softmax regression, and plain local steps that follow the scores.

With scores S = W x' and residuals R, the weight of each sample times softmax(S) less its label as
zeros and a one, the gradient is R x + l2 W. So a step W - lr (R x + l2 W) takes the scores to
(1 - lr l2) S - lr R x x': one product with the inner products x x' of a client's samples in place
of two with the samples. W itself is needed at the end alone, and is then (1 - lr l2)^k W less the
sum of all R, shrunk likewise, times lr x.
"""

from __future__ import annotations

import abc
import math
from collections.abc import Callable, Iterable
from functools import cached_property
from typing import NamedTuple, Self

import numpy as np
import torch
from torch import Tensor

from undrift.problems.ragged import Ragged
from undrift.problems.small_matmul import times_transposed

EVEN = 4
"""NumPy's products are fastest where rows have a multiple of so many numbers."""
BITS = 1 / math.log(2)
"""Turns scores into exponents of 2, whose powers take less time than those of e."""
LANES = 64
"""torch rounds powers of 2 in another way where fewer than so many numbers are left at the end."""
AFRESH = 32
"""After so many steps scores are those of W again, so that rounding does not add up."""
MOST = 1 << 24
"""Inner products that are kept; where there are more, steps go by gradients."""
PIECE = 1 << 22
"""Inner products that are computed at a time."""


class Inner:
    """The inner products of the samples of each client, computed when they are first asked for."""

    def __init__(self, rows: Tensor, held: Ragged, dtype: torch.dtype, by_numpy: bool):
        self._rows, self._held, self._dtype, self.by_numpy = rows, held, dtype, by_numpy

    @property
    def pays(self) -> bool:
        """Whether they are few, and no more than the numbers of the samples.

        It does not depend on who takes part, so that processes which share a cohort agree.
        """
        total, width = self._rows.shape
        return self._held.most <= width and total * self._width(self._held) <= MOST

    def of(self, held: Ragged) -> Tensor:
        """``[C, m, M]``, in bits for NumPy; zeros where a client has no more samples."""
        return held.stack(self._table)[..., : self._width(held)]

    @cached_property
    def _table(self) -> Tensor:
        """``[samples + 1, M]``: a row for each sample, with one of zeros at the end."""
        held, first = self._held, 0
        table = self._rows.new_zeros(len(self._rows), self._width(held), dtype=self._dtype)
        side = max(1, PIECE // held.most**2)
        for some in (held[c : c + side] for c in range(0, len(held), side)):
            found = self._found(some)
            _, sizes = some.spans(found.device)
            found = found[torch.arange(some.most, device=found.device) < sizes]
            table[first : first + len(found), : found.shape[1]] = found
            first += len(found)
        return table

    def _found(self, held: Ragged) -> Tensor:
        x = held.stack(self._rows).to(self._dtype)
        if not self.by_numpy:
            return times_transposed(x, x)
        rows = x.numpy()
        found = np.zeros((*rows.shape[:2], self._width(held)), rows.dtype)
        np.matmul(BITS * rows, rows.transpose(0, 2, 1), out=found[..., : held.most])
        return torch.from_numpy(found)

    def _width(self, held: Ragged) -> int:
        return evened(held.most) if self.by_numpy else held.most


class Small(NamedTuple):
    """Samples of some clients in arrays, for NumPy's products of small matrices.

    Where a client has no more samples, rows are zeros: whatever their share, it adds nothing.
    """

    rows: np.ndarray
    """``[C, m, p + 1]``."""
    hot: np.ndarray
    """``[classes, C, M]``: the weight of each sample at its label; M is m or a little more."""
    weights: np.ndarray
    """``[C, 1]``: that of every sample of a client."""

    @classmethod
    def of(cls, rows: Tensor, labels: Tensor, sizes: Tensor, classes: int, most: int) -> Self:
        """From ``labels [C, m]`` and ``sizes [C, 1]``, whole numbers."""
        weights = sizes.to(rows.dtype).reciprocal_()
        hot = torch.zeros(classes, len(rows), most, dtype=rows.dtype)
        own = hot[..., : labels.shape[1]]
        own.scatter_(0, labels.unsqueeze(0), weights.expand(1, *labels.shape))
        return cls(rows.numpy(), hot.numpy(), weights.numpy())


class Residuals:
    """Those of some clients at scores in bits, each time in the same arrays.

    They lie class by class, so that maxima and sums over classes run along whole rows.
    """

    def __init__(self, given: Small):
        self._given, size = given, given.hot.size
        numbers = np.empty(size + -size % LANES, given.hot.dtype)
        self._numbers = torch.from_numpy(numbers)
        self.found = numbers[:size].reshape(given.hot.shape)
        """``[classes, C, M]``."""
        self.by_client = by_client(self.found)[..., : given.rows.shape[1]]
        """``[C, classes, m]``."""

    def at(self, scores: np.ndarray) -> None:
        """Find those at ``scores [classes, C, M]``, which may be the same array."""
        found = self.found
        np.subtract(scores, np.maximum.reduce(scores), out=found)
        self._numbers.exp2_()  # NumPy's takes half as long again
        found *= self._given.weights / np.add.reduce(found)
        found -= self._given.hot


class Slopes:
    """Gradients of some clients, each time in the same arrays."""

    def __init__(self, given: Small, columns: np.ndarray):
        self._given, self._columns, self._residuals = given, columns, Residuals(given)
        clients, _, width = given.rows.shape
        self.found = np.empty((clients, len(given.hot), width), given.hot.dtype)
        """``[C, classes, p + 1]``."""

    def at(self, in_bits: np.ndarray, W: np.ndarray, l2: float) -> None:
        """Find those at ``W``; ``in_bits @ columns`` are its scores in bits."""
        residuals = self._residuals
        np.matmul(in_bits, self._columns, out=by_client(residuals.found))
        residuals.at(residuals.found)
        np.matmul(residuals.by_client, self._given.rows, out=self.found)
        if l2:
            self.found += l2 * W


class Steps(abc.ABC):
    """Plain local steps that follow the scores."""

    def __init__(self, lr: float, l2: float):
        self._shrinks = 1 - lr * l2

    def descend_(self, y: Tensor, steps: Iterable[object]) -> Tensor:
        """A step for each of ``steps``, written over ``y``."""
        taken = 0
        for _ in steps:
            if taken == AFRESH:
                self._arrive_(y, self._shrinks**taken)
                taken = 0
            if taken:
                self._follow()
            else:
                self._begin(y)
            taken += 1
        if taken:
            self._arrive_(y, self._shrinks**taken)
        return y

    @abc.abstractmethod
    def _begin(self, y: Tensor) -> None:
        """Find the scores of ``y``, and the residuals times lr."""

    @abc.abstractmethod
    def _follow(self) -> None:
        """Take the scores a step on, and add the residuals there to the sum of those before."""

    @abc.abstractmethod
    def _arrive_(self, y: Tensor, left: float) -> None:
        """``left * y`` less the sum of the residuals times their samples, written over ``y``."""


class StepsByTorch(Steps):
    """With ``x [C, m, p + 1]``, labels ``hot [C, classes, m]`` and ``weights [C, 1, m]``."""

    def __init__(
        self,
        x: Tensor,
        hot: Tensor,
        weights: Tensor,
        inner: Callable[[], Tensor],
        lr: float,
        l2: float,
    ):
        super().__init__(lr, l2)
        self._x, self._hot, self._weights, self._inner = x, hot, lr * weights, inner

    def _begin(self, y: Tensor) -> None:
        self._scores = times_transposed(self._by_class(y), self._x)
        self._residuals = self._found()
        self._sum = self._residuals.clone()

    def _follow(self) -> None:
        self._scores.baddbmm_(self._residuals, self._inner(), beta=self._shrinks, alpha=-1)
        self._residuals = self._found()
        if self._shrinks != 1:
            self._sum *= self._shrinks
        self._sum += self._residuals

    def _found(self) -> Tensor:
        return self._scores.softmax(1).sub_(self._hot).mul_(self._weights)

    def _arrive_(self, y: Tensor, left: float) -> None:
        self._by_class(y).baddbmm_(self._sum, self._x, beta=left, alpha=-1)

    def _by_class(self, y: Tensor) -> Tensor:
        return torch.unflatten(y, 1, (self._hot.shape[1], -1))


class StepsByNumpy(Steps):
    """The same in arrays, scores in bits."""

    def __init__(self, given: Small, inner: Callable[[], np.ndarray], lr: float, l2: float):
        super().__init__(lr, l2)
        self._given = given._replace(hot=lr * given.hot, weights=lr * given.weights)
        self._residuals, self._find = Residuals(self._given), inner
        self._scores = np.zeros_like(given.hot)
        self._sum, self._change = np.empty_like(given.hot), np.empty_like(given.hot)

    @cached_property
    def _inner(self) -> np.ndarray:
        return self._find()

    def _begin(self, y: Tensor) -> None:
        rows = self._given.rows
        scores = by_client(self._scores)[..., : rows.shape[1]]
        np.matmul(BITS * self._by_class(y), rows.transpose(0, 2, 1), out=scores)
        self._residuals.at(self._scores)
        self._sum[:] = self._residuals.found

    def _follow(self) -> None:
        np.matmul(self._residuals.by_client, self._inner, out=by_client(self._change))
        if self._shrinks != 1:
            self._scores *= self._shrinks
            self._sum *= self._shrinks
        self._scores -= self._change
        self._residuals.at(self._scores)
        self._sum += self._residuals.found

    def _arrive_(self, y: Tensor, left: float) -> None:
        rows, W = self._given.rows, self._by_class(y)
        if left != 1:
            W *= left
        W -= np.matmul(by_client(self._sum)[..., : rows.shape[1]], rows)

    def _by_class(self, y: Tensor) -> np.ndarray:
        return y.numpy().reshape(len(y), len(self._given.hot), -1)


def by_client(numbers: np.ndarray) -> np.ndarray:
    """``[classes, C, m]`` as ``[C, classes, m]``."""
    return numbers.transpose(1, 0, 2)


def evened(most: int) -> int:
    """A multiple of :data:`EVEN`."""
    return most + -most % EVEN
