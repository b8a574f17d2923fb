"""Columns of numbers as curves, and figures as files."""

from __future__ import annotations

import io
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from undrift._files import write_whole
from undrift.core.problem import Samples
from undrift.core.stopping import MEASURED
from undrift.plots.columns import LOGARITHMIC, SHARES, axis
from undrift.plots.style import GREY, SOME, Style, entries, finish

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.lines import Line2D
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]

DATES = {"pdf": "CreationDate", "svg": "Date"}
"""What would make two files of one figure differ."""


def curve(
    history: Mapping[str, Floats],
    y: str,
    x: str = "round",
    label: str | None = None,
    ax: Axes | None = None,
    smooth: int = 1,
    samples: Samples | None = None,
    style: Style | None = None,
) -> Axes:
    """Draw column ``y`` against column ``x``, on a logarithmic axis if it shrinks to zero.

    An accuracy is drawn as the mean of the last ``smooth`` rows. ``samples`` are those that loss
    and accuracy were measured on, where that is known.
    """
    from matplotlib.ticker import MaxNLocator

    across, up = history[x], drawn(history[y], y, smooth)
    measured = drawn(history.get(MEASURED, ()), MEASURED)
    some = partial(np.isfinite(measured), y, smooth)
    if ax is None:
        import matplotlib.pyplot as plt

        _, ax = plt.subplots(figsize=(6, 4), layout="constrained")
    (line,) = ax.plot(across, up, label=label, **(style or {}))
    mark(ax, line, some)
    ticks = ax.xaxis.get_major_locator()
    if x == "round" and isinstance(ticks, MaxNLocator):
        ticks.set_params(integer=True)
    if y in LOGARITHMIC:
        ax.set_yscale("log")
    finish(ax, axis(x), axis(y, smooth, samples=samples), zero=False)
    if label or any(some):
        found = entries([ax])
        ax.legend([*found.values()], [*found], frameon=False, fontsize="small")
    return ax


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


def partial(of_some: Iterable[bool], y: str, smooth: int = 1) -> list[bool]:
    """Which points of a column are, as drawn, from a row that was measured on some clients only.

    >>> partial([False, True, False, False], "accuracy", smooth=2)
    [False, True, True, False]
    """
    rows, window = list(of_some), smooth if y in SHARES else 1
    return [any(rows[max(k - window, 0) : k]) for k in range(1, len(rows) + 1)]


def mark(ax: Axes, line: Line2D, some: Sequence[bool]) -> None:
    """Open circles on the points of a line that are of some clients only; a legend says so once."""
    if not any(some):
        return
    circle: Style = {"marker": "o", "linestyle": "none", "markerfacecolor": "white"}
    across, up = (np.asarray(values, dtype=float)[some] for values in line.get_data())
    colour, alpha = line.get_color(), line.get_alpha()
    ax.plot(across, up, label="_", markeredgecolor=colour, alpha=alpha, zorder=3, **circle)
    if SOME not in entries([ax]):
        ax.plot([], [], label=SOME, markeredgecolor=GREY, **circle)


def grid(count: int, across: int) -> tuple[Figure, list[Axes]]:
    """A figure of ``count`` plots, ``across`` of them side by side."""
    from matplotlib.figure import Figure

    columns = min(across, count)
    rows = -(-count // columns)
    figure = Figure(figsize=(0.8 + 4.0 * columns, 0.6 + 2.9 * rows), layout="constrained")
    axes = list(figure.subplots(rows, columns, squeeze=False).flat)
    for ax in axes[count:]:
        ax.set_visible(False)
    return figure, axes[:count]


def image(figure: Figure, kind: str = "png", dpi: int = 150) -> bytes:
    """The content of a file of that kind, the same for the same figure."""
    content = io.BytesIO()
    undated = {DATES[kind]: None} if kind in DATES else {}
    figure.savefig(content, format=kind, dpi=dpi, facecolor="white", metadata=undated)
    return content.getvalue()


def save(figure: Figure, path: Path) -> None:
    """Write the figure in one step; the suffix of ``path`` decides the format."""
    write_whole(path, image(figure, path.suffix[1:].lower()))
