"""Curves."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from undrift.report.summary import Curve, curves, metric

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

WORDS = {
    "round": "rounds",
    "vectors": "vectors sent and received per client",
    "gap": "f(x) − f*",
    "grad_norm": "‖∇f(x)‖",
    "distance": "‖x − x*‖",
    "loss": "f(x)",
    "bytes_up": "bytes uploaded",
    "gradients": "gradients, all clients",
    "iterations": "local iterations",
    "seconds": "seconds",
}
LOGARITHMIC = {"gap", "grad_norm", "distance", "drift"}
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#7F3C8D", "#8C6D31", "#000000")
"""Told apart by colour-blind readers too (Okabe and Ito, with three more)."""
MARKS = "osD^vPX<>"
BIASED, DASHES = "#888888", ((0, (4, 1.5)), (0, (1, 1)), (0, (6, 1, 1, 1)))


def curve(
    history: Mapping[str, np.ndarray], y: str, x: str = "round", label: str | None = None, ax: Axes | None = None
) -> Axes:
    """Draw column ``y`` against column ``x``; quantities that shrink to zero get a logarithmic axis."""
    if ax is None:
        import matplotlib.pyplot as plt

        _, ax = plt.subplots(figsize=(6, 4), layout="constrained")
    values = np.array(history[y], dtype=float)
    if y in LOGARITHMIC:
        values[values <= 0] = np.nan
        ax.set_yscale("log")
    ax.plot(history[x], values, label=label)
    ax.set_xlabel(WORDS.get(x, x))
    ax.set_ylabel(WORDS.get(y, y))
    ax.grid(True, alpha=0.3)
    if label:
        ax.legend(frameon=False, fontsize="small")
    return ax


def panels(runs: Mapping[str, Sequence[Mapping[str, Any]]], target: float | None = None) -> Figure:
    """Title -> recorded rows; one line of panels each: against rounds, and against vectors sent."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(10.5, 0.6 + 3.4 * len(runs)), layout="constrained")
    axes = figure.subplots(len(runs), 2, sharey="row", squeeze=False)
    labels = dict.fromkeys(row["label"] for rows in runs.values() for row in rows)
    styles = _styles(labels, {row["label"]: row.get("method") for rows in runs.values() for row in rows})
    for (left, right), (title, rows) in zip(axes, runs.items(), strict=True):
        column = metric(rows)
        for ax, x in ((left, "round"), (right, "vectors")):
            _draw(ax, curves(rows), x, column, styles, target)
        left.set_ylabel(WORDS[column])
        left.set_title(_plain(title), loc="left", fontsize=11, fontweight="bold")
    handles, names = axes[0][0].get_legend_handles_labels()
    figure.legend(handles, names, loc="outside right upper", frameon=False, fontsize=9.5, handlelength=1.8)
    return figure


def save(figure: Figure, path: Path) -> None:
    figure.savefig(path, dpi=150, facecolor="white")


def _draw(
    ax: Axes, runs: dict[str, dict[int, Curve]], x: str, y: str, styles: dict[str, dict[str, Any]], target: float | None
) -> None:
    for label, seeds in runs.items():
        for k, rows in enumerate(seeds.values()):
            at = [row[x] for row in rows]
            values = np.array([np.nan if row.get(y) is None else row[y] for row in rows], dtype=float)
            if y in LOGARITHMIC:
                values[values <= 0] = np.nan
            ax.plot(at, values, label="_" if k else _plain(label), alpha=1 / len(seeds) ** 0.5, **styles[label])
    if y in LOGARITHMIC:
        ax.set_yscale("log")
        if target is not None:
            ax.axhline(target, color="#bbbbbb", linewidth=0.8, linestyle=(0, (2, 2)), zorder=1)
    ax.set_xlabel(WORDS[x])
    ax.set_xlim(left=0)
    ax.spines[["top", "right"]].set_visible(False)
    ax.grid(True, axis="y", color="#eeeeee", linewidth=0.8)
    ax.set_axisbelow(True)


def _styles(labels: Iterable[str], methods: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """A colour and a mark per label, so that curves on top of each other are all seen; biased methods are grey."""
    from undrift.methods import registry

    styles: dict[str, dict[str, Any]] = {}
    greys, colours = count(), count()
    for label in labels:
        known = registry.get(methods.get(label) or "")
        if known is not None and not known.exact:
            dash = DASHES[next(greys) % len(DASHES)]
            styles[label] = {"color": BIASED, "linewidth": 2.2, "linestyle": dash, "zorder": 2}
        else:
            k = next(colours)
            mark = {"marker": MARKS[k % len(MARKS)], "markersize": 5, "markevery": (0.06 + 0.023 * (k % 6), 0.14)}
            styles[label] = {"color": COLOURS[k % len(COLOURS)], "linewidth": 1.5, "zorder": 3, **mark}
    return styles


def _plain(text: str) -> str:
    """Without mathematics: a dollar sign is a dollar sign."""
    return text.replace("$", r"\$")
