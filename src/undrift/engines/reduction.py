"""What the server receives of the uploads ``[S, d]`` of a phase, each client in or out for all of
its vectors: their mean or sum, the one upload that is picked, or all of them stacked.

Means weigh clients alike, or by their samples; a robust rule may take their place.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping

import numpy as np
import torch
from torch import Tensor

from undrift._device import upload
from undrift._threads import one_for_few
from undrift.core.aggregation import Robust
from undrift.core.method import Exchange, Method, Reduction
from undrift.core.struct import Message, State


class RobustMeans:
    """Applies a rule to whole uploads; the last results of a rule that remembers start at 0."""

    def __init__(self, rule: Robust, method: Method, x0: Tensor):
        self.rule, self._device = rule, x0.device
        self.last: dict[str, Tensor] = {}
        """The last results by phase and vector, as differences from ``Phase.centre``."""
        if rule.remembers:
            names = [name for phase in method.exchanges() for name in _names(phase)]
            self.last = dict.fromkeys(names, torch.zeros_like(x0))
        self._begun = self.last

    def __call__(self, phase: Exchange, server: State, up: Message) -> Message:
        """What the server receives of the uploads ``up``, one row for each client."""
        rows, parts = _whole(up), len(up.vectors)
        centre = phase.centre(server) if self.rule.centred else None
        if centre is not None:
            rows = rows - _whole(centre)
        last = torch.cat([self.last[name] for name in _names(phase)]) if self.last else None
        found = self.rule.reduce(rows, last)
        if self.last:
            new = zip(_names(phase), found.tensor_split(parts), strict=True)
            self.last = {**self.last, **dict(new)}
        if centre is not None:
            found = found + _whole(centre)
        return type(up)(**dict(zip(up.vectors, found.tensor_split(parts), strict=True)))

    def begin(self) -> None:
        """A round begins."""
        self._begun = self.last

    def roll_back(self) -> None:
        """Be as the round began."""
        self.last = self._begun

    def names(self) -> Collection[str]:
        """What its last results are called."""
        return self.last.keys()

    def tensors(self, whole: bool) -> dict[str, Tensor]:
        """The last results."""
        return self.last

    def load(self, tensors: Mapping[str, Tensor]) -> None:
        """Continue from the ``last`` of a snapshot, which is copied, from whatever device."""
        self.last = {name: tensors[name].to(self._device, copy=True) for name in self.last}
        self.begin()


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


def _names(phase: Exchange) -> list[str]:
    """What the last results of a phase are called in a snapshot."""
    return [f"reduction.{type(phase).__name__}.{name}" for name in phase.Up.vectors]


def _whole(message: Message) -> Tensor:
    """All vectors of a message side by side."""
    vectors = [v for _, v in message.items()]
    return vectors[0] if len(vectors) == 1 else torch.cat(vectors, dim=-1)


def _mean(rows: Tensor) -> Tensor:
    with one_for_few(rows):
        return rows.mean(0)


_REDUCED: dict[Reduction, Callable[[Tensor], Tensor]] = {
    "sum": lambda rows: rows.sum(0),
    "pick": lambda rows: rows[0],
    "stack": lambda rows: rows,
}
