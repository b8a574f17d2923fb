"""Tables of the papers, printed values beside the same values computed from undrift's declarations
and theory.

Printed values are data, ours are computed: costs and states from the method classes, step sizes
from the rules of
``theory``, rates and complexities from its bounds. Where a cell of ours is empty, the printed one
is only quoted.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

from undrift.core.params import unknown
from undrift.papers.cells import Table
from undrift.papers.fedrecu_tables import fedrecu_memory, fedrecu_steps
from undrift.papers.fedred_table import fedred_complexities
from undrift.report.text import grid, prose

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
    body = [
        [*row.names, *(text for c in row.cells for text in c[:2]), row.source, row.why]
        for row in t.rows
    ]
    grid = ["| " + " | ".join(line) + " |" for line in (head, ["---"] * len(head), *body)]
    return "\n".join([f"## {t.title}", "", *grid, "", *(f"* {note}" for note in t.notes), ""])


def as_text(t: Table) -> str:
    """Two lines a row, as printed and ours, and what explains the difference."""
    blank, rows = ("",) * len(t.names), [(*t.names, *t.values, "")]
    for row in t.rows:
        rows.append((*row.names, *(c.printed for c in row.cells), "printed"))
        rows.append(
            (*blank, *(c.ours for c in row.cells), f"ours: {row.source}" if row.source else "")
        )
    (head, *lines), _ = grid(rows)
    body = [line for line in head if line]
    for row, printed, ours in zip(t.rows, lines[::2], lines[1::2], strict=True):
        body += [
            *printed,
            *[line for line in ours if line and row.source],
            *item("differs: ", row.why),
        ]
    return "\n".join(
        [
            prose(t.title),
            "",
            *body,
            "",
            *(line for note in t.notes for line in item("* ", note)),
            "",
        ]
    )


def item(lead: str, text: str) -> list[str]:
    """An indented paragraph, if there is anything to say."""
    return [prose(text, f"    {lead}", " " * (4 + len(lead)))] if text else []


def document() -> str:
    """docs/tables.md."""
    return "\n".join([INTRODUCTION, *map(render, items())])


INTRODUCTION = """# Tables of the papers

Printed values beside those computed from undrift's own declarations, step rules and bounds. An empty cell under "ours"
means that the printed value is only quoted. Generated; renew with

    python -c "from undrift.papers import document; print(document(), end='')" > docs/tables.md
"""
