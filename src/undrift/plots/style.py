"""One look for every figure: colours, marks, axes and legends."""

from __future__ import annotations

import re
from collections.abc import Container, Iterable
from itertools import count
from textwrap import wrap
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from matplotlib.artist import Artist
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

COLOURS = (
    "#0072B2",
    "#D55E00",
    "#009E73",
    "#CC79A7",
    "#E69F00",
    "#56B4E9",
    "#7F3C8D",
    "#8C6D31",
    "#000000",
)
"""Distinct to colour-blind readers too (Okabe and Ito, with three more)."""
MARKS = "osD^vPX<>"
DASHES = ("-", "--", ":")
"""Lines after the ninth have a colour again, with another dash."""
BESIDE = 0.75
"""Inches that the labels of a vertical axis take up."""
GREY = "#888888"
GREY_DASHES = ((0, (4, 1.5)), (0, (1, 1)), (0, (6, 1, 1, 1)))
PALE = "#eeeeee"
SOME = "measured on some clients only"
"""What a legend says of open circles."""

Style = dict[str, Any]
"""Keyword arguments of a matplotlib artist."""


def line_styles(labels: Iterable[str], grey: Container[str] = ()) -> dict[str, Style]:
    """A colour and a mark per label, so that curves on top of each other are all visible.

    Labels in ``grey`` get dashed grey lines without marks.
    """
    styles: dict[str, Style] = {}
    coloured, greys = count(), count()
    for label in dict.fromkeys(labels):
        if label in grey:
            dash = GREY_DASHES[next(greys) % len(GREY_DASHES)]
            styles[label] = {"color": GREY, "linewidth": 2, "linestyle": dash, "zorder": 2}
            continue
        k = next(coloured)
        styles[label] = {
            "color": COLOURS[k % len(COLOURS)],
            "linewidth": 1.3,
            "linestyle": DASHES[k // len(COLOURS) % len(DASHES)],
            "marker": MARKS[k % len(MARKS)],
            "markersize": 4,
            "markevery": (0.05 + 0.021 * (k % 6), 0.17),
        }
    return styles


def finish(ax: Axes, x: str, y: str = "", zero: bool = True) -> None:
    """Titles of both axes, an open frame and a pale grid; with ``zero``, x starts there."""
    ax.set_xlabel(plain(x))
    ax.set_ylabel(plain(y))
    if zero:
        ax.set_xlim(left=0)
    ax.spines[["top", "right"]].set_visible(False)
    ax.grid(True, color=PALE, linewidth=0.8)
    ax.set_axisbelow(True)


def legend(figure: Figure, axes: Iterable[Axes]) -> None:
    """One legend for all ``axes``, beside them; every label once."""
    found = entries(axes)
    figure.legend(
        list(found.values()), list(found), loc="outside right upper", frameon=False, fontsize=9
    )


def entries(axes: Iterable[Axes]) -> dict[str, Artist]:
    """Label -> how it is drawn, of all ``axes``; what is :data:`SOME` comes last."""
    found: dict[str, Artist] = {}
    for ax in axes:
        handles, labels = ax.get_legend_handles_labels()
        found.update(zip(labels, handles, strict=True))
    if SOME in found:
        found[SOME] = found.pop(SOME)
    return found


def fit_titles(figure: Figure, axes: Iterable[Axes]) -> None:
    """Break every title that is wider than its plot into lines of about the same length.

    To be called after :func:`legend`, which leaves the plots less room.
    """
    beside = sum(legend.get_window_extent().width for legend in figure.legends)
    for ax in axes:
        spec = ax.get_subplotspec()
        columns = spec.get_gridspec().ncols if spec else 1
        room = (figure.bbox.width - beside) / columns - BESIDE * figure.dpi
        text, wide = ax.title.get_text(), ax.title.get_window_extent().width
        if wide > room:
            ax.title.set_text("\n".join(_lines(text, int(len(text) * room / wide))))


def _lines(text: str, most: int) -> list[str]:
    """As few lines of up to ``most`` characters as there can be, alike in length; ended by commas
    where that is possible.
    """
    few, solid = len(wrap(text, most)), "\N{NO-BREAK SPACE}"
    found: list[str] = []
    for words in (re.sub("(?<!,) ", solid, text), text):
        lines = (
            wrap(words, width, break_long_words=False, break_on_hyphens=False) for width in count(1)
        )
        found = next(some for some in lines if len(some) <= few)
        if max(map(len, found)) <= most:
            break
    return [line.replace(solid, " ") for line in found]


def plain(text: str) -> str:
    """``text`` with dollar signs escaped, which would start mathematics."""
    return text.replace("$", r"\$")
