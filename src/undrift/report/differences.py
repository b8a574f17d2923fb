"""How much methods differ from one of them, as a table."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence

from undrift.records.differences import EQUAL, Against, Difference
from undrift.report.numbers import NONE, signed
from undrift.report.table import Cell, Table


class Differences(Mapping[str, Against]):
    """Methods against a baseline, by their labels."""

    def __init__(self, baseline: str, metric: str, found: Iterable[Against]):
        self.baseline, self.metric = baseline, metric
        self._found = {one.label: one for one in found}

    def __getitem__(self, label: str) -> Against:
        return self._found[label]

    def __iter__(self) -> Iterator[str]:
        return iter(self._found)

    def __len__(self) -> int:
        return len(self._found)

    def table(self) -> str:
        """The differences and their 95 % intervals, as text."""
        return differences(self.baseline, self.metric, [*self.values()]).text(math.inf)

    def __repr__(self) -> str:
        return self.table()


def differences(baseline: str, column: str, found: Sequence[Against]) -> Table:
    """Methods against a baseline, and what the numbers mean."""
    rounds = any(one.rounds is not None and one.rounds.mean is not None for one in found)
    rows = []
    for one in found:
        row = [Cell(one.label), Cell(str(one.final.seeds), one.final.seeds)]
        row += _cells(one.final, column)
        rows.append(row + _cells(one.rounds or Difference(0), "rounds") if rounds else row)
    head = [f"against {baseline}", "seeds", f"final {column}", "95 % interval"]
    head += ["rounds to the target", "95 % interval of rounds"] if rounds else []
    caption = f"Differences to {baseline}, seed by seed"
    return Table(head, rows, notes=_remarks(found, column), title="Differences", caption=caption)


def _cells(found: Difference, column: str) -> list[Cell]:
    """A difference and its interval, which counts if it has no zero in it."""
    mean = Cell(signed(found.mean, column), found.mean)
    if found.low is None or found.high is None:
        return [mean, Cell(f"none: {EQUAL}" if found.reason == EQUAL else NONE)]
    text = f"{signed(found.low, column)} to {signed(found.high, column)}"
    return [mean, Cell(text, kind="best" if found.low * found.high > 0 else "")]


def _remarks(found: Sequence[Against], column: str) -> list[str]:
    unit = " in percentage points" if column == "accuracy" else ""
    notes = [
        f"differences{unit}: means over the seeds that both methods have, paired, with the 95 % "
        "interval of Student's t distribution where there are several that vary"
    ]
    parts = [part for one in found for part in (one.final, one.rounds) if part is not None]
    if any(part.mean is None for part in parts):
        notes.append(
            f"{NONE}: no difference unless both methods have an end, or reach the target, in all "
            "of these seeds"
        )
    return notes
