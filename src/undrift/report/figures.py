"""Curves."""

from __future__ import annotations

import io
from collections.abc import Iterable, Mapping, Sequence
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from undrift._files import writing
from undrift.report.summary import Curve, curves, metric
from undrift.report.text import SHARES

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

WORDS = {
    "round": "rounds",
    "vectors": "vectors sent and received per client",
    "vectors_up": "vectors sent per client",
    "gap": "f(x) − f*",
    "grad_norm": "‖∇f(x)‖",
    "distance": "‖x − x*‖",
    "loss": "f(x)",
    "accuracy": "accuracy, %",
    "top5": "accuracy among five, %",
    "train_loss": "training loss",
    "train_accuracy": "training accuracy, %",
    "drift": "mean squared distance of the local models",
    "bytes_up": "bytes uploaded",
    "gradients": "gradients, all clients",
    "iterations": "local iterations",
    "seconds": "seconds",
}
TESTED = {
    "loss": "test loss",
    "accuracy": "test accuracy, %",
    "top5": "test accuracy among five, %",
}
"""What these are in runs that are judged by their accuracy: they are networks', on test samples."""
LOGARITHMIC = {"gap", "grad_norm", "distance", "drift"}
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
"""Told apart by colour-blind readers too (Okabe and Ito, with three more)."""
MARKS = "osD^vPX<>"
BIASED, DASHES = "#888888", ((0, (4, 1.5)), (0, (1, 1)), (0, (6, 1, 1, 1)))


def curve(
    history: Mapping[str, np.ndarray],
    y: str,
    x: str = "round",
    label: str | None = None,
    ax: Axes | None = None,
    smooth: int = 1,
) -> Axes:
    """Draw column ``y`` against column ``x``; quantities that shrink to zero get a logarithmic
    axis.

    An accuracy is drawn as the mean of the last ``smooth`` rows.
    """
    across, up = history[x], drawn(history[y], y, smooth)
    if ax is None:
        import matplotlib.pyplot as plt

        _, ax = plt.subplots(figsize=(6, 4), layout="constrained")
    ax.plot(across, up, label=label)
    if y in LOGARITHMIC:
        ax.set_yscale("log")
    ax.set_xlabel(WORDS.get(x, x))
    ax.set_ylabel(axis(y, smooth, judged=metric([history])))
    ax.grid(True, alpha=0.3)
    if label:
        ax.legend(frameon=False, fontsize="small")
    return ax


def panels(
    runs: Mapping[str, Sequence[Mapping[str, Any]]],
    target: float | Mapping[str, float | None] | None = None,
    *,
    y: str | None = None,
    smooth: int = 1,
    note: str = "",
) -> Figure:
    """Title -> recorded rows; one line of panels each: against rounds, and against vectors sent.

    ``y`` is the column that is drawn, by default the one a table would judge by, and what
    ``target`` is about; titles
    may have a target each.
    """
    from matplotlib.figure import Figure

    figure = Figure(figsize=(10.5, 0.6 + 3.4 * len(runs)), layout="constrained")
    axes = figure.subplots(len(runs), 2, sharey="row", squeeze=False)
    labels = dict.fromkeys(row["label"] for rows in runs.values() for row in rows)
    aiming = [rows for rows in runs.values() if metric(rows) == "gap"]
    styles = _styles(labels, {row["label"]: row.get("method") for rows in aiming for row in rows})
    for (left, right), (title, rows) in zip(axes, runs.items(), strict=True):
        judged = metric(rows)
        column = y or judged
        aim = target.get(title) if isinstance(target, Mapping) else target
        for ax, x in ((left, "round"), (right, "vectors")):
            _draw(ax, curves(rows), x, column, styles, aim if column == judged else None, smooth)
        left.set_ylabel(_plain(axis(column, smooth, note, judged=judged)))
        left.set_title(_plain(title), loc="left", fontsize=11, fontweight="bold")
    shown = {
        name: line
        for left, _ in axes
        for line, name in zip(*left.get_legend_handles_labels(), strict=True)
    }
    figure.legend(
        shown.values(),
        shown.keys(),
        loc="outside right upper",
        frameon=False,
        fontsize=9.5,
        handlelength=1.8,
    )
    return figure


def axis(y: str, smooth: int = 1, note: str = "", *, judged: str = "") -> str:
    """What an axis shows, of runs that are judged by ``judged``."""
    words = WORDS | TESTED if judged == "accuracy" else WORDS
    if y not in SHARES:
        return words.get(y, y)
    details = [note] * bool(note) + [f"mean of the last {smooth} rows"] * (smooth > 1)
    return words[y] + f" ({'; '.join(details)})" * bool(details)


def drawn(values: Sequence[Any] | np.ndarray, y: str, smooth: int = 1) -> np.ndarray:
    """A column as it is drawn: gaps where there is nothing to draw, percent for shares.

    >>> drawn([0.5, 0.75, 1.0], "accuracy", smooth=2).tolist()
    [50.0, 62.5, 87.5]
    """
    found = np.array([np.nan if value is None else value for value in values], dtype=float)
    if y in LOGARITHMIC:
        found[found <= 0] = np.nan
    if y not in SHARES:
        return found
    return np.array([100 * found[max(k - smooth, 0) : k].mean() for k in range(1, len(found) + 1)])


def image(figure: Figure, kind: str = "png") -> bytes:
    """The figure as a file of that kind holds it."""
    content = io.BytesIO()
    figure.savefig(content, format=kind, dpi=150, facecolor="white")
    return content.getvalue()


def save(figure: Figure, path: Path) -> None:
    """Write the figure in one step."""
    content = image(figure, path.suffix[1:].lower())
    with writing(path) as file:
        file.write(content)


def _draw(
    ax: Axes,
    runs: dict[str, dict[int, Curve]],
    x: str,
    y: str,
    styles: dict[str, dict[str, Any]],
    target: float | None,
    smooth: int,
) -> None:
    for label, seeds in runs.items():
        lines = [(rows, drawn([row.get(y) for row in rows], y, smooth)) for rows in seeds.values()]
        lines = [
            (rows, values) for rows, values in lines if np.isfinite(values).any()
        ]  # others have no place for marks
        for k, (rows, values) in enumerate(lines):
            shade = 1 / len(seeds) ** 0.5
            ax.plot(
                [row[x] for row in rows],
                values,
                label="_" if k else _plain(label),
                alpha=shade,
                **styles[label],
            )
    if y in LOGARITHMIC:
        ax.set_yscale("log")
    if target is not None:
        level = 100 * target if y in SHARES else target
        ax.axhline(level, color="#bbbbbb", linewidth=0.8, linestyle=(0, (2, 2)), zorder=1)
    ax.set_xlabel(WORDS[x])
    ax.set_xlim(left=0)
    ax.spines[["top", "right"]].set_visible(False)
    ax.grid(True, axis="y", color="#eeeeee", linewidth=0.8)
    ax.set_axisbelow(True)


def _styles(labels: Iterable[str], methods: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """A colour and a mark per label, so that curves on top of each other are all seen.

    Biased methods are grey where ``methods`` tells them, which is where an optimum is to be
    reached.
    """
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
            mark = {
                "marker": MARKS[k % len(MARKS)],
                "markersize": 5,
                "markevery": (0.06 + 0.023 * (k % 6), 0.14),
            }
            styles[label] = {
                "color": COLOURS[k % len(COLOURS)],
                "linewidth": 1.5,
                "zorder": 3,
                **mark,
            }
    return styles


def _plain(text: str) -> str:
    """Without mathematics: a dollar sign is a dollar sign."""
    return text.replace("$", r"\$")
