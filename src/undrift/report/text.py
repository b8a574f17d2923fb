"""Words, numbers and tables as they are printed. Imports little, so that ``list`` starts fast."""

from __future__ import annotations

import math
import os
import shutil
import sys
from collections.abc import Container, Iterable, Iterator, Sequence
from itertools import zip_longest
from textwrap import fill, wrap

NONE = "-"
NARROWEST = 40
"""The smallest width, in columns, that a layout is made for."""
PAGE = 100
"""Columns of a line of prose, however wide the terminal."""
READABLE = 24
"""Columns that a text needs to be read in a table."""
INDENT = "  "
"""Before columns that continue on the line below."""


def clean(text: str) -> str:
    r"""``text`` with unprintable characters, which could command a terminal, written as escapes.

    >>> print(clean("a\x1b[31mb"))
    a\x1b[31mb
    """
    return "".join(
        c if c.isprintable() or c == "\n" else c.encode("unicode_escape").decode() for c in text
    )


def names(labels: Iterable[str]) -> str:
    """Labels one after another; one with a comma is quoted.

    >>> print(names(["FedAvg", "FedAvg, calibrated"]))
    FedAvg, "FedAvg, calibrated"
    """
    return ", ".join(f'"{label}"' if "," in label else label for label in labels)


def small(value: float | None) -> str:
    """A quantity that goes to zero."""
    if value is None or math.isnan(value):
        return NONE
    return "0" if value <= 0 else f"{value:.1e}"


def plain(value: float | None, digits: int = 6) -> str:
    """Any number."""
    return NONE if value is None or math.isnan(value) else f"{value:.{digits}g}"


def whole(value: float | None) -> str:
    """A count, or the mean of some."""
    return NONE if value is None or not math.isfinite(value) else f"{value:,.0f}"


def percent(value: float | None) -> str:
    """A share."""
    return NONE if value is None or math.isnan(value) else f"{100 * value:.2f} %"


def duration(seconds: float) -> str:
    """How long something takes.

    >>> duration(0.5), duration(75), duration(7300)
    ('0.5 s', '1 min 15 s', '2 h 1 min')
    """
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, left = divmod(round(seconds), 60)
    return f"{minutes} min {left} s" if minutes < 60 else f"{minutes // 60:,} h {minutes % 60} min"


def size(number: float) -> str:
    """Bytes.

    >>> size(0), size(1500), size(44.7e6)
    ('0 B', '1.5 kB', '44.7 MB')
    """
    units = ["B", "kB", "MB", "GB", "TB"]
    while number >= 999.95 and len(units) > 1:
        number /= 1000
        units.pop(0)
    return f"{number:.0f} {units[0]}" if units[0] == "B" else f"{number:.1f} {units[0]}"


def count(number: int, thing: str) -> str:
    """A number of things.

    >>> count(1, "seed"), count(2, "seed")
    ('1 seed', '2 seeds')
    """
    return f"{number} {thing}" if number == 1 else f"{number} {thing}s"


def columns() -> float:
    """The width of a line: COLUMNS if it is set, else the terminal's; without one, no limit.

    So a row in a pipe or a file is one line, whatever its length.
    """
    known = "COLUMNS" in os.environ or sys.stdout.isatty()
    found = shutil.get_terminal_size((0, 0)).columns if known else 0
    return max(found, NARROWEST) if found else math.inf


def prose(text: str, before: str = "", below: str = "") -> str:
    """``text`` wrapped to the terminal, and to a width that is easy to read.

    ``before`` precedes each line, ``below`` its continuation lines.
    """
    width = int(min(columns(), PAGE))
    lines = text.split("\n")
    return "\n".join(
        fill(t, width, initial_indent=before, subsequent_indent=below, break_on_hyphens=False)
        for t in lines
    )


def table(
    head: Sequence[str],
    rows: Sequence[Sequence[object]],
    right: Sequence[str] = (),
    width: float | None = None,
    cut: bool = False,
) -> str:
    """Aligned columns under a rule; ``right`` names those that are numbers. See :func:`grid`."""
    numbers = {k for k, name in enumerate(head) if name in right}
    (first, *others), rule = grid([head, *rows], numbers, width, cut)
    return "\n".join([*first, rule, *(line for lines in others for line in lines)])


def markdown(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table in Markdown.

    >>> print(markdown(["a", "b"], [["1", "x|y"]]))
    | a | b |
    | --- | --- |
    | 1 | x\\|y |
    """
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(
        "| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines
    )


def grid(
    rows: Sequence[Sequence[object]],
    right: Container[int] = (),
    width: float | None = None,
    cut: bool = False,
) -> tuple[list[list[str]], str]:
    """The lines of each row, in aligned columns at most ``width`` wide in all, and a rule.

    By default ``width`` is the terminal's. The last column of text is wrapped, or ``cut``, as long
    as that leaves it readable; columns that still do not fit continue on an indented line below.
    ``right`` has the columns that are numbers.
    """
    limit = columns() if width is None else width
    cells = [[clean(str(cell)).replace("\n", " ") for cell in row] for row in rows]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    if not math.isinf(limit):
        widths = _narrowed(widths, [k for k in range(len(widths)) if k not in right], int(limit))
    bands = _bands(widths, limit)

    def lines(row: Sequence[str]) -> Iterator[str]:
        for band in bands:
            parts = [[row[k]] if cut else _parts(row[k], widths[k]) for k in band]
            for line in zip_longest(*parts, fillvalue=""):
                fitted = (
                    _fit(part, widths[k], k in right) for part, k in zip(line, band, strict=True)
                )
                text = "  ".join(fitted).rstrip()
                yield INDENT + text if band[0] and text else text

    return [list(lines(row)) for row in cells], "  ".join("-" * widths[k] for k in bands[0])


def _narrowed(widths: Sequence[int], texts: Sequence[int], limit: int) -> list[int]:
    """Texts no wider than a line, the last one narrower still if that leaves it readable."""
    found = [min(w, limit - len(INDENT)) if k in texts else w for k, w in enumerate(widths)]
    if texts:
        last = texts[-1]
        room = limit - (sum(found) - found[last]) - 2 * (len(found) - 1)
        if READABLE <= room < found[last]:
            found[last] = room
    return found


def _bands(widths: Sequence[int], limit: float) -> list[list[int]]:
    """Columns that stand side by side."""
    bands, used = [[0]], widths[0]
    for k, width in enumerate(widths[1:], start=1):
        used += 2 + width
        if used > limit:
            bands.append([])
            used = len(INDENT) + width
        bands[-1].append(k)
    return bands


def _parts(cell: str, width: int) -> list[str]:
    return [cell] if len(cell) <= width else wrap(cell, width)


def _fit(cell: str, width: int, right: bool) -> str:
    if len(cell) > width:
        cell = cell[: width - 3].rstrip() + "..."
    return cell.rjust(width) if right else cell.ljust(width)
