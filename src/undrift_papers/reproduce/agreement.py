"""All numbers of all pages in one picture: the paper's against ours."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from undrift.plots.curves import COLOURS, GREY, MARKS, PALE, Style, finish, legend
from undrift_papers.reproduce.verdict import PART, POINTS

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

FAR = 8.0
"""Points of accuracy from which on a method is named."""
WIDE, HIGH = 22.0, 4.0
"""Points of accuracy that a name takes up; nothing else is named there."""
POINTED: Style = {"s": 22, "alpha": 0.8, "linewidths": 0}
BAND: Style = {"color": PALE, "linewidth": 0, "zorder": 0}
LINE: Style = {"color": GREY, "linewidth": 0.8, "zorder": 0}
NAME: Style = {"textcoords": "offset points", "fontsize": 7, "color": "#666666"}
Styles = dict[str, Style]
Page = Mapping[str, Any]
"""The numbers of a page, as JSON holds them."""


class Point(NamedTuple):
    """A number that is judged, and that both have."""

    paper: str
    item: str
    label: str
    share: bool
    printed: float
    ours: float


def points(pages: Sequence[Page]) -> list[Point]:
    """The points of some pages; one that several items show counts once."""
    seen: dict[tuple[object, ...], Point] = {}
    for page in pages:
        paper = page["item"].partition("/")[0]
        for column in (c for panel in page["panels"] for c in panel["columns"] if c.get("judged")):
            for cell in column["cells"]:
                label, printed, ours = cell["label"], cell.get("printed"), cell.get("ours")
                if isinstance(printed, (int, float)) and isinstance(ours, (int, float)):
                    point = Point(paper, page["item"], label, column["share"], printed, ours)
                    seen.setdefault((paper, label, column["share"], printed, ours), point)
    return list(seen.values())


def figure(pages: Sequence[Page]) -> Figure | None:
    """Accuracies against each other on the left, ratios of everything else on the right."""
    from matplotlib.figure import Figure

    found = points(pages)
    accuracies = [p for p in found if p.share]
    others = [p for p in found if not p.share and p.printed * p.ours > 0]
    kinds = [(draw, some) for draw, some in ((_accuracies, accuracies), (_ratios, others)) if some]
    if not kinds:
        return None
    papers = dict.fromkeys(p.paper for p in found)
    styles = {
        paper: {"color": COLOURS[k], "marker": MARKS[k], **POINTED}
        for k, paper in enumerate(papers)
    }
    figure = Figure(figsize=(1.2 + 4.2 * len(kinds), 3.9), layout="constrained")
    axes = list(figure.subplots(1, len(kinds), squeeze=False).flat)
    for ax, (draw, some) in zip(axes, kinds, strict=True):
        draw(ax, some, styles)
    legend(figure, axes)
    return figure


def _accuracies(ax: Axes, some: list[Point], styles: Styles) -> None:
    _scatter(ax, some, styles, lambda p: (p.printed, p.ours))
    for p in _named(some):
        name = f"{p.label}, {p.item.partition('/')[2]}"
        ax.annotate(name, (p.printed, p.ours), (5, -3), **NAME)
    low, high = (f(v for p in some for v in (p.printed, p.ours)) for f in (min, max))
    ends = [low - 3, high + 3]
    ax.plot(ends, ends, **LINE)
    ax.fill_between(ends, [e - POINTS for e in ends], [e + POINTS for e in ends], **BAND)
    finish(ax, "accuracy in the paper, %", "ours, %", zero=False)
    ax.set_xlim(*ends)
    ax.set_ylim(*ends)


def _named(some: list[Point]) -> list[Point]:
    """The point of each method and item that is furthest off, where there is room for a name."""
    named: list[Point] = []
    for p in sorted(some, key=lambda p: abs(p.ours - p.printed), reverse=True):
        again = any((p.item, p.label) == (n.item, n.label) for n in named)
        near = any(abs(p.printed - n.printed) < WIDE and abs(p.ours - n.ours) < HIGH for n in named)
        if abs(p.ours - p.printed) > FAR and not again and not near:
            named.append(p)
    return named


def _ratios(ax: Axes, some: list[Point], styles: Styles) -> None:
    items = list(dict.fromkeys(p.item for p in some))
    _scatter(ax, some, styles, lambda p: (p.ours / p.printed, items.index(p.item)))
    ax.set_xscale("log")
    far = 1.1 * max(1 + PART, *(math.exp(abs(math.log(p.ours / p.printed))) for p in some))
    ax.axvspan(1 - PART, 1 + PART, **BAND)
    ax.axvline(1, **LINE)
    finish(ax, "rounds, errors, savings: ours / the paper's", "", zero=False)
    ax.set_xlim(1 / far, far)
    ax.set_yticks(range(len(items)), items)
    ax.set_ylim(len(items) - 0.5, -0.5)
    ticks = [t for t in (0.2, 0.5, 0.8, 1, 1.25, 2, 5) if 1 / far <= t <= far]
    ax.set_xticks(ticks, [f"{t:g}" for t in ticks])
    ax.minorticks_off()


def _scatter(
    ax: Axes, some: list[Point], styles: Styles, place: Callable[[Point], tuple[float, float]]
) -> None:
    for paper, style in styles.items():
        if mine := [place(p) for p in some if p.paper == paper]:
            ax.scatter(*zip(*mine, strict=True), label=paper, **style)
