"""The means of a run where a robust reduction takes their place, and what it remembers."""

from __future__ import annotations

from collections.abc import Collection, Mapping

import torch
from torch import Tensor

from undrift.core.method import Exchange, Method
from undrift.core.robust import Robust
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

    def __call__(
        self, phase: Exchange, server: State, up: Message, shares: Tensor | None
    ) -> Message:
        """What the server receives of the uploads ``up``, one row for each client."""
        rows, parts = _whole(up), len(up.vectors)
        centre = phase.centre(server) if self.rule.centred else None
        if centre is not None:
            rows = rows - _whole(centre)
        last = torch.cat([self.last[name] for name in _names(phase)]) if self.last else None
        found = self.rule.reduce(rows, shares, last)
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


def _names(phase: Exchange) -> list[str]:
    """What the last results of a phase are called in a snapshot."""
    return [f"reduction.{type(phase).__name__}.{name}" for name in phase.Up.vectors]


def _whole(message: Message) -> Tensor:
    """All vectors of a message side by side."""
    vectors = [v for _, v in message.items()]
    return vectors[0] if len(vectors) == 1 else torch.cat(vectors, dim=-1)
