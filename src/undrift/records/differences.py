"""How much methods differ from one of them, seed by seed."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from statistics import fmean, stdev

from undrift.core.stopping import Goal, of_some
from undrift.records.rows import ENDED, Outcome, Row, at_end, key_of

LEVEL = 0.95
SINGLE, EQUAL = "one seed", "all are equal"
"""Why differences have no interval."""
SAME = 1e-9
"""Differences that are this much apart, of the largest, are equal up to rounding."""
RELATIVE = 1e-6
"""Default target, as a fraction of the first gap."""

Curve = list[Row]
"""The rows of one method with one seed."""


@dataclasses.dataclass(frozen=True)
class Difference:
    """A method's value less that of the baseline: the mean over the seeds that both have."""

    seeds: int
    mean: float | None = None
    """``None`` unless all of these seeds have both values: a mean over the others would favour a
    method that fails in some seeds."""
    low: float | None = None
    high: float | None = None
    """The 95 % interval by Student's t, where there is one."""
    reason: str = ""
    """Why there is a mean without an interval: a single seed, or differences that are all equal,
    which do not say how much others would vary.
    """


@dataclasses.dataclass(frozen=True)
class Against:
    """A method against the baseline."""

    label: str
    baseline: str
    final: Difference
    """In the last value of the column that runs are judged by."""
    rounds: Difference | None
    """In the rounds until the target, where there is one."""

    def document(self) -> dict[str, object]:
        """The same for JSON."""
        found = {"baseline": self.baseline, "final": vars(self.final)}
        return found | {"rounds": None if self.rounds is None else vars(self.rounds)}


def curves(rows: Iterable[Row]) -> dict[str, dict[int, Curve]]:
    """Label -> seed -> rows."""
    found: dict[str, dict[int, Curve]] = {}
    for row in rows:
        found.setdefault(row["label"], {}).setdefault(row["seed"], []).append(row)
    return found


def hit(curve: Curve, goal: Goal, target: float | None) -> Row | None:
    """The first row of all clients that reaches the target; without one, 1e-6 of the first gap."""
    column = goal.column(*curve)
    start = curve[0].get(column)
    if target is None:
        target = math.nan
        if column == "gap" and start is not None and math.isfinite(start):
            target = RELATIVE * start
    # Rows of some clients are passed over: a target that only the easy ones reach is not reached.
    sign = -1 if goal.larger(column) else 1
    reached = (
        row
        for row in curve
        if not of_some(row) and (value := row.get(column)) is not None
        if sign * value <= sign * target
    )
    return next(reached, None)


def against(
    rows: Sequence[Row],
    outcomes: Sequence[Outcome],
    goal: Goal,
    target: float | None,
    baseline: str,
) -> list[Against]:
    """Every other method against the ``baseline``, a label."""
    column, found = goal.column(*rows), curves(rows)
    for outcome in outcomes:  # a seed that changes nothing was not run again
        own = found.get(outcome.label, {})
        if outcome.same_as is not None and outcome.same_as in own:
            own.setdefault(outcome.seed, own[outcome.same_as])
    first = found.get(baseline, {})
    aimed = target is not None or column == "gap"
    statuses = {outcome.key: outcome.status for outcome in outcomes}

    def status(curve: Curve) -> str:
        return statuses.get(key_of(curve[-1]), "unfinished")

    def end(curve: Curve) -> object:
        return None if of_some(curve[-1]) else at_end(curve[-1], status(curve)).get(column)

    def rounds(curve: Curve) -> object:
        row = hit(curve, goal, target) if status(curve) in ENDED else None
        return None if row is None else row["round"]

    return [
        Against(
            label,
            baseline,
            difference(seeds, first, end),
            difference(seeds, first, rounds) if aimed else None,
        )
        for label, seeds in found.items()
        if label != baseline
    ]


def difference(
    seeds: Mapping[int, Curve], first: Mapping[int, Curve], value: Callable[[Curve], object]
) -> Difference:
    """The difference of some value of two methods, over the seeds that both have.

    Seeds that change neither are one: the same two runs stand for all of them.
    """
    both = [(seeds[seed], first[seed]) for seed in seeds if seed in first]
    # By the seeds that were really run: a run that stands for three is one, or its interval would
    # shrink with every seed that changes nothing.
    runs = {(one[0]["seed"], other[0]["seed"]): (one, other) for one, other in both}
    pairs = [(value(one), value(other)) for one, other in runs.values()]
    apart = [
        one - other
        for one, other in pairs
        if isinstance(one, int | float) and isinstance(other, int | float)
    ]
    return interval(apart) if len(apart) == len(pairs) else Difference(len(pairs))


def interval(apart: Sequence[float]) -> Difference:
    """The mean of some differences, with a 95 % interval if there are several that vary.

    Those that differ by rounding alone are equal: accuracies on few samples often are.

    >>> found = interval([1.0, 2.0, 3.0])
    >>> found.mean, round(found.high, 4), interval([1.0]).low
    (2.0, 4.4841, None)
    >>> interval([0.5, 0.5]).reason
    'all are equal'
    """
    if not apart or not all(map(math.isfinite, apart)):
        return Difference(len(apart))
    mean = fmean(apart)
    if len(apart) == 1:
        return Difference(1, mean, reason=SINGLE)
    if max(apart) - min(apart) <= SAME * max(map(abs, apart)):
        return Difference(len(apart), mean, reason=EQUAL)
    from scipy.special import stdtrit

    half = float(stdtrit(len(apart) - 1, (1 + LEVEL) / 2)) * stdev(apart) / math.sqrt(len(apart))
    return Difference(len(apart), mean, mean - half, mean + half)
