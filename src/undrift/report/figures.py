"""Curves of recorded runs, side by side."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from undrift.plots.columns import BOUND_OF, SHARES, WORDS, axis
from undrift.plots.curves import bounding, draw, finish, image, legend, line_styles, plain, save
from undrift.records.differences import curves
from undrift.report.comparison import Comparison

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["image", "panels", "save"]


def panels(
    runs: Mapping[str, Comparison], y: str | None = None, smooth: int | None = None
) -> Figure:
    """A pair of plots for each title and its runs: against rounds, and against vectors sent.

    ``y`` is the column to draw, by default the one that a table judges by, which is also what
    targets are about.
    """
    from matplotlib.figure import Figure

    figure = Figure(figsize=(10.5, 0.6 + 3.4 * len(runs)), layout="constrained")
    axes = figure.subplots(len(runs), 2, sharey="row", squeeze=False)
    labels = [label for one in runs.values() for label in one.labels]
    styles = line_styles(labels, {label for one in runs.values() for label in one.biased})
    for (left, right), (title, one) in zip(axes, runs.items(), strict=True):
        column = y or one.column
        window = (smooth or one.smooth) if column in SHARES else 1
        bounds = one.bounds if column == "gap" else []
        styled = bounding(styles, {row["label"]: row[BOUND_OF] for row in bounds})
        for ax, x in ((left, "round"), (right, "vectors")):
            draw(ax, curves([*one.rows, *bounds]), x, column, styled, window)
            if one.target is not None and column == one.column:
                level = 100 * one.target if column in SHARES else one.target
                ax.axhline(level, color="#bbbbbb", linewidth=0.8, linestyle=(0, (2, 2)), zorder=1)
            finish(ax, WORDS[x])
        left.set_ylabel(plain(axis(column, window, one.note, one.samples)))
        left.set_title(plain(title), loc="left", fontsize=11, fontweight="bold")
    legend(figure, axes[:, 0])
    return figure
