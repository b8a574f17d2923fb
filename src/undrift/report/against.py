"""How much methods differ from one of them, as tables show it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from undrift.records.differences import EQUAL, Against, Difference
from undrift.records.folder import Row
from undrift.report.text import NONE, plain, whole


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
        return f"none: {EQUAL}" if found.reason == EQUAL else NONE
    return f"{signed(found.low, column)} to {signed(found.high, column)}"


def alike(rows: Sequence[Row], problems: Mapping[str, str], baseline: str) -> list[Row]:
    """The rows of the labels that have the baseline's problem."""
    return [row for row in rows if problems.get(row["label"]) == problems.get(baseline)]


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
    if any(
        part is not None and part.reason == EQUAL for o in found for part in (o.final, o.rounds)
    ):
        notes.append("no interval where all differences are equal: they do not show how seeds vary")
    if any(one.final.mean is None for one in found):
        notes.append(f"no difference in the final {column} unless all of these seeds end with one")
    if any(one.rounds is not None and one.rounds.mean is None for one in found):
        notes.append(
            "no difference in rounds unless both methods reach the target in all of these seeds"
        )
    return notes
