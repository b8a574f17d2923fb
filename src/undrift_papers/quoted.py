"""What a table is made of: printed values, each with ours beside it."""

from __future__ import annotations

import dataclasses
from typing import NamedTuple

from undrift.report.table import Table, prose


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

    @property
    def agrees(self) -> bool:
        return all(c.same for c in self.cells)


@dataclasses.dataclass(frozen=True)
class QuotedTable:
    """``names`` heads the columns that name a row, ``values`` those of its cells."""

    title: str
    names: tuple[str, ...]
    values: tuple[str, ...]
    rows: tuple[QuotedRow, ...]
    notes: tuple[str, ...]

    def markdown(self) -> str:
        """For a page."""
        values = [f"{value}, {whose}" for value in self.values for whose in ("printed", "ours")]
        head = [*self.names, *values, "ours from", "difference explained"]
        rows = [
            [*row.names, *(text for c in row.cells for text in c[:2]), row.source, row.why]
            for row in self.rows
        ]
        notes = [f"* {note}" for note in self.notes]
        return "\n".join([f"## {self.title}", "", Table(head, rows).markdown(), "", *notes, ""])

    def text(self) -> str:
        """For a terminal: two lines per row, printed and ours, and below what differs."""
        head, rows, notes = [*self.names, *self.values, "from"], list[list[str]](), list[str]()
        for row in self.rows:
            rows.append([*row.names, *(c.printed for c in row.cells), "printed"])
            if row.source:
                ours = [c.ours for c in row.cells]
                rows.append([*("" for _ in self.names), *ours, f"ours: {row.source}"])
            if row.why:
                notes.append(f"* {' '.join(row.names)} differs: {row.why}")
        notes += [f"* {note}" for note in self.notes]
        return f"{prose(self.title)}\n\n{Table(head, rows, head, notes).text()}\n"
