"""The paper's figure from our runs."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from undrift.plots.columns import LOGARITHMIC, SHARES, axis
from undrift.plots.curves import (
    GREY,
    Style,
    drawn,
    finish,
    grid,
    legend,
    line_styles,
    plain,
)
from undrift.records.folder import METRIC_SAMPLES, Row
from undrift_papers.reproduce.results import Report, Shown, furthest
from undrift_papers.reproduce.titles import fit_titles

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Line: TypeAlias = dict[int, tuple[float, float]]
"""Round -> a point."""
OPEN: Style = {"linestyle": "", "marker": "o", "markersize": 7, "markerfacecolor": "none"}
"""How numbers of the paper are marked."""
FAR = 5
"""Curves of which one is this many times as long as another get a logarithmic x axis."""


def figure(report: Report) -> Figure | None:
    """Panels in the paper's layout; ``None`` if nothing can be drawn."""
    shown = [s for s in report.shown if not s.empty]
    if report.item.kind == "heatmap":
        return heatmaps(report)
    if not shown:
        return None
    return sweep(report, shown) if report.item.kind == "sweep" else curves(report, shown)


def curves(report: Report, shown: Sequence[Shown]) -> Figure:
    """One plot per panel and column: the mean over seeds, in a band from the least to the most.

    Seeds that ended at chance are not in the mean but dotted; the paper's numbers are open marks.
    """
    item = report.item
    plots = [(x, s, y) for x in item.over for s in shown for y in item.draw]
    figure, axes = grid(len(plots), item.across)
    styles = line_styles(label for s in shown for label in s.runs)
    notes, printed = "; ".join(report.environments("note")), False
    for ax, (x, panel, y) in zip(axes, plots, strict=False):
        for label, kept in panel.runs.items():
            rounds, style = panel.rounds[label], {"label": plain(label)} | styles[label]
            lines = {run: _line(run.until(rounds), x, y, item.smooth) for run in kept}
            for run in panel.at_chance(label):
                untrained: Style = {"color": style["color"], "linestyle": ":", "linewidth": 1}
                ax.plot(*zip(*lines.pop(run).values(), strict=True), **untrained)
            reach = furthest([*lines], rounds)
            _mean(ax, [*lines.values()], [run.over(reach) for run in lines], style)
            along = {n: point[0] for line in lines.values() for n, point in line.items()}
            points = _printed(panel, label, y, None if x == "round" else along) if kept else []
            if points:
                ax.plot(*zip(*points, strict=True), **OPEN | {"color": style["color"]})
                printed = True
        if y in LOGARITHMIC:
            ax.set_yscale("log")
        ax.set_title(plain(panel.panel.title), fontsize=10)
        far = any(_far(s, x) for s in shown)
        if far:
            ax.set_xscale("log", nonpositive="mask")
        runs = (run for kept in panel.runs.values() for run in kept if run.rows)
        samples = next((run.folder.environment.get(METRIC_SAMPLES) for run in runs), None)
        finish(ax, axis(x), axis(y, item.smooth, notes, samples), zero=not far)
    if printed:  # on the last plot, so that it is the last in the legend
        axes[len(plots) - 1].plot([], [], label="the paper's", **OPEN | {"color": GREY})
    legend(figure, axes)
    fit_titles(figure, axes)
    return figure


def _printed(
    shown: Shown, label: str, y: str, along: Mapping[int, float] | None
) -> list[tuple[float, float]]:
    """The paper's numbers of one method on its curve; ``along`` has the place of every round."""
    found = []
    for column, cells in shown.columns:
        c = cells.get(label)
        if c is None or c.printed is None or not math.isfinite(c.printed) or column.of != y:
            continue
        at, value = column.at, c.printed
        if column.read == "final":
            at = shown.rounds[label]
        if column.read == "rounds" and column.to is not None:
            at, value = int(c.printed), column.to * (100 if y in SHARES else 1)
        if at is not None and column.read in ("at", "final", "rounds"):
            where = at if along is None else along.get(at)
            found += [(where, value)] if where is not None else []
    return found


def _line(rows: Sequence[Row], x: str, y: str, smooth: int) -> Line:
    values = drawn([row.get(y) for row in rows], y, smooth)
    return {row["round"]: (row[x], v) for row, v in zip(rows, values, strict=True)}


def _mean(ax: Axes, lines: Sequence[Line], longest: Sequence[bool], style: Style) -> None:
    """The mean of the longest seeds, and a band as far as there is more than one of all."""
    if not lines:
        return
    meant = [line for line, long in zip(lines, longest, strict=True) if long]
    common = sorted(set.intersection(*map(set, meant)))
    along, values = np.mean([[line[n] for n in common] for line in meant], axis=0).T
    ax.plot(along, values, **style)
    among = [[line[n][1] for line in lines if n in line] for n in common]
    shared = [k for k, found in enumerate(among) if len(found) > 1]
    if shared:
        band: Style = {"color": style["color"], "alpha": 0.15, "linewidth": 0}
        least, most = ([end(among[k]) for k in shared] for end in (np.min, np.max))
        ax.fill_between(along[shared], least, most, **band)


def _far(shown: Shown, x: str) -> bool:
    """Whether one curve is meant to be much longer than another."""
    whole = [(kept, shown.rounds[label]) for label, runs in shown.runs.items() for kept in runs]
    ends = [kept.until(rounds)[-1][x] for kept, rounds in whole if kept.last >= rounds]
    return bool(ends) and min(ends) * FAR < max(ends)


def sweep(report: Report, shown: Sequence[Shown]) -> Figure:
    """The first column of each panel over the panels; the paper's numbers dotted."""
    figure, (ax, *_) = grid(1, 1)
    styles = line_styles(label for s in shown for label in s.runs)
    places = [s.panel.at if s.panel.at is not None else k for k, s in enumerate(shown)]
    for label, style in styles.items():
        cells = [s.columns[0][1].get(label) for s in shown]
        lines = {
            label: ("-", [None if c is None else c.ours for c in cells]),
            f"{label}, paper": (":", [None if c is None else c.printed for c in cells]),
        }
        for name, (dash, found) in lines.items():
            values = [math.nan if value is None else value for value in found]
            if not all(map(math.isnan, values)):
                line = style | {"linestyle": dash, "markevery": 1}
                ax.plot(places, values, label=plain(name), **line)
    if shown[0].columns[0][0].read == "slope":
        ax.axhline(1, color=GREY, linewidth=0.8, linestyle=(0, (2, 2)))
        text: Style = {"textcoords": "offset points", "color": GREY, "fontsize": 9}
        ax.annotate("diverges above", (places[0], 1), (0, 3), **text)
    if min(places) > 0 and max(places) >= 20 * min(places):
        ax.set_xscale("log")
        ax.minorticks_off()
    ax.set_xticks(places, [f"{place:g}" for place in places])
    ax.set_title(plain(report.item.title), fontsize=10)
    finish(ax, report.item.axis or "panel", shown[0].columns[0][0].title, zero=False)
    legend(figure, [ax])
    fit_titles(figure, [ax])
    return figure


def heatmaps(report: Report) -> Figure | None:
    """Images of each class that a client holds, as a share of what it has."""
    shown = [s for s in report.shown if not s.absent]
    if not shown:
        return None
    figure, axes = grid(len(shown), report.item.across)
    for ax, panel in zip(axes, shown, strict=False):
        problem = panel.wants[0].spec.problem.build()
        labels = problem.label_counts()
        if labels is None:
            raise ValueError(f"{report.item.name}: {panel.panel.title} has no classes to draw")
        counts = labels.double()
        shares = (counts / counts.sum(1, keepdim=True)).numpy()
        picture = ax.imshow(shares.T, aspect="auto", cmap="magma", interpolation="nearest")
        ax.set_title(plain(panel.panel.title), fontsize=10)
        ax.set_xlabel("client")
        ax.set_ylabel("class")
        figure.colorbar(picture, ax=ax, label="share of the client's images")
    return figure
