"""Curves of recorded runs, side by side."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

import undrift.methods  # noqa: F401, fills the registry
from undrift.core.method import registry
from undrift.core.stopping import of_some
from undrift.plots.columns import LOGARITHMIC, SHARES, WORDS, axis
from undrift.plots.curves import drawn, image, mark, partial, save
from undrift.plots.style import Style, finish, legend, line_styles, plain
from undrift.records.differences import Curve, curves
from undrift.report.comparison import Comparison
from undrift.report.tables import MethodSetting

if TYPE_CHECKING:
    from matplotlib.axes import Axes
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
            _draw(ax, curves(one.rows), x, column, styles, window)
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


def _draw(
    ax: Axes,
    runs: Mapping[str, Mapping[int, Curve]],
    x: str,
    y: str,
    styles: Mapping[str, Style],
    smooth: int,
) -> None:
    """One line per label and seed, paler the more seeds share a label."""
    for label, seeds in runs.items():
        name = plain(label)
        for rows in seeds.values():
            values = drawn([row.get(y) for row in rows], y, smooth)
            if np.isfinite(values).any():  # marks have no place on an empty line
                shade = 1 / len(seeds) ** 0.5
                across = [row[x] for row in rows]
                (line,) = ax.plot(across, values, label=name, alpha=shade, **styles[label])
                mark(ax, line, partial(map(of_some, rows), y, smooth))
                name = "_"
    if y in LOGARITHMIC:
        ax.set_yscale("log")
