"""Words and numbers as they are printed. Imports little, so that ``list`` and ``show`` answer at once."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import zip_longest
from textwrap import wrap
from typing import Any

NONE = "-"
SHARES = ("accuracy", "top5", "train_accuracy")
"""Recorded as parts of one, shown in percent."""


def clean(text: str) -> str:
    r"""``text`` without what could command a terminal: unprintable characters are written as escapes.

    >>> print(clean("a\x1b[31mb"))
    a\x1b[31mb
    """
    return "".join(c if c.isprintable() or c == "\n" else c.encode("unicode_escape").decode() for c in text)


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
    """ "1 seed", "2 seeds"."""
    return f"{number} {thing}{'s' * (number != 1)}"


def table(
    head: Sequence[str], rows: Sequence[Sequence[Any]], right: Sequence[str] = (), width: int = 100, cut: bool = False
) -> str:
    """Aligned columns under a rule, at most ``width`` wide: the last one that is text goes on below, or is ``cut``.

    ``right`` names the columns that are numbers.
    """
    cells = [[clean(str(cell)).replace("\n", " ") for cell in row] for row in (head, *rows)]
    widths = [max(len(row[k]) for row in cells) for k in range(len(head))]
    texts = [k for k, name in enumerate(head) if name not in right]
    excess = sum(widths) + 2 * (len(head) - 1) - width
    if excess > 0 and texts:
        widths[texts[-1]] = max(widths[texts[-1]] - excess, len(head[texts[-1]]), 4)
    lines = [
        "  ".join(_fit(part[k], widths[k], name in right) for k, name in enumerate(head))
        for row in cells
        for part in ([row] if cut else zip_longest(*map(_parts, row, widths), fillvalue=""))
    ]
    rule = "  ".join("-" * w for w in widths)
    return "\n".join(line.rstrip() for line in (lines[0], rule, *lines[1:]))


def _parts(cell: str, width: int) -> list[str]:
    return [cell] if len(cell) <= width else wrap(cell, width)


def _fit(cell: str, width: int, right: bool) -> str:
    if len(cell) > width:
        cell = cell[: width - 3].rstrip() + "..."
    return cell.rjust(width) if right else cell.ljust(width)
