"""How much methods differ from one of them, seed by seed."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Mapping, Sequence
from statistics import fmean, stdev

from undrift.report.summary import UNFINISHED, Curve, curves, hit
from undrift.report.text import NONE, plain, whole
from undrift.runs.folder import Row
from undrift.runs.journal import key_of
from undrift.runs.outcome import Outcome, at_end

LEVEL = 0.95


@dataclasses.dataclass(frozen=True)
class Difference:
    """A method's value less that of the baseline: the mean over the seeds that both have."""

    seeds: int
    mean: float | None = None
    """``None`` unless all of these seeds have both values: a mean over the others would favour a
    method that fails in some seeds."""
    low: float | None = None
    high: float | None = None
    """The 95 % interval by Student's t; ``None`` of a single seed."""


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


def against(
    rows: Sequence[Row],
    outcomes: Sequence[Outcome],
    column: str,
    target: float | None,
    baseline: str,
) -> list[Against]:
    """Every other method against the ``baseline``, a label."""
    found = curves(rows)
    for outcome in outcomes:  # a seed that changes nothing was not run again
        own = found.get(outcome.label, {})
        if outcome.same_as is not None and outcome.same_as in own:
            own.setdefault(outcome.seed, own[outcome.same_as])
    first = found.get(baseline, {})
    aimed = target is not None or column == "gap"
    ended = {outcome.key: outcome.status for outcome in outcomes}

    def end(curve: Curve) -> object:
        last = curve[-1]
        return at_end(last, ended.get(key_of(last), UNFINISHED)).get(column)

    def rounds(curve: Curve) -> object:
        row = hit(curve, column, target)
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
    runs = {(one[0]["seed"], other[0]["seed"]): (one, other) for one, other in both}
    pairs = [(value(one), value(other)) for one, other in runs.values()]
    apart = [
        one - other
        for one, other in pairs
        if isinstance(one, int | float) and isinstance(other, int | float)
    ]
    return interval(apart) if len(apart) == len(pairs) else Difference(len(pairs))


def interval(apart: Sequence[float]) -> Difference:
    """The mean of some differences, with a 95 % interval if there are several.

    >>> found = interval([1.0, 2.0, 3.0])
    >>> found.mean, round(found.high, 4), interval([1.0]).low
    (2.0, 4.4841, None)
    """
    if not apart or not all(map(math.isfinite, apart)):
        return Difference(len(apart))
    mean = fmean(apart)
    if len(apart) == 1:
        return Difference(1, mean)
    from scipy.special import stdtrit

    half = float(stdtrit(len(apart) - 1, (1 + LEVEL) / 2)) * stdev(apart) / math.sqrt(len(apart))
    return Difference(len(apart), mean, mean - half, mean + half)


def signed(value: float | None, column: str) -> str:
    """A difference, as tables show it.

    >>> signed(0.0123, "accuracy"), signed(-12.0, "rounds"), signed(None, "gap")
    ('+1.23', '-12', '-')
    """
    if value is None:
        return NONE
    if column == "accuracy":
        return f"{100 * value:+.2f}"
    size = abs(value)
    text = whole(size) if column == "rounds" and size >= 10 else plain(size, 3)
    return f"{'-' if value < 0 else '+'}{text}"


def between(found: Difference, column: str) -> str:
    """An interval, as tables show it."""
    if found.low is None or found.high is None:
        return NONE
    return f"{signed(found.low, column)} to {signed(found.high, column)}"


def remarks(found: Sequence[Against], column: str) -> list[str]:
    """What the numbers of a table of differences mean."""
    unit = " in percentage points" if column == "accuracy" else ""
    several = any(one.final.seeds > 1 for one in found)
    text = f"differences{unit}: means over the seeds that both methods have"
    if several:
        if any(one.final.seeds == 1 for one in found):
            text += " (one, where no seed changes either)"
        notes = [f"{text}, paired, with the 95 % interval of Student's t distribution"]
    else:
        notes = [f"{text}; there is one, so that an interval is not known"]
    if any(one.final.mean is None for one in found):
        notes.append(f"no difference in the final {column} unless all of these seeds end with one")
    if any(one.rounds is not None and one.rounds.mean is None for one in found):
        notes.append(
            "no difference in rounds unless both methods reach the target in all of these seeds"
        )
    return notes
