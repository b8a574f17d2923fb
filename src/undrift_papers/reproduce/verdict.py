"""Printed numbers beside ours, and the verdict that a fixed rule gives."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from itertools import combinations
from typing import NamedTuple

from undrift_papers.reproduce.items import NEVER, Column

POINTS = 2.0
"""Tolerance of an accuracy, in percent."""
PART = 0.2
"""Tolerance of anything else, relative to what is printed."""
ENOUGH = 0.9
"""Share of the pairs that must be in order."""
LEAST = 0.25
"""Share of an item's numbers, and of its pairs, below which there is no verdict."""

RULE = f"""\
A number agrees if it differs from the paper's by at most {POINTS:g} points of an accuracy, or \
{PART:.0%} of anything else, or if both
never reach a target. Two methods are told apart by the paper if its numbers for them differ by \
more than that (of the
larger one), or if its text says which is ahead; ours are in that order if they differ in the \
same sense, however
little, or by more than that where its text says by much. Neither can be told where one standard \
error of our mean over
seeds, or of the difference of two, would turn it; of one seed it is not known.

**Reproduced**: every number agrees, and every pair that the paper tells apart is in its order. \
**Order reproduced**: at
least {ENOUGH:.0%} of those pairs are, and none that its text speaks of is not. \
**Not reproduced**: fewer are, or one of its
text, or a number does not agree and there is no such pair. **Cannot be told**: it depends on \
what cannot be told. There
is no verdict where less than a quarter of the numbers or of the pairs was run, but how many of \
these agree. All is judged
that the runs went far enough to show: also that a target is missed, once a run is past the \
paper's round by more than
{PART:.0%}. **In part** says that this is not all that the paper prints or says, or not from as \
many rounds; how many numbers
and pairs it has is in brackets. **Shown**: it says nothing that could be judged. A quick run is \
never judged.

The paper's **claim** is what its text says of an item, apart from all other numbers. **Yes**: \
every pair of it is in
order. **No**: one of them is not. **Cannot be told**: some were not run, or lie within one \
standard error. Where pairs do
not express it, the answer is written by hand, and says so."""

REPRODUCED, ORDER, NOT = "reproduced", "order reproduced", "not reproduced"
QUICK, OPEN, DRAWN, COMPUTED = "not judged (quick)", "not run", "drawn", "computed"
SHOWN, LITTLE, UNTOLD = "shown", "too little run to judge", "cannot be told"
NOTHING, PARTLY = "nothing to judge yet", ", in part"


@dataclasses.dataclass(frozen=True)
class Compared:
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
    def error(self) -> float:
        """The standard error of the mean; 0 where it is not known."""
        seeds = (self.seeds - (self.untrained or 0)) or self.seeds
        return self.deviation / math.sqrt(seeds) if self.deviation else 0.0

    @property
    def difference(self) -> float | None:
        if self.printed is None or self.ours is None:
            return None
        difference = self.ours - self.printed
        return difference if math.isfinite(difference) else None


Columns = list[tuple[Column, dict[str, Compared]]]
"""Columns, each with its cells by label."""


def cell(
    label: str,
    column: Column,
    found: Sequence[float | None],
    rounds: int,
    trained: Sequence[bool] = (),
) -> Compared:
    """``found`` has a number of each seed, ``None`` for one that is too short to tell; ``trained``
    says of each whether it ended above chance.
    """
    there = [value for value in found if value is not None]
    judged = [v for v, ok in zip(found, trained, strict=False) if ok and v is not None] or there
    mean = sum(judged) / len(judged) if judged else None
    deviation = None
    if mean is not None and math.isfinite(mean) and len(set(judged)) > 1:
        deviation = math.sqrt(sum((v - mean) ** 2 for v in judged) / (len(judged) - 1))
    given = column.printed.get(label)
    printed = math.inf if given == NEVER else None if given is None else float(given)
    late = (
        column.read == "rounds"
        and mean is None
        and printed is not None
        and rounds > printed + tolerance(column, printed)
    )
    untrained = None if column.chance is None else sum(not ok for ok in trained)
    seeds = len(found) if late else len(there)
    return Compared(label, printed, mean, deviation, seeds, rounds, untrained, late)


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
    unsure: int = 0
    """Numbers of which it cannot be told whether they agree."""
    level: int = 0
    """Pairs of which it cannot be told whether they are in order."""
    claimed: int = 0
    """Pairs that the text speaks of, and how many of these hold and fail."""
    held: int = 0
    failed: int = 0
    open: int = 0
    """Pairs that the text speaks of and that were run, but cannot be told."""

    def __add__(self, other: Judgement) -> Judgement:
        counts = [f.name for f in dataclasses.fields(self) if f.name != "worst"]
        worst = max((w for w in (self.worst, other.worst) if w is not None), key=abs, default=None)
        total = {name: getattr(self, name) + getattr(other, name) for name in counts}
        return Judgement(**total, worst=worst)

    @property
    def verdict(self) -> str:
        if not self.numbers and not self.pairs:
            return NOTHING
        if self.coverage < LEAST:
            return LITTLE
        agree, ordered = self.agree + self.unsure, self.ordered + self.level
        best = self._verdict(agree, ordered, self.failed)
        return (
            best
            if best == self._verdict(self.agree, self.ordered, self.failed + self.open)
            else UNTOLD
        )

    def _verdict(self, agree: int, ordered: int, failed: int) -> str:
        if agree == self.numbers and ordered == self.pairs:
            return REPRODUCED
        enough = self.pairs and ordered >= ENOUGH * self.pairs
        return ORDER if enough and not failed else NOT

    @property
    def coverage(self) -> float:
        """The share of the paper's numbers that was run, or of its pairs where that is less."""
        shares = [(self.numbers, self.printed), (self.pairs, self.stated)]
        return min((run / total for run, total in shares if total), default=1.0)

    @property
    def answer(self) -> str:
        """Whether what the text says holds; empty if it says nothing of pairs."""
        if not self.claimed:
            return ""
        if self.failed:
            return "no"
        if not self.held and not self.open:
            return OPEN
        return "yes" if self.held == self.claimed else UNTOLD

    @property
    def ran(self) -> str:
        """What was run, where that is too little for a verdict."""
        kinds = [(self.numbers, self.printed, "numbers"), (self.pairs, self.stated, "pairs")]
        run = " and ".join(f"{n} of {total} {kind}" for n, total, kind in kinds if total)
        agree, judged = self.agree + self.ordered, self.numbers + self.pairs
        if judged == 1:
            return f"{run} run: {'agrees' if agree else 'does not agree'}"
        return f"{run} run: {agree} of {judged} agree"

    def __str__(self) -> str:
        words = []
        for some, untold, judged, total, what in (
            (self.agree, self.unsure, self.numbers, self.printed, "numbers agree"),
            (self.ordered, self.level, self.pairs, self.stated, "pairs in order"),
        ):
            if judged:
                left = f" ({total} in all)" if judged < total else ""
                open_ = f", {untold} cannot be told" if untold else ""
                words.append(f"{some} of {judged} {what}{left}{open_}")
        if self.worst is not None:
            words.append(f"largest difference of an accuracy {self.worst:+.1f} points")
        return ", ".join(words)


class Pair(NamedTuple):
    """Two methods that the paper tells apart."""

    above: str
    below: str
    ties: bool = False
    """Whether the text has them level too."""
    said: bool = False
    """Whether the text tells them apart."""


def pairs(column: Column, cells: Mapping[str, Compared]) -> list[Pair]:
    """By the numbers of the paper or by its text, whether or not we have run them; once, as the
    text has it, where both tell two methods apart, but not level where the numbers are apart.
    """
    printed = [(c.printed, label) for label, c in cells.items() if c.printed is not None]
    found = {
        (a[1], b[1]): Pair(a[1], b[1])
        for a, b in combinations(sorted(printed, reverse=True), 2)
        if _apart(column, a[0], b[0])
    }
    said = {above: [b for b in others if b in cells] for above, others in column.above.items()}
    if first := column.first:
        said[first] = [below for below in cells if below != first]
    for above, others in said.items():
        for below in others if above in cells else ():
            level = column.ties and above == first and (above, below) not in found
            found[above, below] = Pair(above, below, level, said=True)
    return list(found.values())


def judge(column: Column, cells: Mapping[str, Compared]) -> Judgement:
    """One column."""
    if not column.judged:
        return Judgement()
    both = [
        (c.printed, c.ours, c.error)
        for c in cells.values()
        if c.printed is not None and c.ours is not None
    ]
    agree = [_told(_nearness(column, printed, ours), error) for printed, ours, error in both]
    stated = pairs(column, cells)
    there = {label: c for label, c in cells.items() if c.ours is not None}
    run = [p for p in stated if p.above in there and p.below in there]
    ordered = [_in_order(column, pair, there) for pair in run]
    said = [found for pair, found in zip(run, ordered, strict=True) if pair.said]
    differences = [d for c in cells.values() if (d := c.difference) is not None]
    return Judgement(
        agree=agree.count(True),
        numbers=len(both) + sum(c.late for c in cells.values()),
        printed=sum(c.printed is not None for c in cells.values()),
        ordered=ordered.count(True),
        pairs=len(run),
        stated=len(stated),
        worst=max(differences, key=abs, default=None) if column.share else None,
        unsure=agree.count(None),
        level=ordered.count(None),
        claimed=sum(pair.said for pair in stated),
        held=said.count(True),
        failed=said.count(False),
        open=said.count(None),
    )


def _told(margin: float, error: float) -> bool | None:
    """Whether a number is on the right side of what counts; ``None`` if its error could turn it."""
    return None if error > 0 and abs(margin) <= error else margin >= 0


def _in_order(column: Column, pair: Pair, there: Mapping[str, Compared]) -> bool | None:
    """Whether our numbers of a pair are in the paper's order; ``None`` if it cannot be told."""
    one, other = there[pair.above], there[pair.below]
    above, below = (math.nan if c.ours is None else c.ours for c in (one, other))
    if math.isinf(above) or math.isinf(below):
        return above > below
    margins = [above - below]
    if pair.ties:
        margins = [above + tolerance(column, above) - below]
    elif pair.said and column.much:
        margins = [above - below - tolerance(column, max(above, below, key=abs))]
    if pair.said and column.between is not None:
        margins += [above - column.between, column.between - below]
    least, error = min(margins), math.hypot(one.error, other.error)
    return _told(least, error) if least or error else False


def _apart(column: Column, one: float, other: float) -> bool:
    """Whether two printed numbers are told apart; the larger one sets the tolerance."""
    return _nearness(column, *sorted((one, other), key=abs, reverse=True)) < 0


def _nearness(column: Column, printed: float, ours: float) -> float:
    """How much more a number may differ from the printed one; below 0 it does not agree."""
    if math.isinf(printed) or math.isinf(ours):
        return 0.0 if printed == ours else -math.inf
    return tolerance(column, printed) - abs(printed - ours)
