"""Printed numbers beside ours, and the verdict that a fixed rule gives."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from itertools import combinations
from typing import NamedTuple

from undrift.reproduce.items import NEVER, Column

POINTS = 2.0
"""Tolerance of an accuracy, in percent."""
PART = 0.2
"""Tolerance of anything else, relative to what is printed."""
ENOUGH = 0.9
"""Share of the pairs that must be in order."""
NEAR = 1.0
"""A verdict that fewer points of one accuracy would change is said to hang on it."""

RULE = f"""\
A number agrees if it differs from the paper's by at most {POINTS:g} points of an accuracy, or \
{PART:.0%} of anything else, or if both
never reach a target. Two methods are told apart by the paper if its numbers for them differ by \
more than that (of the
larger one), or if its text says which is ahead; ours are in that order if they differ in the \
same sense, however
little, or by more than that where its text says by much. **Reproduced**: every number agrees, \
and every pair that the
paper tells apart is in its order. **Order reproduced**: at least {ENOUGH:.0%} of those pairs \
are. **Not reproduced**: fewer are,
or a number does not agree and there is no such pair. All is judged that the runs went far \
enough to show: also that a
target is missed, once a run is past the paper's round by more than {PART:.0%}. **In part** says \
that this is not all that the
paper prints or says, or not from as many rounds; how many numbers and pairs it has is in \
brackets. **Shown**: it says
nothing that could be judged. A quick run is never judged. Where less than one point of one \
accuracy would change the
verdict, the page says so."""

REPRODUCED, ORDER, NOT = "reproduced", "order reproduced", "not reproduced"
QUICK, OPEN, DRAWN, COMPUTED = "not judged (quick)", "not run", "drawn", "computed"
SHOWN = "shown"
NOTHING, PARTLY = "nothing to judge yet", ", in part"


@dataclasses.dataclass(frozen=True)
class Cell:
    """One method in one column: the paper's number, and our mean and deviation over seeds."""

    label: str
    printed: float | None
    ours: float | None
    deviation: float | None = None
    seeds: int = 0
    rounds: int = 0
    """Rounds that were run, up to the paper's, by the longest seed."""
    untrained: int | None = None
    """Seeds that ended at chance, where that is looked at; they are not in the mean, unless there
    are no others.
    """
    late: bool = False
    """Whether a target was not reached long after the paper has reached it, in a run that was not
    finished.
    """

    @property
    def difference(self) -> float | None:
        if self.printed is None or self.ours is None:
            return None
        difference = self.ours - self.printed
        return difference if math.isfinite(difference) else None


Columns = list[tuple[Column, dict[str, Cell]]]
"""Columns, each with its cells by label."""


def number(printed: object) -> float | None:
    """A printed number; infinite for never, ``None`` for what is not a number."""
    if printed == NEVER:
        return math.inf
    if isinstance(printed, bool) or not isinstance(printed, int | float):
        return None
    return float(printed)


def cell(
    label: str,
    column: Column,
    found: Sequence[float | None],
    rounds: int,
    trained: Sequence[bool] = (),
) -> Cell:
    """``found`` has a number of each seed, ``None`` for one that is too short to tell; ``trained``
    says of each whether it ended above chance.
    """
    there = [value for value in found if value is not None]
    judged = [v for v, ok in zip(found, trained, strict=False) if ok and v is not None] or there
    mean = sum(judged) / len(judged) if judged else None
    deviation = None
    if mean is not None and math.isfinite(mean) and len(set(judged)) > 1:
        deviation = math.sqrt(sum((v - mean) ** 2 for v in judged) / (len(judged) - 1))
    printed = number(column.printed.get(label))
    late = (
        column.read == "rounds"
        and mean is None
        and printed is not None
        and rounds > printed + tolerance(column, printed)
    )
    untrained = None if column.chance is None else sum(not ok for ok in trained)
    seeds = len(found) if late else len(there)
    return Cell(label, printed, mean, deviation, seeds, rounds, untrained, late)


def tolerance(column: Column, printed: float) -> float:
    if column.tolerance is not None:
        return column.tolerance
    return POINTS if column.share else PART * abs(printed)


@dataclasses.dataclass(frozen=True)
class Judgement:
    """Numbers that agree and pairs in order, each of how many, and of how many in the paper."""

    agree: int = 0
    numbers: int = 0
    printed: int = 0
    ordered: int = 0
    pairs: int = 0
    stated: int = 0
    worst: float | None = None
    """The largest difference of an accuracy, in points."""

    def __add__(self, other: Judgement) -> Judgement:
        return Judgement(
            self.agree + other.agree,
            self.numbers + other.numbers,
            self.printed + other.printed,
            self.ordered + other.ordered,
            self.pairs + other.pairs,
            self.stated + other.stated,
            max((w for w in (self.worst, other.worst) if w is not None), key=abs, default=None),
        )

    @property
    def verdict(self) -> str:
        if not self.numbers and not self.pairs:
            return NOTHING
        if self.agree == self.numbers and self.ordered == self.pairs:
            return REPRODUCED
        return ORDER if self.pairs and self.ordered >= ENOUGH * self.pairs else NOT

    def __str__(self) -> str:
        words = []
        if self.numbers:
            left = f" ({self.printed} in all)" if self.numbers < self.printed else ""
            words.append(f"{self.agree} of {self.numbers} numbers agree{left}")
        if self.pairs:
            left = f" ({self.stated} in all)" if self.pairs < self.stated else ""
            words.append(f"{self.ordered} of {self.pairs} pairs in order{left}")
        if self.worst is not None:
            words.append(f"largest difference of an accuracy {self.worst:+.1f} points")
        return ", ".join(words)


class Pair(NamedTuple):
    """Two methods that the paper tells apart."""

    above: str
    below: str
    much: bool = False
    """Whether the text has them far apart."""
    between: float | None = None
    """A value that the text has between them."""
    ties: bool = False
    """Whether the text has them level too."""


def pairs(column: Column, cells: Mapping[str, Cell]) -> list[Pair]:
    """By the numbers of the paper or by its text, whether or not we have run them; once, as the
    text has it, where both tell two methods apart.
    """
    printed = [(c.printed, label) for label, c in cells.items() if c.printed is not None]
    found = [
        Pair(a[1], b[1])
        for a, b in combinations(sorted(printed, reverse=True), 2)
        if _apart(column, a[0], b[0])
    ]
    for above, others in column.above.items():
        there = [below for below in others if above in cells and below in cells]
        found += [Pair(above, below, column.much, column.between) for below in there]
    if first := column.first:
        others = [below for below in cells if below != first]
        found += [Pair(first, below, column.much, column.between, column.ties) for below in others]
    return list({(pair.above, pair.below): pair for pair in found}.values())


def judge(column: Column, cells: Mapping[str, Cell]) -> Judgement:
    """One column."""
    if not column.judged:
        return Judgement()
    both = [
        (c.printed, c.ours) for c in cells.values() if c.printed is not None and c.ours is not None
    ]
    late = sum(c.late for c in cells.values())
    stated = pairs(column, cells)
    there = {label: c.ours for label, c in cells.items() if c.ours is not None}
    run = [
        (pair, there[pair.above], there[pair.below])
        for pair in stated
        if pair.above in there and pair.below in there
    ]
    differences = [d for c in cells.values() if (d := c.difference) is not None]
    return Judgement(
        agree=sum(_same(column, printed, ours) for printed, ours in both),
        numbers=len(both) + late,
        printed=sum(c.printed is not None for c in cells.values()),
        ordered=sum(_ordered(column, *each) for each in run),
        pairs=len(run),
        stated=len(stated),
        worst=max(differences, key=abs, default=None) if column.share else None,
    )


class Hinge(NamedTuple):
    """One of our accuracies that decides a verdict."""

    label: str
    points: float
    """By how much it would have to change."""
    seeds: int

    def __str__(self) -> str:
        more = "more" if self.points > 0 else "less"
        seeds = f"{self.seeds} seed{'s' * (self.seeds > 1)}"
        return f"{abs(self.points):.2g} points {more} for {self.label} ({seeds})"


def hinge(columns: Columns) -> Hinge | None:
    """The accuracy whose change by the fewest points changes the verdict, if less than
    :data:`NEAR` does.
    """
    judged = [judge(column, cells) for column, cells in columns]
    verdict, found = sum(judged, Judgement()).verdict, list[Hinge]()
    for k, (column, cells) in enumerate(columns):
        if not (column.judged and column.share):
            continue
        others = sum((one for j, one in enumerate(judged) if j != k), Judgement())
        for label, c in cells.items():
            for points in _steps(column, cells, c):
                moved = dataclasses.replace(c, ours=(c.ours or 0.0) + points)
                if (others + judge(column, {**cells, label: moved})).verdict != verdict:
                    found.append(Hinge(label, points, c.seeds))
    return min(found, key=lambda one: abs(one.points), default=None)


def _steps(column: Column, cells: Mapping[str, Cell], c: Cell) -> list[float]:
    """Changes of one of our numbers to just before and just behind where it is judged otherwise."""
    if c.ours is None or not math.isfinite(c.ours):
        return []
    others = [other.ours for other in cells.values() if other is not c and other.ours is not None]
    edges = [*others, *(v for v in (c.printed, column.between) if v is not None)]
    within = tolerance(column, c.ours)
    found = [edge + gap - c.ours for edge in edges for gap in (-within, 0.0, within)]
    return [v + beyond for v in found if abs(v) < NEAR for beyond in (-1e-9, 1e-9)]


def _ordered(column: Column, pair: Pair, above: float, below: float) -> bool:
    """Whether our numbers of a pair are in the paper's order."""
    if pair.ties:
        return above + tolerance(column, above) > below
    if pair.between is not None and not above > pair.between > below:
        return False
    return above > below and (not pair.much or _apart(column, above, below))


def _apart(column: Column, one: float, other: float) -> bool:
    """Whether two printed numbers are told apart; the larger one sets the tolerance."""
    return not _same(column, *sorted((one, other), key=abs, reverse=True))


def _same(column: Column, printed: float, ours: float) -> bool:
    if math.isinf(printed) or math.isinf(ours):
        return printed == ours
    return abs(printed - ours) <= tolerance(column, printed)
