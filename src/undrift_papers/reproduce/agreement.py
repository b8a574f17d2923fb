"""All numbers of all pages in one picture: the paper's against ours."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from undrift.plots.curves import COLOURS, GREY, MARKS, PALE, Style, finish, grid, legend
from undrift_papers.reproduce.verdict import PART, POINTS

if TYPE_CHECKING:
    from matplotlib.figure import Figure

POINTED: Style = {"s": 22, "alpha": 0.8, "linewidths": 0}
BAND: Style = {"color": PALE, "linewidth": 0, "zorder": 0}
NAME: Style = {"fontsize": 7, "color": GREY, "va": "center"}
FAR = 15.0
"""Points by which an accuracy differs that is called by its name: of each item the furthest."""
LINE: Style = {"color": GREY, "linewidth": 0.8, "zorder": 0}
Page = Mapping[str, Any]
"""The numbers of a page, as JSON holds them."""


class Point(NamedTuple):
    """A number that is judged, and that both have."""

    paper: str
    label: str
    share: bool
    printed: float
    ours: float


def points(pages: Sequence[Page]) -> dict[Point, str]:
    """The points of some pages, each with the first item that shows it."""
    seen: dict[Point, str] = {}
    for page in pages:
        paper = page["item"].partition("/")[0]
        for column in (c for panel in page["panels"] for c in panel["columns"] if c["judged"]):
            for cell in column["cells"]:
                printed, ours = cell.get("printed"), cell.get("ours")
                if isinstance(printed, (int, float)) and isinstance(ours, (int, float)):
                    point = Point(paper, cell["label"], column["share"], printed, ours)
                    seen.setdefault(point, page["item"])
    return seen


def figure(pages: Sequence[Page]) -> Figure | None:
    """Accuracies against each other on the left, ratios of everything else on the right."""
    found = points(pages)
    if not found:
        return None
    drawing, (left, right) = grid(2, 2)
    ratios = {p: p.ours / p.printed for p in found if not p.share and p.printed * p.ours > 0}
    items = list(dict.fromkeys(found[p] for p in ratios))
    for k, paper in enumerate(dict.fromkeys(p.paper for p in found)):
        style = POINTED | {"color": COLOURS[k], "marker": MARKS[k]}
        mine = [p for p in found if p.share and p.paper == paper]
        left.scatter([p.printed for p in mine], [p.ours for p in mine], label=paper, **style)
        others = [p for p in ratios if p.paper == paper]
        places = [items.index(found[p]) for p in others]
        right.scatter([ratios[p] for p in others], places, label=paper, **style)
    off = sorted((p.printed - p.ours, p) for p in found if p.share)
    below = float("-inf")  # one name is not written over another
    for p in sorted({found[p]: p for by, p in off if by > FAR}.values(), key=lambda p: p.ours):
        where, below = found[p].partition("/")[2], max(p.ours, below + 5)
        left.text(p.printed + 3, below, f"{p.label}, {where}", **NAME)
    ends = [0, 100]
    left.plot(ends, ends, **LINE)
    left.fill_between(ends, [e - POINTS for e in ends], [e + POINTS for e in ends], **BAND)
    finish(left, "accuracy in the paper, %", "ours, %", zero=False)
    right.set_xscale("log")
    right.axvspan(1 - PART, 1 + PART, **BAND)
    right.axvline(1, **LINE)
    finish(right, "rounds, errors, savings: ours / the paper's", "", zero=False)
    right.set_xticks([0.5, 0.8, 1, 1.25, 2], ["0.5", "0.8", "1", "1.25", "2"])
    right.minorticks_off()
    right.set_yticks(range(len(items)), items)
    right.invert_yaxis()
    legend(drawing, [left, right])
    return drawing
