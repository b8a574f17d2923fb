"""Tables of the papers, printed values beside the same values computed from undrift's declarations and theory.

Printed values are data, ours are computed: costs and states from the method classes, step sizes from the rules of
``theory``, rates and complexities from its bounds. Where a cell of ours is empty, the printed one is only quoted.
"""

from __future__ import annotations

import textwrap
from collections.abc import Callable
from typing import Literal

from undrift.core.params import unknown
from undrift.papers.cells import Table
from undrift.papers.fedrecu_tables import fedrecu_memory, fedrecu_steps
from undrift.papers.fedred_table import fedred_complexities

TABLES: dict[str, Callable[[], Table]] = {
    "fedrecu/table-1": fedrecu_memory,
    "fedrecu/table-2": fedrecu_steps,
    "fedred/table-1": fedred_complexities,
}


def items() -> list[str]:
    """What can be rendered."""
    return list(TABLES)


def table(item: str) -> Table:
    """The computed table ``item``."""
    if item not in TABLES:
        raise ValueError(unknown("table", item, TABLES))
    return TABLES[item]()


def render(item: str, style: Literal["markdown", "text"] = "markdown") -> str:
    """The table ``item`` for a page or for a terminal."""
    return (as_markdown if style == "markdown" else as_text)(table(item))


def as_markdown(t: Table) -> str:
    values = [f"{value}, {whose}" for value in t.values for whose in ("printed", "ours")]
    head = [*t.names, *values, "ours from", "difference explained"]
    body = [[*row.names, *(text for c in row.cells for text in c[:2]), row.source, row.why] for row in t.rows]
    grid = ["| " + " | ".join(line) + " |" for line in (head, ["---"] * len(head), *body)]
    return "\n".join([f"## {t.title}", "", *grid, "", *(f"* {note}" for note in t.notes), ""])


def as_text(t: Table) -> str:
    """Two lines a row, as printed and ours, and what explains the difference."""
    blank, lines = ("",) * len(t.names), [(*t.names, *t.values, "")]
    for row in t.rows:
        lines.append((*row.names, *(c.printed for c in row.cells), "printed"))
        lines.append((*blank, *(c.ours for c in row.cells), f"ours: {row.source}" if row.source else ""))
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    grid = ["  ".join(map(str.ljust, line, widths)).rstrip() for line in lines]
    body = [grid[0]]
    for k, row in enumerate(t.rows):
        body += [grid[2 * k + 1], *([grid[2 * k + 2]] if row.source else []), *wrap(row.why, "differs: ")]
    return "\n".join([t.title, "", *body, "", *(line for note in t.notes for line in wrap(note, "* ")), ""])


def wrap(text: str, lead: str) -> list[str]:
    return textwrap.wrap(text, 116, initial_indent=f"    {lead}", subsequent_indent=" " * (4 + len(lead)))


def document() -> str:
    """docs/tables.md."""
    return "\n".join([INTRODUCTION, *map(render, items())])


INTRODUCTION = """# Tables of the papers

Printed values beside those computed from undrift's own declarations, step rules and bounds. An empty cell under "ours"
means that the printed value is only quoted. Generated; renew with

    python -c "from undrift.papers import document; print(document(), end='')" > docs/tables.md
"""
