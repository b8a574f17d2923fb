"""Which recorded number a run is judged by, and when it ends because of it."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from typing import Literal, Self

from undrift.core.params import Count, NonNegative, Record, made

GRADIENT = 1e6
"""A run has diverged when its gradient is this many times the first (or its loss, without one)."""
LOSS = 1e3
"""... or when its loss has grown by this many times the first: gradients may be bounded."""
NEAR = 0.1
"""A gradient or a loss that may be this near to its limit is measured after every round."""
LEARNT = 0.05
"""A network has learnt something if it gained this share of the accuracy that it lacked at first,
or of the declared metric that takes its place.

The loss on others' samples does not tell: it grows as a network overfits.
"""
WORSE = 0.8
"""With less than this share of the accuracy that it began with a network has been led away."""
Mode = Literal["min", "max"]
USUAL = ("gap", "accuracy")
"""What a run is judged by, if it is recorded; else by its loss."""
LOWER = ("gap", "loss", "mse", "rmse", "mae", "grad_norm", "distance", "drift")
HIGHER = ("accuracy", "top5", "f1", "auc")
MEASURED, EVERYBODY = "measured_clients", "all_clients"
"""Columns of rows whose metrics are of some clients only: of how many, and how many there are."""


def of_some(row: Mapping[str, object]) -> bool:
    """Whether the metrics of a row are of some clients only, so that others do not compare."""
    return row.get(MEASURED) is not None


def on_some(row: Mapping[str, object]) -> str:
    """The clients that a row was measured on, in words; empty if that is all of them.

    >>> on_some({"measured_clients": 2, "all_clients": 3}), on_some({"round": 1})
    ('on 2 of 3 clients', '')
    """
    return f"on {row[MEASURED]} of {row[EVERYBODY]} clients" if of_some(row) else ""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Goal(Record):
    """A recorded number, and which way is better.

    Args:
        metric: its name; left out: the gap if it is known, else the accuracy, else the loss.
        mode: min: smaller is better; max: larger is. May be left out for losses, errors and
            accuracies.
    """

    owner, short = "best", "text"

    metric: str | None = None
    mode: Mode | None = None

    @classmethod
    def read(cls, given: object) -> Self:
        """From the name of a metric too."""
        return made(cls, {"metric": given} if isinstance(given, str) else given)

    def conditions(self) -> dict[str, str]:
        if self.metric is None and self.mode is not None:
            return {"mode": "mode goes with the metric it is about: give metric too"}
        if self.metric is not None and self.mode is None and usual_mode(self.metric) is None:
            return {
                "mode": f'mode is missing: "min" if a smaller {self.metric} is better, or "max"'
            }
        return {}

    def column(self, *rows: Mapping[str, object]) -> str:
        """The name of the number in the rows of a run."""
        usual = (name for name in USUAL if any(row.get(name) is not None for row in rows))
        return self.metric or next(usual, "loss")

    def settled(self, *rows: Mapping[str, object]) -> Self:
        """The same with the metric that it has for these rows."""
        return dataclasses.replace(self, metric=self.column(*rows))

    def larger(self, column: str) -> bool:
        """Whether larger numbers are better."""
        return (self.mode or usual_mode(column)) == "max"

    def badness(self, column: str, value: float) -> float:
        """Less is better; infinite for what is no number."""
        if not math.isfinite(value):
            return math.inf
        return -value if self.larger(column) else value

    def better(self, column: str, value: float, than: float | None, by: float = 0.0) -> bool:
        """Whether ``value`` is better than another by more than ``by``; NaN is not.

        Any finite one is better than none.
        """
        if than is None:
            return math.isfinite(value)
        return value - than > by if self.larger(column) else than - value > by


USUALLY = Goal()
"""What a run is judged by unless it says otherwise."""


def usual_mode(metric: str) -> Mode | None:
    """Which way is better, by the last word of a name; ``None`` if that does not tell.

    >>> usual_mode("train_accuracy"), usual_mode("loss"), usual_mode("norm")
    ('max', 'min', None)
    """
    modes: dict[Mode, tuple[str, ...]] = {"min": LOWER, "max": HIGHER}
    ends = {mode: tuple(f"_{word}" for word in words) for mode, words in modes.items()}
    return next(
        (mode for mode, some in ends.items() if f"_{metric}".casefold().endswith(some)), None
    )


@dataclasses.dataclass(frozen=True, kw_only=True)
class EarlyStopping(Goal):
    """Ends a run before its last round, when a number stops improving or is good enough.

    Args:
        patience: recorded rows in a row that may pass without a better number.
        min_delta: a number counts as better if it is so by more than this.
        target: a run that reaches this number is done.
    """

    owner, short = "stop", ""

    patience: Count | None = None
    min_delta: NonNegative = 0.0
    target: float | None = None

    def conditions(self) -> dict[str, str]:
        if self.patience is None and self.target is None:
            text = "patience is missing: rows without a better number, or give target, a number"
            return {"patience": text}
        return super().conditions()

    def reached(self, column: str, value: float) -> bool:
        """Whether ``value`` is as good as the target."""
        aim = math.nan if self.target is None else self.badness(column, self.target)
        return self.badness(column, value) <= aim


@dataclasses.dataclass
class Waiting:
    """What early stopping remembers of the rows so far: the best number, and since when."""

    value: float | None = None
    round: int = 0
    rows: int = 0
    """Rows since then."""

    def see(self, rule: EarlyStopping, row: Mapping[str, float]) -> None:
        """Take in another row, if it was measured on all clients."""
        if of_some(row):
            return
        column = rule.column(row)
        value = float(row.get(column, math.nan))
        if rule.better(column, value, self.value, rule.min_delta):
            self.value, self.round, self.rows = value, int(row["round"]), 0
        else:
            self.rows += 1

    def over(self, rule: EarlyStopping) -> bool:
        """Whether there were too many rows without a better number."""
        return rule.patience is not None and self.rows >= rule.patience


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
    began: float = math.inf
    """The loss before the first round."""
    judged: str = "accuracy"
    """What tells whether a network has learnt something."""
    before: float = math.nan
    """What it had of that before the first round; NaN where it is not measured."""
    now: float = math.nan
    """The same at the last look."""

    @classmethod
    def first(cls, row: Mapping[str, float], goal: Goal = USUALLY) -> Alarm:
        """From the row before the first round of a run that is judged by a goal."""
        rising = (name for name in (cls.judged, *row) if usual_mode(name) == "max" and name in row)
        judged = next(rising, cls.judged)
        if goal.metric and goal.larger(goal.metric):
            judged = goal.metric
        loss, known = row["loss"], row.keys() & {"gap", "accuracy", "train_accuracy"}
        scale = max(abs(loss), row.get("gap", 0.0)) if known else 0.0  # others may begin at 0
        return cls(
            limit=GRADIENT * max(_size(row), 1e-300),
            ceiling=loss + LOSS * scale if scale else math.inf,
            began=loss,
            judged=judged,
            before=math.nan if "gap" in row else row.get(judged, math.nan),  # the loss tells all
        )

    @property
    def learnt(self) -> bool:
        """Whether a network has gained something; also where that is not known."""
        return not self.now < self.before + LEARNT * (1 - self.before)

    @property
    def fell(self) -> bool:
        """Whether it has much less than before."""
        return self.now < self.before - (1 - WORSE) * abs(self.before)

    def due(self, round: int, moved: float | None) -> bool:
        """Whether to look after a round that moved the model so far."""
        power = round & (round - 1) == 0
        if not moved or not self.moved:
            return power or bool(moved)
        growth = moved / self.moved
        near = self.size * growth >= NEAR * self.limit
        near = near or self.loss * growth**2 >= NEAR * self.ceiling
        return power or near or moved > 2 * self.moved

    def look(self, row: Mapping[str, float], moved: float | None) -> bool:
        """Whether a row is that of a run that has diverged."""
        self.size, self.loss = _size(row), row["loss"]
        self.moved = moved or self.moved
        self.now = row.get(self.judged, math.nan)
        sound = math.isfinite(row["loss"]) and row["loss"] <= self.ceiling
        return not (sound and self.size <= self.limit)


def _size(row: Mapping[str, float]) -> float:
    """What must not blow up: the gradient, or the loss where the gradient is not measured."""
    return float(row.get("grad_norm", abs(row["loss"])))
