"""What tuning has found: tables, pictures and files."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from undrift._files import finite, write_whole
from undrift.core.method import Method
from undrift.plots.columns import LOGARITHMIC
from undrift.plots.curves import GREY, Style, finish, grid, legend, line_styles, plain, save
from undrift.report.table import Table
from undrift.spec.schema import Spec
from undrift.spec.space import TuningNote
from undrift.sweeps.search import Tried, Tuned

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

LEGEND = {"o": "given up on the way", "x": "diverged", "|": "target not reached by the last round"}
MARKS: dict[str, Style] = {
    mark: {"marker": mark, "linestyle": "none", "markerfacecolor": "white"} for mark in LEGEND
}
RING: Style = {"marker": "o", "linestyle": "none", "markerfacecolor": "none", "markersize": 11}
"""Around the best of each method."""


class Tunings(dict[str, Tuned]):
    """What was found for each method, by label."""

    def __init__(self, found: Mapping[str, Tuned], seeds: Sequence[int]):
        super().__init__(found)
        self.seeds = seeds
        self.spec: Spec | None = None
        """The spec with what was found, where one was tuned."""

    @property
    def methods(self) -> dict[str, Method]:
        """Those to run, by label."""
        return {label: found.method for label, found in self.items()}

    @property
    def by(self) -> str:
        """What settings were compared by."""
        return next((found.by for found in self.values()), "nothing")

    def table(self) -> Table:
        """The best of each method, and what it took to find it."""
        rows = []
        for label, found in self.items():
            edges = {name: edge for name in found.best if (edge := found.edge(name)) is not None}
            rows.append(
                [
                    label,
                    _values(found.best),
                    _shown(found),
                    _values(edges) or "-",
                    f"{found.settings}",
                    f"{found.gradients:,}",
                    ", ".join(found.open_ends) or "-",
                ]
            )
        words = ["best", "diverges at", "still at an end"]
        head = ["method", "best", self.by, "diverges at", "settings", "gradients", words[-1]]
        notes = [
            "seeds of the search, apart from those that are shown: "
            + ", ".join(map(str, self.seeds)),
            "diverges at: the least value tried above the best with which a run diverged; "
            "still at an end: the best value is the least or largest one tried",
        ]
        return Table(head, rows, words, notes, "Tuning")

    def __str__(self) -> str:
        return self.table().text()

    def figure(self) -> Figure:
        """How good every value was, for each name that was tuned, as the mean over seeds: by the
        rounds to the target, if a method has reached it somewhere with all of them; above are the
        values that never did.
        """
        names = list(dict.fromkeys(name for found in self.values() for name in found.best))
        figure, axes = grid(len(names), 3)
        styles, column = line_styles(self), next(iter(self.values())).column
        late = any(one.reached for found in self.values() for one in found.means)
        for ax, name in zip(axes, names, strict=True):
            for label, found in self.items():
                if name in found.best:
                    _response(ax, name, label, found, late, styles[label])
            ax.plot([], [], color=GREY, label="best", **RING)
            for mark in MARKS if late else "ox":
                ax.plot([], [], color=GREY, label=LEGEND[mark], **MARKS[mark])
            _spread(ax, [v for found in self.values() for v in found.grid.get(name, ())])
            finish(ax, name, self.by if late else f"{column} at the end", zero=False)
        legend(figure, axes)
        return figure

    def write(self, folder: Path) -> None:
        """What was found, as files."""
        lines = [
            json.dumps(finite({"label": label, **one.row()}))
            for label, found in self.items()
            for one in found.tried
        ]
        write_whole(folder / "tried.jsonl", "\n".join([*lines, ""]))
        write_whole(folder / "tuning.md", page(self.table()))
        if self:
            save(self.figure(), folder / "response.png")
        if self.spec is not None:
            write_whole(folder / "tuned.toml", self.spec.toml())


def page(table: Table) -> str:
    """A table as a page of its own."""
    return "\n\n".join([table.markdown(), *table.notes, ""])


def note(found: Tuned) -> TuningNote:
    """What tables say beside a method."""
    over = []
    for name, values in found.grid.items():
        ends = " to ".join(f"{value:g}" for value in sorted({values[0], values[-1]}))
        over.append(f"{name} {ends}")
    return TuningNote(
        over=" x ".join(over),
        settings=found.settings,
        gradients=found.gradients,
        by=found.by,
        asked=found.asked,
    )


def _response(ax: Axes, name: str, label: str, found: Tuned, late: bool, style: Style) -> None:
    """One method: its best setting at each value, as the mean over seeds, and above them the values
    without a good one.
    """

    def rank(one: Tried) -> tuple[bool, bool, float]:
        worth = (one.reached or math.inf) if late else found.goal.badness(found.column, one.value)
        return math.isinf(worth), one.status != "done", worth

    best = dict[float, Tried]()
    for one in sorted(found.means, key=rank):
        best.setdefault(dict(one.setting)[name], one)
    good = {value: best[value] for value in sorted(best) if not rank(best[value])[0]}
    heights = [float(one.reached or 0) if late else one.value for one in good.values()]
    shape: Style = {"color": style["color"], "marker": style["marker"], "markersize": 5}
    ax.plot([*good], heights, label=plain(label), linewidth=1.3, **shape)
    for (value, one), height in zip(good.items(), heights, strict=True):
        if value == found.best[name]:
            ax.plot(value, height, color=style["color"], **RING)
        if one.status != "done":
            ax.plot(value, height, **shape, markerfacecolor="white")
    for value, one in best.items():
        if value not in good and one.status != "refused":
            mark = MARKS["x" if one.status == "diverged" else "|"]
            place = ax.get_xaxis_transform()
            for shown in [mark, RING] if value == found.best[name] else [mark]:
                ax.plot(value, 1.0, color=style["color"], transform=place, clip_on=False, **shown)
    if good and not late and found.column in LOGARITHMIC:  # an empty axis cannot be
        ax.set_yscale("log")
    if (edge := found.edge(name)) is not None:
        ax.axvline(edge, color=style["color"], linestyle=":", linewidth=1)


def _spread(ax: Axes, values: Sequence[float]) -> None:
    """A logarithmic axis for values that are apart by factors, with labels that do not overlap."""
    if 0 < 5 * min(values) < max(values):
        from matplotlib.ticker import LogLocator

        ax.set_xscale("log")
        between = (1, 2, 5) if max(values) < 99 * min(values) else (1,)
        ax.xaxis.set_major_locator(LogLocator(subs=between))
        ax.xaxis.set_major_formatter("{x:g}")
        ax.minorticks_off()  # their labels overlap where few decades are shown


def _shown(found: Tuned) -> str:
    """What the best setting was compared by."""
    one = found.result
    if one.status == "diverged":
        return "diverged"
    if found.target is not None:
        return "-" if one.reached is None else f"{one.reached:g}"
    last = min(run.rounds for run in found.runs)
    short = "" if last == found.rounds else f" in round {last}"
    return f"{one.value:.3g}{short}" if math.isfinite(one.value) else "-"


def _values(setting: Mapping[str, float]) -> str:
    return ", ".join(f"{name} {value:g}" for name, value in setting.items())
