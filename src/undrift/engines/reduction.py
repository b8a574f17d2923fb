"""What the server receives of the uploads ``[S, d]`` of a phase, each client in or out for all of
its vectors: their mean or sum, the one upload that is picked, or all of them stacked.

Means weigh clients alike, or by their samples; a robust rule may take their place.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from torch import Tensor

from undrift._device import upload
from undrift._threads import one_for_few
from undrift.core.method import Exchange, Reduction
from undrift.core.struct import Message, State
from undrift.engines.robust import RobustMeans


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

    def reduce(self, phase: Exchange, server: State, up: Message, senders: np.ndarray) -> Message:
        """What becomes of the uploads of the clients ``senders``, one row each."""
        if phase.reduction != "mean":
            return up.map(_REDUCED[phase.reduction])
        if self.robust is not None:
            return self.robust(phase, server, up)
        if self._samples is None:
            return up.map(_mean)
        weights = self._weights(self._samples, senders)
        shares = weights / weights.sum()
        return up.map(lambda rows: shares @ rows)

    def weight(self, senders: np.ndarray) -> float | Tensor:
        """How much all of these clients together weigh in a mean."""
        if self._samples is None:
            return len(senders)
        return self._weights(self._samples, senders).sum()

    def _weights(self, samples: Tensor, senders: np.ndarray) -> Tensor:
        return samples.index_select(0, upload(senders, samples.device))


def _mean(rows: Tensor) -> Tensor:
    with one_for_few(rows):
        return rows.mean(0)


_REDUCED: dict[Reduction, Callable[[Tensor], Tensor]] = {
    "sum": lambda rows: rows.sum(0),
    "pick": lambda rows: rows[0],
    "stack": lambda rows: rows,
}
