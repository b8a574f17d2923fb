"""Whether a run has diverged, seen at most a few rounds late however seldom rows are measured."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping

GRADIENT = 1e6
"""A run has diverged when its gradient is this many times the first (or its loss, without one)."""
LOSS = 1e3
"""... or when its loss has grown by this many times the first: gradients may be bounded."""
NEAR = 0.1
"""A gradient or a loss that may be this near to its limit is measured after every round."""


@dataclasses.dataclass
class Alarm:
    """Looks at rows, and says after which rounds without a row a look is worth its time.

    How far a round moves the model costs nothing to know; the gradient follows it, and the loss its
    square. So a look is due when that has doubled since the last one or tells that a limit is near,
    and after rounds 1, 2, 4, 8, ..., which catch losses that grow while gradients stay bounded.
    """

    limit: float = math.inf
    """Of the gradient's norm."""
    ceiling: float = math.inf
    """Of the loss."""
    size: float = 0.0
    """What ``limit`` bounds, at the last look."""
    loss: float = 0.0
    """At the last look."""
    moved: float = 0.0
    """How far the last round before that look moved the model."""

    @classmethod
    def first(cls, row: Mapping[str, float]) -> Alarm:
        """From the row before the first round."""
        ceiling = math.inf
        if row.keys() & {"gap", "accuracy", "train_accuracy"}:  # other losses may begin at 0
            scale = max(abs(row["loss"]), row.get("gap", 0.0))
            ceiling = row["loss"] + LOSS * scale if scale > 0 else math.inf
        return cls(GRADIENT * max(_size(row), 1e-300), ceiling)

    @property
    def began_finite(self) -> bool:
        """Whether the row before the first round was finite."""
        return math.isfinite(self.limit)

    def kept(self) -> dict[str, float]:
        """For a checkpoint: what is finite, since JSON holds no more."""
        return {name: v for name, v in dataclasses.asdict(self).items() if math.isfinite(v)}

    def due(self, round: int, moved: float | None) -> bool:
        """Whether to look after a round that moved the model so far."""
        if round & (round - 1) == 0:
            return True
        if moved is None or moved == 0:
            return False
        if not self.moved or moved > 2 * self.moved:
            return True
        growth = moved / self.moved
        near = self.size * growth >= NEAR * self.limit
        return near or self.loss * growth**2 >= NEAR * self.ceiling

    def look(self, row: Mapping[str, float], moved: float | None) -> bool:
        """Whether a row is that of a run that has diverged."""
        self.size, self.loss = _size(row), row["loss"]
        self.moved = moved or self.moved
        sound = math.isfinite(row["loss"]) and row["loss"] <= self.ceiling
        return not (sound and self.size <= self.limit)


def _size(row: Mapping[str, float]) -> float:
    """What must not blow up: the gradient, or the loss where the gradient is not measured."""
    return float(row.get("grad_norm", abs(row["loss"])))
