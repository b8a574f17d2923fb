"""The best model that a run measured."""

from __future__ import annotations

import dataclasses
import math

from torch import Tensor

from undrift.core.stopping import USUALLY, Goal, of_some
from undrift.records.rows import Row


@dataclasses.dataclass
class Best:
    """The best model so far."""

    metric: str = ""
    value: float = math.nan
    round: int = -1
    x: Tensor | None = None
    goal: Goal = USUALLY

    def see(self, row: Row, x: Tensor) -> None:
        """Compare with another one, if all clients measured it; of equals the first stays."""
        if of_some(row):
            return
        metric = self.goal.column(row)
        value = row[metric]
        if self.goal.better(metric, value, None if self.x is None else self.value):
            self.metric, self.value, self.round, self.x = metric, value, row["round"], x.clone()

    @property
    def about(self) -> dict[str, object]:
        return {"metric": self.metric, "value": self.value, "round": self.round}
