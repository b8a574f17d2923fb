"""What the server receives of the uploads ``[S, d]`` of a phase, each client in or out for all of
its vectors: their mean or sum, the one upload that is picked, or all of them stacked.

Means weigh clients alike, or by their samples; a robust rule may take their place.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np
import torch
from torch import Tensor

from undrift._device import upload
from undrift._threads import one_for_few
from undrift.core.aggregation import Aggregation, Robust
from undrift.core.method import Exchange, Method, Reduction
from undrift.core.struct import Message, State
from undrift.engines.work import Part, TensorForm


class Reducer(Part):
    """Reduces uploads as ``aggregation`` says; what a rule remembers starts at 0."""

    def __init__(self, aggregation: Aggregation, method: Method, counts: Sequence[int], x0: Tensor):
        self.rule = aggregation if isinstance(aggregation, Robust) else None
        self._device = x0.device
        self._samples: Tensor | None = None
        if aggregation.by_samples:
            self._samples = torch.tensor(counts, dtype=x0.dtype, device=x0.device)
        self.last: dict[str, Tensor] = {}
        """The last results of a rule by phase and vector, as differences from ``Phase.centre``."""
        if self.rule is not None and self.rule.remembers:
            names = [name for phase in method.exchanges() for name in _names(phase)]
            self.last = dict.fromkeys(names, torch.zeros_like(x0))
            self.begin()

    @property
    def least(self) -> int:
        """The fewest uploads that can be reduced."""
        return 1 if self.rule is None else self.rule.least

    def reduce(self, phase: Exchange, server: State, up: Message, senders: np.ndarray) -> Message:
        """What becomes of the uploads of the clients ``senders``, one row each."""
        if phase.reduction != "mean":
            return up.map(_REDUCED[phase.reduction])
        if self.rule is not None:
            return self._by_rule(self.rule, phase, server, up)
        if self._samples is None:
            return up.map(_mean)
        weights = self._weights(self._samples, senders)
        shares = weights / weights.sum()
        return up.map(lambda rows: torch.tensordot(shares, rows, 1))

    def weight(self, senders: np.ndarray) -> float | Tensor:
        """How much all of these clients together weigh in a mean."""
        if self._samples is None:
            return len(senders)
        return self._weights(self._samples, senders).sum()

    def forms(self, members: int) -> dict[str, TensorForm]:
        return {name: (v.dtype, tuple(v.shape)) for name, v in self.last.items()}

    def tensors(self, whole: bool) -> dict[str, Tensor]:
        return self.last

    def load(self, tensors: Mapping[str, Tensor]) -> None:
        self.last = {name: tensors[name].to(self._device, copy=True) for name in self.last}
        self.begin()

    def _by_rule(self, rule: Robust, phase: Exchange, server: State, up: Message) -> Message:
        """A rule sees whole uploads: a client is in or out for all of its vectors."""
        rows, parts = _whole(up), len(up.vectors)
        centre = phase.centre(server) if rule.centred else None
        if centre is not None:
            rows = rows - _whole(centre)
        last = torch.cat([self.last[name] for name in _names(phase)]) if self.last else None
        found = rule.reduce(rows, last)
        if self.last:
            new = zip(_names(phase), found.tensor_split(parts), strict=True)
            self.last = {**self.last, **dict(new)}
        if centre is not None:
            found = found + _whole(centre)
        return type(up)(**dict(zip(up.vectors, found.tensor_split(parts), strict=True)))

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
