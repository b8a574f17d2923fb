"""Who takes part in a round."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

from undrift.core.streams import Streams

if TYPE_CHECKING:
    import numpy as np


@dataclasses.dataclass(frozen=True)
class Cohort:
    """The clients of one phase of ``round``: their numbers in ascending order, out of ``total``."""

    members: np.ndarray
    total: int
    round: int

    @property
    def size(self) -> int:
        return len(self.members)

    @property
    def full(self) -> bool:
        return self.size == self.total

    @property
    def fraction(self) -> float:
        """|S| / N."""
        return self.size / self.total


def draw(streams: Streams, stream: str, round: int, size: int, total: int) -> Cohort:
    """``size`` of ``total`` clients, without replacement."""
    import numpy as np

    if size == total:
        return Cohort(np.arange(total), total, round)
    members = streams.at(stream, round).choice(total, size, replace=False, shuffle=False)
    return Cohort(np.sort(members), total, round)
