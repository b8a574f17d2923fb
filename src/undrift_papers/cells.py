"""What a table is made of: printed values, each with ours beside it."""

from __future__ import annotations

import dataclasses
from typing import NamedTuple


class Cell(NamedTuple):
    """One value: as printed, as computed (empty: quoted only), and whether the two say the same."""

    printed: str
    ours: str = ""
    same: bool = True


def cell(printed: str, ours: str = "") -> Cell:
    """A cell of texts that are the same if they are equal."""
    return Cell(printed, ours, ours in ("", printed))


@dataclasses.dataclass(frozen=True)
class Row:
    """``why`` explains what differs, and is empty where nothing does."""

    names: tuple[str, ...]
    cells: tuple[Cell, ...]
    source: str
    why: str = ""

    @property
    def agrees(self) -> bool:
        return all(c.same for c in self.cells)


@dataclasses.dataclass(frozen=True)
class Table:
    """``names`` heads the columns that name a row, ``values`` those of its cells."""

    title: str
    names: tuple[str, ...]
    values: tuple[str, ...]
    rows: tuple[Row, ...]
    notes: tuple[str, ...]
