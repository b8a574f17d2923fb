"""Tables of the papers: printed values beside those computed from undrift's methods and theory.

Printed values are data, ours are computed: costs and states from the method classes, step sizes
from the rules of ``theory``, rates and complexities from its bounds. Where a cell of ours is empty,
the printed one is only quoted.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

from undrift.core.params import unknown
from undrift.report.text import grid, markdown, prose
from undrift_papers.cells import Table
from undrift_papers.fedrecu.tables import fedrecu_memory, fedrecu_steps
from undrift_papers.fedred.table import fedred_complexities

TABLES: dict[str, Callable[[], Table]] = {
    "fedrecu/table-1": fedrecu_memory,
    "fedrecu/table-2": fedrecu_steps,
    "fedred/table-1": fedred_complexities,
}


def items() -> list[str]:
    """The tables that can be rendered."""
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
    body = [
        [*row.names, *(text for c in row.cells for text in c[:2]), row.source, row.why]
        for row in t.rows
    ]
    notes = [f"* {note}" for note in t.notes]
    return "\n".join([f"## {t.title}", "", markdown(head, body), "", *notes, ""])


def as_text(t: Table) -> str:
    """Two lines per row, printed and ours, and what explains the difference."""
    rows = [(*t.names, *t.values, "")]
    for row in t.rows:
        source = f"ours: {row.source}" if row.source else ""
        rows.append((*row.names, *(c.printed for c in row.cells), "printed"))
        rows.append((*("" for _ in t.names), *(c.ours for c in row.cells), source))
    (head, *lines), _ = grid(rows)
    text = [prose(t.title), "", *filter(None, head)]
    for row, printed, ours in zip(t.rows, lines[::2], lines[1::2], strict=True):
        text += printed
        if row.source:
            text += filter(None, ours)
        if row.why:
            text.append(paragraph("differs: ", row.why))
    return "\n".join([*text, "", *(paragraph("* ", note) for note in t.notes), ""])


def paragraph(lead: str, text: str) -> str:
    """An indented paragraph that begins with ``lead``."""
    return prose(text, f"    {lead}", " " * (4 + len(lead)))


def document() -> str:
    """docs/tables.md."""
    return "\n".join([INTRODUCTION, *map(render, items())])


INTRODUCTION = """# Tables of the papers

Printed values beside those computed from undrift's own declarations, step rules and bounds. An
empty cell under "ours" means that the printed value is only quoted. Generated; renew with

    python -m undrift_papers.tables > docs/tables.md
"""

if __name__ == "__main__":
    print(document(), end="")
