"""Titles of plots that are no wider than these."""

from __future__ import annotations

import re
from collections.abc import Iterable
from itertools import count
from textwrap import wrap
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

BESIDE = 0.75
"""Inches that the labels of a vertical axis take up."""


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
