"""What the server receives of the uploads: reduced on each site, and combined at the server.

A client is in or out for all its vectors. ``partial`` reduces the uploads ``[S, d]`` of one site:

* mean: their mean, and their total weight (how many they are, or their samples);
* sum: their sum;
* pick: the one upload;
* stack: all of them.

``combine`` puts the partials of all sites together: means by their weights (sum of weight x mean
over sum of weights), sums by adding, stacked rows in the order of the clients. The partial of a
single site is the result as it stands, bit for bit; several sites agree with it up to rounding.

Where a robust reduction takes the place of means, sites keep the rows of all uploads, and
``combine`` applies the rule to all of them in the order of the clients.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import reduce
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from undrift._device import upload
from undrift._threads import one_for_few
from undrift.core.method import Exchange, Reduction
from undrift.core.struct import Message, State
from undrift.engines.robust import RobustMeans


class Partial(NamedTuple):
    """The reduced uploads of one site."""

    up: Message
    weight: float | Tensor
    """Of all its uploads together."""
    senders: np.ndarray


class NobodyLeft(RuntimeError):
    """No upload of a phase can be used."""


class TooFewLeft(NobodyLeft):
    """A robust reduction needs more uploads than there are."""


class Reducer:
    """Reduces uploads; ``samples [N]`` weighs clients in means (uniformly when ``None``).

    ``robust`` takes the place of means, where it is given.
    """

    def __init__(self, samples: Tensor | None = None, robust: RobustMeans | None = None):
        self._samples, self.robust = samples, robust

    @property
    def least(self) -> int:
        """The fewest uploads that can be reduced."""
        return 1 if self.robust is None else self.robust.rule.least

    def partial(self, phase: Exchange, up: Message, senders: np.ndarray) -> Partial:
        """The uploads of the clients ``senders``, one row each, as one site reduces them."""
        kind = self._kind(phase)
        if kind == "mean" and self._samples is not None:
            weights = self._weights(self._samples, senders)
            total = weights.sum()
            shares = weights / total
            return Partial(up.map(lambda rows: shares @ rows), total, senders)
        return Partial(up.map(_REDUCED[kind]), len(senders), senders)

    def combine(self, phase: Exchange, server: State, partials: Sequence[Partial]) -> Message:
        """The partials of all sites as the server receives them."""
        if not partials:
            raise NobodyLeft("no upload is left to merge: every client failed or was refused")
        up = self._combined(self._kind(phase), partials)
        if self.robust is None or phase.reduction != "mean":
            return up
        senders = np.sort(np.concatenate([partial.senders for partial in partials]))
        if len(senders) < self.least:
            name = self.robust.rule.name
            raise TooFewLeft(f"{name} needs {self.least} uploads, and {len(senders)} are left")
        shares = None
        if self._samples is not None:
            weights = self._weights(self._samples, senders)
            shares = weights / weights.sum()
        return self.robust(phase, server, up, shares)

    def _kind(self, phase: Exchange) -> Reduction:
        robust = self.robust is not None and phase.reduction == "mean"
        return "stack" if robust else phase.reduction

    def _weights(self, samples: Tensor, senders: np.ndarray) -> Tensor:
        return samples.index_select(0, upload(senders, samples.device))

    def _combined(self, kind: Reduction, partials: Sequence[Partial]) -> Message:
        if len(partials) == 1:
            return partials[0].up
        ups = [partial.up for partial in partials]
        if kind == "mean":
            weights = [partial.weight for partial in partials]
            total = reduce(lambda a, b: a + b, weights)
            shares = [weight / total for weight in weights]

            def mean(*means: Tensor) -> Tensor:
                return _sum(*(share * v for share, v in zip(shares, means, strict=True)))

            return ups[0].map(mean, *ups[1:])
        if kind == "sum":
            return ups[0].map(_sum, *ups[1:])
        if kind == "pick":
            raise ValueError("one client is picked, but several sites sent an upload")
        order = np.argsort(np.concatenate([partial.senders for partial in partials]))

        def stacked(*rows: Tensor) -> Tensor:
            return torch.cat(rows).index_select(0, upload(order, rows[0].device))

        return ups[0].map(stacked, *ups[1:])


def _mean(rows: Tensor) -> Tensor:
    with one_for_few(rows):
        return rows.mean(0)


_REDUCED: dict[Reduction, Callable[[Tensor], Tensor]] = {
    "mean": _mean,
    "sum": lambda rows: rows.sum(0),
    "pick": lambda rows: rows[0],
    "stack": lambda rows: rows,
}


def _sum(*vectors: Tensor) -> Tensor:
    return reduce(torch.add, vectors)
