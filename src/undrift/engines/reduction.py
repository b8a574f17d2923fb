"""What the server receives of the uploads: reduced on each site, and combined at the server.

A client is in or out for all its vectors. ``partial`` reduces the uploads ``[S, d]`` of one site:

* mean: their mean, and their total weight (how many they are, or their samples);
* sum: their sum;
* pick: the one upload;
* stack: all of them.

``combine`` puts the partials of all sites together: means by their weights (sum of weight x mean
over sum of weights), sums by adding, stacked rows in the order of the clients. The partial of a
single site is the result as it stands, bit for bit; several sites agree with it up to rounding.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import reduce
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from undrift._device import upload
from undrift.core.method import Reduction
from undrift.core.struct import Message


class Partial(NamedTuple):
    """The reduced uploads of one site."""

    up: Message
    weight: float | Tensor
    """Of all its uploads together."""
    senders: np.ndarray


class NobodyLeft(RuntimeError):
    """No upload of a phase can be used."""


class Reducer:
    """Reduces uploads; ``samples [N]`` weighs clients in means (uniformly when ``None``)."""

    def __init__(self, samples: Tensor | None = None):
        self._samples = samples

    def partial(self, kind: Reduction, up: Message, senders: np.ndarray) -> Partial:
        """The uploads of the clients ``senders``, one row each, as one site reduces them."""
        if kind == "mean" and self._samples is not None:
            weights = self._samples.index_select(0, upload(senders, self._samples.device))
            total = weights.sum()
            shares = weights / total
            return Partial(up.map(lambda rows: shares @ rows), total, senders)
        return Partial(up.map(_REDUCED[kind]), len(senders), senders)

    def combine(self, kind: Reduction, partials: Sequence[Partial]) -> Message:
        """The partials of all sites as the server receives them."""
        if not partials:
            raise NobodyLeft("no upload is left to merge: every client failed or was refused")
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


_REDUCED: dict[Reduction, Callable[[Tensor], Tensor]] = {
    "mean": lambda rows: rows.mean(0),
    "sum": lambda rows: rows.sum(0),
    "pick": lambda rows: rows[0],
    "stack": lambda rows: rows,
}


def _sum(*vectors: Tensor) -> Tensor:
    return reduce(torch.add, vectors)
