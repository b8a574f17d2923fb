"""Curves of recorded runs, side by side."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

import undrift.methods  # noqa: F401, fills the registry
from undrift.core.method import registry
from undrift.core.problem import Samples
from undrift.core.stopping import of_some
from undrift.plots.columns import LOGARITHMIC, SHARES, WORDS, axis, metric
from undrift.plots.curves import drawn, image, mark, partial, save
from undrift.plots.style import Style, finish, legend, line_styles, plain
from undrift.records.differences import Curve, curves
from undrift.records.folder import Row
from undrift.report.content import Setting

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["image", "panels", "save"]
NO_SETTINGS: Mapping[str, Setting] = {}
NOT_SAID: Mapping[str, Samples | None] = {}


def panels(
    runs: Mapping[str, Sequence[Row]],
    target: float | Mapping[str, float | None] | None = None,
    *,
    y: str | None = None,
    smooth: int = 1,
    note: str = "",
    settings: Mapping[str, Setting] = NO_SETTINGS,
    samples: Mapping[str, Samples | None] = NOT_SAID,
) -> Figure:
    """A pair of plots for each title and its rows: against rounds, and against vectors sent.

    ``y`` is the column to draw, by default the one a table would judge by, which is also what
    ``target`` is about. Titles may have a target each. ``settings`` are by label;
    ``samples``, those that losses and accuracies are of, by title.
    """
    from matplotlib.figure import Figure

    figure = Figure(figsize=(10.5, 0.6 + 3.4 * len(runs)), layout="constrained")
    axes = figure.subplots(len(runs), 2, sharey="row", squeeze=False)
    labels, grey = (row["label"] for rows in runs.values() for row in rows), biased(runs, settings)
    styles = line_styles(labels, grey)
    for (left, right), (title, rows) in zip(axes, runs.items(), strict=True):
        judged = metric(rows)
        column = y or judged
        goal = target.get(title) if isinstance(target, Mapping) else target
        for ax, x in ((left, "round"), (right, "vectors")):
            _draw(ax, curves(rows), x, column, styles, smooth)
            if goal is not None and column == judged:
                level = 100 * goal if column in SHARES else goal
                ax.axhline(level, color="#bbbbbb", linewidth=0.8, linestyle=(0, (2, 2)), zorder=1)
            finish(ax, WORDS[x])
        left.set_ylabel(plain(axis(column, smooth, note, samples.get(title))))
        left.set_title(plain(title), loc="left", fontsize=11, fontweight="bold")
    legend(figure, axes[:, 0])
    return figure


def biased(
    runs: Mapping[str, Sequence[Row]], settings: Mapping[str, Setting] = NO_SETTINGS
) -> set[str]:
    """Labels of methods with a bias, their own or their setting's, in runs with an optimum to
    reach.
    """
    aiming = [row for rows in runs.values() if metric(rows) == "gap" for row in rows]
    known = {row["label"]: registry.get(row.get("method") or "") for row in aiming}
    of_setting = {label for label in known if label in settings and settings[label].biased}
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
