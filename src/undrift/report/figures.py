"""Curves of recorded runs, side by side."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from undrift.plots.columns import BOUND_OF, SHARES, WORDS, axis
from undrift.plots.curves import (
    NARROW,
    bounding,
    draw,
    finish,
    image,
    legend,
    line_styles,
    plain,
    save,
)
from undrift.records.differences import curves
from undrift.report.comparison import Comparison

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["image", "panels", "save"]


def panels(
    runs: Mapping[str, Comparison],
    y: str | None = None,
    x: str | None = None,
    width: float | None = None,
) -> Figure:
    """A pair of plots for each title and its runs: against rounds, and against vectors sent, or
    one against ``x``. With a ``width`` in inches it is that of a figure in print, where a narrow
    one has rounds alone.

    ``y`` is the column to draw, by default the one that a table judges by, which is also what
    targets are about.
    """
    from matplotlib import rc_context
    from matplotlib.figure import Figure

    with rc_context({"font.size": 8, "axes.titlesize": 9} if width else {}):
        both = not x and (width is None or width > NARROW)
        across = ["round", "vectors"] if both else [x or "round"]
        wide = width or 0.9 + 4.8 * len(across)
        tall = 0.7 * min(wide / len(across), 4.8)
        figure = Figure(figsize=(wide, 0.6 + tall * len(runs)), layout="constrained")
        axes = figure.subplots(len(runs), len(across), sharey="row", squeeze=False)
        labels = [label for one in runs.values() for label in one.labels]
        styles = line_styles(labels, {label for one in runs.values() for label in one.biased})
        for row, (title, one) in zip(axes, runs.items(), strict=True):
            column = y or one.column
            window = one.smooth if column in SHARES else 1
            bounds = one.bounds if column == "gap" else []
            styled = bounding(styles, {row["label"]: row[BOUND_OF] for row in bounds})
            for ax, x in zip(row, across, strict=True):
                draw(ax, curves([*one.rows, *bounds]), x, column, styled, window)
                if one.target is not None and column == one.column:
                    level = 100 * one.target if column in SHARES else one.target
                    ax.axhline(
                        level, color="#bbbbbb", linewidth=0.8, linestyle=(0, (2, 2)), zorder=1
                    )
                finish(ax, WORDS[x])
            row[0].set_ylabel(plain(axis(column, window, one.note, one.samples)))
            if len(across) > 1 or len(runs) > 1:  # a caption says it elsewhere
                row[0].set_title(plain(title), loc="left", fontweight="bold")
        legend(figure, axes[:, 0])
        return figure
