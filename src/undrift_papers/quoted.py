"""What a table is made of: printed values, each with ours beside it."""

from __future__ import annotations

import dataclasses
from typing import NamedTuple

from undrift.report.table import Table


class Quoted(NamedTuple):
    """One value: as printed, as computed (empty: quoted only), and whether the two say the same."""

    printed: str
    ours: str = ""
    same: bool = True


def cell(printed: str, ours: str = "") -> Quoted:
    """A cell of texts that are the same if they are equal."""
    return Quoted(printed, ours, ours in ("", printed))


@dataclasses.dataclass(frozen=True)
class QuotedRow:
    """``why`` explains what differs, and is empty where nothing does."""

    names: tuple[str, ...]
    cells: tuple[Quoted, ...]
    source: str
    why: str = ""


@dataclasses.dataclass(frozen=True)
class QuotedTable:
    """``names`` heads the columns that name a row, ``values`` those of its cells."""

    title: str
    names: tuple[str, ...]
    values: tuple[str, ...]
    rows: tuple[QuotedRow, ...]
    notes: tuple[str, ...]

    @property
    def table(self) -> Table:
        values = [f"{value}, {whose}" for value in self.values for whose in ("printed", "ours")]
        head = [*self.names, *values, "ours from", "difference explained"]
        rows = [
            [*row.names, *(text for c in row.cells for text in c[:2]), row.source, row.why]
            for row in self.rows
        ]
        return Table(head, rows, head, [f"* {note}" for note in self.notes])

    def markdown(self) -> str:
        """For a page."""
        table = self.table
        return "\n".join([f"## {self.title}", "", table.markdown(), "", *table.notes, ""])
