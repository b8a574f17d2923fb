"""Tables, and how they are printed: as text for terminals and pipes, in Markdown, in LaTeX, and in
HTML for reports and notebooks. Imports little, so that ``list`` starts fast.
"""

from __future__ import annotations

import dataclasses
import math
import os
import re
import shutil
import sys
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from itertools import zip_longest
from textwrap import fill, wrap
from typing import Literal

NARROWEST = 40
"""The smallest width, in columns, that a layout is made for."""
PAGE = 100
"""Columns of a line of prose, however wide the terminal."""
READABLE = 24
"""Columns that a text needs to be read in a table."""
INDENT = "  "
"""Before columns that continue on the line below."""
Best = Callable[[Iterable[float]], float]
"""``min`` or ``max``."""
Form = Literal["text", "markdown", "latex", "html"]
"""How a table is printed."""
IN_TEX = str.maketrans(
    {
        "\\": r"\textbackslash{}",
        **{sign: f"\\{sign}" for sign in "&%$#_{}"},
        "~": r"\textasciitilde{}",
        "^": r"\textasciicircum{}",
        "<": "$<$",
        ">": "$>$",
        "|": r"\textbar{}",
        "±": r"$\pm$",
        "−": "$-$",
        "≤": r"$\le$",
        "≥": r"$\ge$",
    }
)
"""Characters that LaTeX takes for commands, or does not have in every font."""
POWERS = re.compile(r"(?<![\w.])(-?\d(?:\.\d+)?)e(?:\+|(-))0*(\d+)(?!\w)")
NEGATIVE = re.compile(r"(?<![\w.${-])(-\d[\d.,]*)(?!\w)")


@dataclasses.dataclass(frozen=True)
class Cell:
    """What is shown, and the ``value`` that a number is sorted by; ``kind`` is ``best``, or that of
    an outcome.
    """

    text: str
    value: float | None = None
    kind: str = ""

    def __str__(self) -> str:
        return self.text


@dataclasses.dataclass(frozen=True)
class Table:
    """Columns of numbers, after a first one of text; ``words`` names others of text.

    Cells that are not of :class:`Cell` are shown by ``str``.
    """

    head: Sequence[str]
    rows: Sequence[Sequence[object]]
    words: Collection[str] = ()
    notes: Sequence[str] = ()
    """What the columns mean, a sentence each."""
    title: str = ""
    caption: str = ""

    @property
    def cells(self) -> list[list[Cell]]:
        return [[c if isinstance(c, Cell) else Cell(str(c)) for c in row] for row in self.rows]

    def column(self, name: str) -> list[Cell]:
        """The cells under one of the heads."""
        return [row[list(self.head).index(name)] for row in self.cells]

    def text(self, width: float | None = None) -> str:
        """Aligned columns under a rule, at most ``width`` wide in all, and the notes below.

        By default ``width`` is the terminal's. The last column of text is wrapped as long as that
        leaves it readable; columns that still do not fit continue on an indented line below.
        """
        limit = terminal_width() if width is None else width
        texts = [
            [clean(str(cell)).replace("\n", " ") for cell in row] for row in (self.head, *self.rows)
        ]
        widths = [max(map(len, column)) for column in zip(*texts, strict=True)]
        left = [k for k, there in enumerate(self._left()) if there]
        if not math.isinf(limit):
            widths = _narrowed(widths, left, limit)
        bands = _bands(widths, limit)
        lines = [*_lines(texts[0], widths, bands, left)]
        lines.append("  ".join(["-" * widths[k] for k in bands[0]]))
        for cells in texts[1:]:
            lines += _lines(cells, widths, bands, left)
        return "\n".join([*lines, "", *map(prose, self.notes)] if self.notes else lines)

    def markdown(self) -> str:
        """For a page; without the notes.

        >>> print(Table(["a", "b"], [["1", "x|y"]]).markdown())
        | a | b |
        | --- | --- |
        | 1 | x\\|y |
        """
        texts = ([str(cell).replace("|", "\\|") for cell in row] for row in self.rows)
        lines = [self.head, ["---"] * len(self.head), *texts]
        return "\n".join(f"| {' | '.join(line)} |" for line in lines)

    def latex(self) -> str:
        r"""For a paper, with the package booktabs: the best are bold, and the notes are comments.

        >>> print(Table(["a", "b"], [["x_1", Cell("2.5e-07", kind="best")]]).latex())
        % \usepackage{booktabs}
        \begin{tabular}{lr}
        \toprule
        a & b \\
        \midrule
        x\_1 & \textbf{\boldmath $2.5 \times 10^{-7}$} \\
        \bottomrule
        \end{tabular}
        """
        sides = "".join("l" if left else "r" for left in self._left())
        bold = r"\textbf{\boldmath %s}"
        rows = [
            [bold % in_tex(c.text) if c.kind == "best" else in_tex(c.text) for c in row]
            for row in self.cells
        ]
        head, *lines = (" & ".join(row) + r" \\" for row in [[*map(in_tex, self.head)], *rows])
        begin = [r"% \usepackage{booktabs}", rf"\begin{{tabular}}{{{sides}}}", r"\toprule", head]
        notes = [f"% {clean(line)}" for note in self.notes for line in note.split("\n")]
        end = [r"\bottomrule", r"\end{tabular}", *notes]
        return "\n".join([*begin, r"\midrule", *lines, *end])

    def html(self) -> str:
        """For a notebook, as a report has it."""
        from jinja2 import Environment, PackageLoader

        there = PackageLoader("undrift.report", "assets")
        made = Environment(loader=there, autoescape=True, trim_blocks=True, lstrip_blocks=True)
        return made.get_template("table.html").module.sheet(self)  # type: ignore[attr-defined, no-any-return]

    def shown(self, form: Form = "text") -> str:
        """In one of its forms; a text is as wide as it has to be."""
        forms = {"markdown": self.markdown, "latex": self.latex, "html": self.html}
        return forms[form]() if form in forms else self.text(math.inf)

    def _left(self) -> list[bool]:
        """Which columns are of text."""
        return [not k or name in self.words for k, name in enumerate(self.head)]


def mark_best(rows: list[list[Cell]], columns: Iterable[int], best: Best) -> None:
    """Mark the best of each of the columns, unless all values are alike."""
    for k in columns:
        values = {value for row in rows if (value := row[k].value) is not None}
        if len(values) > 1:
            top = best(values)
            for row in rows:
                if row[k].value == top:
                    row[k] = dataclasses.replace(row[k], kind="best")


def in_tex(text: str) -> str:
    """``text`` as LaTeX has it, with minus signs and powers of ten.

    >>> print(in_tex("a_b -1.5e-07 (2) -3 e-2"))
    a\\_b $-1.5 \\times 10^{-7}$ (2) $-3$ e-2
    """
    plain = clean(text).replace("\n", " ").translate(IN_TEX)
    return NEGATIVE.sub(r"$\1$", POWERS.sub(r"$\1 \\times 10^{\2\3}$", plain))


def clean(text: str) -> str:
    r"""``text`` with unprintable characters, which could command a terminal, written as escapes.

    >>> print(clean("a\x1b[31mb"))
    a\x1b[31mb
    """
    for character in {*text} - {"\n"}:
        if not character.isprintable():
            text = text.replace(character, character.encode("unicode_escape").decode())
    return text


def terminal_width() -> float:
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
    width = int(min(terminal_width(), PAGE))
    return "\n".join(
        fill(line, width, initial_indent=before, subsequent_indent=below, break_on_hyphens=False)
        for line in text.split("\n")
    )


def _lines(
    row: Sequence[str],
    widths: Sequence[int],
    bands: Iterable[Sequence[int]],
    left: Collection[int],
) -> Iterator[str]:
    """The lines of one row: a text that is wider than its column has several."""
    for band in bands:
        parts = [wrap(row[k], widths[k]) if len(row[k]) > widths[k] else [row[k]] for k in band]
        for line in zip_longest(*parts, fillvalue=""):
            cells = [
                part.ljust(widths[k]) if k in left else part.rjust(widths[k])
                for part, k in zip(line, band, strict=True)
            ]
            text = "  ".join(cells).rstrip()
            yield INDENT + text if band[0] and text else text


def _narrowed(widths: Sequence[int], texts: Sequence[int], limit: float) -> list[int]:
    """Texts no wider than a line, the last one narrower still if that leaves it readable."""
    most, last = int(limit), texts[-1]
    found = [min(w, most - len(INDENT)) if k in texts else w for k, w in enumerate(widths)]
    room = most - (sum(found) - found[last]) - 2 * (len(found) - 1)
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
