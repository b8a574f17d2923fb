"""Curves of recorded runs, side by side."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import undrift.methods  # noqa: F401, fills the registry
from undrift.core.method import registry
from undrift.plots.columns import SHARES, WORDS, axis
from undrift.plots.curves import draw, finish, image, legend, line_styles, plain, save
from undrift.records.differences import curves
from undrift.report.comparison import Comparison
from undrift.report.tables import MethodSetting

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["image", "panels", "save"]
UNKNOWN = MethodSetting()


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
    grey = {label for one in runs.values() for label in biased(one)}
    styles = line_styles((label for one in runs.values() for label in one.labels), grey)
    for (left, right), (title, one) in zip(axes, runs.items(), strict=True):
        column, window = y or one.column, smooth or one.smooth
        for ax, x in ((left, "round"), (right, "vectors")):
            draw(ax, curves(one.rows), x, column, styles, window)
            if one.target is not None and column == one.column:
                level = 100 * one.target if column in SHARES else one.target
                ax.axhline(level, color="#bbbbbb", linewidth=0.8, linestyle=(0, (2, 2)), zorder=1)
            finish(ax, WORDS[x])
        left.set_ylabel(plain(axis(column, window, one.note, one.samples)))
        left.set_title(plain(title), loc="left", fontsize=11, fontweight="bold")
    legend(figure, axes[:, 0])
    return figure


def biased(runs: Comparison) -> set[str]:
    """Labels of methods with a bias, their own or their setting's, where there is an optimum to
    reach.
    """
    if runs.column != "gap":
        return set()
    known = {row["label"]: registry.get(row.get("method") or "") for row in runs.rows}
    of_setting = {label for label in known if runs.settings.get(label, UNKNOWN).biased}
    return of_setting | {label for label, method in known.items() if method and not method.exact}
