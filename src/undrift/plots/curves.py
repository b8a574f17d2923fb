"""Columns of numbers as curves, all in one style, and figures as files."""

from __future__ import annotations

import io
from collections.abc import Container, Iterable, Mapping, Sequence
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from undrift._files import write_whole
from undrift.core.stopping import of_some
from undrift.plots.columns import LOGARITHMIC, SHARES

if TYPE_CHECKING:
    from matplotlib.artist import Artist
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.lines import Line2D
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]

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
"""Distinct to colour-blind readers too (Okabe and Ito, with three more)."""
MARKS = "osD^vPX<>"
DASHES = ("-", "--", ":")
"""Lines after the ninth have a colour again, with another dash."""
GREY = "#888888"
GREY_DASHES = ((0, (4, 1.5)), (0, (1, 1)), (0, (6, 1, 1, 1)))
PALE = "#eeeeee"
NARROW = 5.5
"""Inches of a figure with less room than a legend beside it would leave."""
SOME = "measured on some clients only"
"""What a legend says of open circles."""

Style = dict[str, Any]
"""Keyword arguments of a matplotlib artist."""
DATES = {"pdf": "CreationDate", "svg": "Date"}
"""What would make two files of one figure differ."""


def draw(
    ax: Axes,
    runs: Mapping[str, Mapping[int, Sequence[Mapping[str, Any]]]],
    x: str,
    y: str,
    styles: Mapping[str, Style],
    smooth: int = 1,
) -> None:
    """Column ``y`` against column ``x``: one line per label, on a logarithmic axis if it shrinks to
    zero; of several seeds their mean, in a band of one standard deviation.
    """
    for label, seeds in runs.items():
        across, values, some = over_seeds([*seeds.values()], x, y, smooth)
        if values.count():  # marks have no place on an empty line
            mean, sd = values.mean(axis=0), values.std(axis=0, ddof=1)
            (line,) = ax.plot(across, mean.filled(np.nan), label=plain(label), **styles[label])
            if len(seeds) > 1:  # a logarithmic axis has no room for a band that falls to zero
                low = np.ma.maximum(mean - sd, values.min(axis=0) if y in LOGARITHMIC else -np.inf)
                ax.fill_between(
                    across, low, mean + sd, color=line.get_color(), alpha=0.15, linewidth=0
                )
            if some.any():
                mark(ax, line, some)
    if y in LOGARITHMIC:
        ax.set_yscale("log")


def over_seeds(
    seeds: Sequence[Sequence[Mapping[str, float]]], x: str, y: str, smooth: int = 1
) -> tuple[Floats, np.ma.MaskedArray[tuple[int, ...], np.dtype[np.float64]], NDArray[np.bool_]]:
    """Column ``x`` by round, as a mean; ``y`` by seed and round, masked where there is nothing to
    draw; the rounds in which some clients only were measured.

    >>> rows = [[{"round": 0, "loss": loss}] for loss in (1.0, 3.0, None)]
    >>> across, values, some = over_seeds(rows, "round", "loss")
    >>> across.tolist(), values.mean(axis=0).tolist(), some.tolist()
    ([0.0], [2.0], [False])
    """
    rounds = sorted({row["round"] for rows in seeds for row in rows})
    found = np.full((3, len(seeds), len(rounds)), np.nan)
    for k, rows in enumerate(seeds):
        found[:, k, np.searchsorted(rounds, [row["round"] for row in rows])] = (
            [row[x] for row in rows],
            drawn([row.get(y) for row in rows], y, smooth),
            drawn(map(of_some, rows), y, smooth),
        )
    return np.nanmean(found[0], axis=0), np.ma.masked_invalid(found[1]), (found[2] > 0).any(axis=0)


def drawn(values: Iterable[float | None], y: str, smooth: int = 1) -> Floats:
    """A column as it is drawn: NaN where there is nothing to draw, shares in percent.

    >>> drawn([0.5, 0.75, 1.0], "accuracy", smooth=2).tolist()
    [50.0, 62.5, 87.5]
    """
    found = np.array([np.nan if value is None else value for value in values], dtype=float)
    found[np.isinf(found)] = np.nan
    if y in LOGARITHMIC:
        found[found <= 0] = np.nan
    if y not in SHARES:
        return found
    return np.array([100 * found[max(k - smooth, 0) : k].mean() for k in range(1, len(found) + 1)])


def mark(ax: Axes, line: Line2D, some: NDArray[np.bool_]) -> None:
    """Open circles on the points of a line that are of some clients only; a legend says so once."""
    circle: Style = {"marker": "o", "linestyle": "none", "markerfacecolor": "white"}
    across, up = (np.asarray(values, dtype=float)[some] for values in line.get_data())
    ax.plot(across, up, label="_", markeredgecolor=line.get_color(), zorder=3, **circle)
    if SOME not in entries([ax]):
        ax.plot([], [], label=SOME, markeredgecolor=GREY, **circle)


def grid(plots: int, across: int) -> tuple[Figure, list[Axes]]:
    """A figure of so many plots, ``across`` of them side by side."""
    from matplotlib.figure import Figure

    columns = min(across, plots)
    rows = -(-plots // columns)
    figure = Figure(figsize=(0.8 + 4.0 * columns, 0.6 + 2.9 * rows), layout="constrained")
    axes = list(figure.subplots(rows, columns, squeeze=False).flat)
    for ax in axes[plots:]:
        ax.set_visible(False)
    return figure, axes[:plots]


def image(figure: Figure, kind: str = "png", dpi: int = 150) -> bytes:
    """The content of a file of that kind, the same for the same figure."""
    content = io.BytesIO()
    undated = {DATES[kind]: None} if kind in DATES else {}
    figure.savefig(content, format=kind, dpi=dpi, facecolor="white", metadata=undated)
    return content.getvalue()


def save(figure: Figure, path: Path) -> None:
    """Write the figure in one step; the suffix of ``path`` decides the format."""
    write_whole(path, image(figure, path.suffix[1:].lower()))


def line_styles(labels: Iterable[str], grey: Container[str] = ()) -> dict[str, Style]:
    """A colour and a mark per label, so that curves on top of each other are all visible.

    Labels in ``grey`` get dashed grey lines without marks.
    """
    styles: dict[str, Style] = {}
    coloured, greys = count(), count()
    for label in dict.fromkeys(labels):
        if label in grey:
            dash = GREY_DASHES[next(greys) % len(GREY_DASHES)]
            styles[label] = {"color": GREY, "linewidth": 2, "linestyle": dash, "zorder": 2}
            continue
        k = next(coloured)
        styles[label] = {
            "color": COLOURS[k % len(COLOURS)],
            "linewidth": 1.3,
            "linestyle": DASHES[k // len(COLOURS) % len(DASHES)],
            "marker": MARKS[k % len(MARKS)],
            "markersize": 4,
            "markevery": (0.05 + 0.021 * (k % 6), 0.17),
        }
    return styles


def bounding(styles: dict[str, Style], of: Mapping[str, str]) -> dict[str, Style]:
    """``styles``, and those of theorems' bounds: dashed, in the colours of what they bound."""
    dashed: Style = {"linestyle": "--", "marker": None, "linewidth": 1.0}
    return styles | {label: styles[bounded] | dashed for label, bounded in of.items()}


def finish(ax: Axes, x: str, y: str = "", zero: bool = True) -> None:
    """Titles of both axes, an open frame and a pale grid; with ``zero``, x starts there."""
    ax.set_xlabel(plain(x))
    ax.set_ylabel(plain(y))
    if zero:
        ax.set_xlim(left=0)
    ax.spines[["top", "right"]].set_visible(False)
    ax.grid(True, color=PALE, linewidth=0.8)
    ax.set_axisbelow(True)


def legend(figure: Figure, axes: Iterable[Axes]) -> None:
    """One legend for all ``axes``, beside them or, in a narrow figure, above; every label once."""
    found = entries(axes)
    narrow = figure.get_figwidth() < NARROW
    figure.legend(
        list(found.values()),
        list(found),
        loc="outside upper center" if narrow else "outside right upper",
        ncols=2 if narrow else 1,
        frameon=False,
        fontsize=7 if narrow else 9,
    )


def entries(axes: Iterable[Axes]) -> dict[str, Artist]:
    """Label -> how it is drawn, of all ``axes``; what is :data:`SOME` comes last."""
    found: dict[str, Artist] = {}
    for ax in axes:
        handles, labels = ax.get_legend_handles_labels()
        found.update(zip(labels, handles, strict=True))
    if SOME in found:
        found[SOME] = found.pop(SOME)
    return found


def plain(text: str) -> str:
    """``text`` with dollar signs escaped, which would start mathematics."""
    return text.replace("$", r"\$")
