"""The paper's figure from our runs."""

from __future__ import annotations

import io
import math
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import numpy as np

from undrift.report.figures import COLOURS, LOGARITHMIC, MARKS, axis, drawn
from undrift.report.summary import metric
from undrift.reproduce import rates
from undrift.reproduce.cache import Kept
from undrift.reproduce.results import Report, Shown

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

DASHES = ("-", "--", ":")
FAR = 5
"""Curves of which one goes on this many times as far as another are drawn over a logarithmic axis.
"""


def figure(report: Report) -> Figure | None:
    """Panels in the paper's layout; ``None`` where there is nothing to draw."""
    if report.study:
        return rates.figure(report.study["found"])
    if report.item.kind == "heatmap":
        return heatmaps(report)
    shown = [s for s in report.shown if not s.empty]
    if not shown:
        return None
    return sweep(report, shown) if report.item.kind == "sweep" else curves(report, shown)


def image(figure: Figure, kind: str) -> bytes:
    """A small file, the same for the same numbers."""
    content = io.BytesIO()
    dated = {"CreationDate": None} if kind == "pdf" else {}
    figure.savefig(content, format=kind, dpi=90, facecolor="white", metadata=dated)
    return content.getvalue()


def curves(report: Report, shown: list[Shown]) -> Figure:
    """One plot per panel and drawn column: the mean over seeds, and the band from the least to the
    most.
    """
    item = report.item
    plots = [(x, s, y) for x in item.over for s in shown for y in item.draw]
    figure, axes = grid(len(plots), item.across)
    styles = line_styles(label for s in shown for label in s.runs)
    notes = report.environments("note")
    for ax, (x, panel, y) in zip(axes, plots, strict=False):
        for label, kept in panel.runs.items():
            if kept:
                _curve(ax, kept, panel.rounds[label], x, y, item.smooth, label, styles[label])
        if y in LOGARITHMIC:
            ax.set_yscale("log")
        ax.set_title(_plain(panel.panel.title), fontsize=10)
        far = any(_far(s, x) for s in shown)
        if far:
            ax.set_xscale("log", nonpositive="mask")
        judged = metric(row for kept in panel.runs.values() for run in kept for row in run.until(0))
        finish(ax, axis(x), axis(y, item.smooth, "; ".join(notes), judged=judged), zero=not far)
    legend(figure, axes)
    return figure


def _far(shown: Shown, x: str) -> bool:
    """Whether one curve is meant to go on much farther than another."""
    whole = [(kept, shown.rounds[label]) for label, runs in shown.runs.items() for kept in runs]
    ends = [kept.until(rounds)[-1][x] for kept, rounds in whole if kept.last >= rounds]
    return bool(ends) and min(ends) * FAR < max(ends)


def sweep(report: Report, shown: list[Shown]) -> Figure:
    """The first column of each panel over the panels; the paper's numbers dashed."""
    figure, (ax, *_) = grid(1, 1)
    labels = list(dict.fromkeys(label for s in shown for label in s.runs))
    styles = line_styles(labels)
    places = [s.panel.at if s.panel.at is not None else k for k, s in enumerate(shown)]
    for label in labels:
        cells = [s.columns[0][1].get(label) for s in shown]
        for which, dash in (("ours", "-"), ("printed", ":")):
            values = [
                math.nan if c is None or (v := getattr(c, which)) is None else v for c in cells
            ]
            if not all(map(math.isnan, values)):
                name = label if which == "ours" else f"{label}, paper"
                ax.plot(
                    places,
                    values,
                    label=_plain(name),
                    **styles[label] | {"linestyle": dash, "markevery": 1},
                )
    if shown[0].columns[0][0].read == "slope":
        ax.axhline(1, color="#888888", linewidth=0.8, linestyle=(0, (2, 2)))
        ax.annotate(
            "diverges above",
            (places[0], 1),
            (0, 3),
            textcoords="offset points",
            color="#888888",
            fontsize=9,
        )
    if min(places) > 0 and max(places) >= 20 * min(places):
        ax.set_xscale("log")
        ax.minorticks_off()
    ax.set_xticks(places, [f"{place:g}" for place in places])
    ax.set_title(_plain(report.item.title), fontsize=10)
    finish(ax, report.item.axis or "panel", shown[0].columns[0][0].title, zero=False)
    legend(figure, [ax])
    return figure


def heatmaps(report: Report) -> Figure | None:
    """Images of each class that a client holds, as a share of what it has."""
    shown = [s for s in report.shown if not s.absent]
    if not shown:
        return None
    figure, axes = grid(len(shown), report.item.across)
    for ax, panel in zip(axes, shown, strict=False):
        problem = panel.wants[0].spec.problem.build()
        counts = problem.label_counts().double()
        shares = (counts / counts.sum(1, keepdim=True)).numpy()
        picture = ax.imshow(shares.T, aspect="auto", cmap="magma", interpolation="nearest")
        ax.set_title(_plain(panel.panel.title), fontsize=10)
        ax.set_xlabel("client")
        ax.set_ylabel("class")
        figure.colorbar(picture, ax=ax, label="share of the client's images")
    return figure


def grid(count: int, across: int) -> tuple[Figure, list[Axes]]:
    from matplotlib.figure import Figure

    columns = min(across, count)
    rows = -(-count // columns)
    figure = Figure(figsize=(0.8 + 4.0 * columns, 0.6 + 2.9 * rows), layout="constrained")
    axes = list(figure.subplots(rows, columns, squeeze=False).flat)
    for ax in axes[count:]:
        ax.set_visible(False)
    return figure, axes[:count]


def _curve(
    ax: Axes,
    seeds: list[Kept],
    rounds: int,
    x: str,
    y: str,
    smooth: int,
    label: str,
    style: dict[str, Any],
) -> None:
    curves = [kept.until(rounds) for kept in seeds]
    common = sorted(set.intersection(*({row["round"] for row in rows} for rows in curves)))
    values, places = [], []
    for rows in curves:
        rounds_ = [row["round"] for row in rows]
        line = dict(zip(rounds_, drawn([row.get(y) for row in rows], y, smooth), strict=True))
        place = dict(zip(rounds_, [row[x] for row in rows], strict=True))
        values.append([line[round] for round in common])
        places.append([place[round] for round in common])
    block, along = np.array(values), np.mean(places, axis=0)
    ax.plot(along, block.mean(0), label=_plain(label), **style)
    if len(seeds) > 1:
        ax.fill_between(
            along, block.min(0), block.max(0), color=style["color"], alpha=0.15, linewidth=0
        )


def line_styles(labels: Iterable[str]) -> dict[str, dict[str, Any]]:
    found = {}
    for k, label in enumerate(dict.fromkeys(labels)):
        mark = {
            "marker": MARKS[k % len(MARKS)],
            "markersize": 4,
            "markevery": (0.05 + 0.021 * (k % 6), 0.17),
        }
        dash = DASHES[k // len(COLOURS) % len(DASHES)]
        found[label] = {
            "color": COLOURS[k % len(COLOURS)],
            "linewidth": 1.3,
            "linestyle": dash,
            **mark,
        }
    return found


def finish(ax: Axes, x: str, y: str, zero: bool = True) -> None:
    ax.set_xlabel(_plain(x))
    ax.set_ylabel(_plain(y))
    if zero:
        ax.set_xlim(left=0)
    ax.spines[["top", "right"]].set_visible(False)
    ax.grid(True, color="#eeeeee", linewidth=0.8)
    ax.set_axisbelow(True)


def legend(figure: Figure, axes: list[Axes]) -> None:
    handles: dict[str, Any] = {}
    for ax in axes:
        handles.update(zip(*reversed(ax.get_legend_handles_labels()), strict=True))
    figure.legend(
        handles.values(), handles.keys(), loc="outside right upper", frameon=False, fontsize=9
    )


def _plain(text: str) -> str:
    return text.replace("$", r"\$")
