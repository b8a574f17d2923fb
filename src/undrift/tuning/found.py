"""What tuning has found: tables, pictures and files."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from undrift._files import finite, write_whole
from undrift.core.method import Method
from undrift.core.stopping import USUALLY, EarlyStopping, Goal
from undrift.plots.columns import LOGARITHMIC
from undrift.plots.curves import GREY, Style, finish, grid, image, legend, line_styles, plain
from undrift.report.table import Table
from undrift.spec.schema import Spec
from undrift.spec.space import TuningNote
from undrift.sweeps.search import Tried, Tuned

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

LEGEND = {"o": "given up on the way", "x": "diverged", "|": "target not reached"}
MARKS: dict[str, Style] = {
    mark: {"marker": mark, "linestyle": "none", "markerfacecolor": "white"} for mark in LEGEND
}


class Tunings(dict[str, Tuned]):
    """What was found for each method, by label."""

    def __init__(
        self,
        found: Mapping[str, Tuned] | None = None,
        rounds: int = 0,
        goal: Goal = USUALLY,
        seeds: Sequence[int] = (),
    ):
        super().__init__(found or {})
        self.rounds, self.goal, self.seeds = rounds, goal, seeds
        self.target = goal.target if isinstance(goal, EarlyStopping) else None
        self.spec: Spec | None = None
        """The spec with what was found, where one was tuned."""

    @property
    def methods(self) -> dict[str, Method]:
        """Those to run, by label."""
        return {label: found.method for label, found in self.items()}

    @property
    def column(self) -> str:
        """The name of the number that settings were compared by."""
        return next(iter(self.values())).column if self else "gap"

    @property
    def aims(self) -> bool:
        """Whether they were compared by the rounds to a target."""
        return self.target is not None

    @property
    def by(self) -> str:
        """What settings were compared by."""
        if self.target is not None:
            sign = ">=" if self.goal.larger(self.column) else "<="
            return f"rounds to {self.column} {sign} {self.target:g}"
        return f"{self.column} after {self.rounds} rounds"

    def note(self, label: str) -> TuningNote:
        """What tables say beside a method."""
        found = self[label]
        over = [f"{name} {_span(values)}" for name, values in found.grid.items()]
        return TuningNote(
            over=" x ".join(over), settings=found.settings, gradients=found.gradients, by=self.by
        )

    def table(self) -> Table:
        """The best of each method, and what it took to find it."""
        rows = []
        for label, found in self.items():
            runs = [one for one in found.tried if dict(one.setting) == found.best]
            edges = {name: found.edge(name) for name in found.best}
            apart = [f"{name} {value:g}" for name, value in edges.items() if value is not None]
            rows.append(
                [
                    label,
                    _values(found.best),
                    self._value(runs),
                    ", ".join(apart) or "-",
                    f"{found.settings}",
                    f"{found.gradients:,}",
                    ", ".join(found.open_ends) or "-",
                ]
            )
        texts = ["best", "diverges at", "still at an end"]
        head = ["method", "best", self.by, "diverges at", "settings", "gradients", texts[-1]]
        seeds = ", ".join(map(str, self.seeds))
        notes = [
            f"seeds of the search, apart from those that are shown: {seeds}",
            "diverges at: the least value tried above the best with which a run diverged; "
            "still at an end: the best value is the least or largest one tried",
        ]
        return Table(head, rows, texts, notes, "Tuning")

    def _value(self, runs: Sequence[Tried]) -> str:
        late = [one.reached for one in runs if one.reached is not None]
        if any(one.status == "diverged" for one in runs):
            return "diverged"
        if self.aims:
            return f"{sum(late) / len(late):g}" if late and len(late) == len(runs) else "-"
        mean, last = sum(one.value for one in runs) / len(runs), min(one.rounds for one in runs)
        short = "" if last == self.rounds else f" in round {last}"
        return f"{mean:.3g}{short}" if math.isfinite(mean) else "-"

    def __str__(self) -> str:
        return self.table().text()

    def figure(self) -> Figure:
        """How good every value was, for each name that was tuned."""
        names = list(dict.fromkeys(name for found in self.values() for name in found.best))
        figure, axes = grid(len(names), 3)
        styles = line_styles(self)
        for ax, name in zip(axes, names, strict=True):
            for label, found in self.items():
                if name in found.best:
                    self._response(ax, label, found, name, styles[label])
            for mark, text in LEGEND.items():
                ax.plot([], [], color=GREY, label=text, **MARKS[mark])
            by = self.by if self._by_rounds else f"{self.column} at the end"
            finish(ax, name, by, zero=False)
        legend(figure, axes)
        return figure

    def _response(self, ax: Axes, label: str, found: Tuned, name: str, style: Style) -> None:
        """One method: its best run at each value, and above them the values without a good one."""
        colour, best, above = style["color"], dict[float, Tried](), ax.get_xaxis_transform()
        for one in sorted(found.tried, key=self._rank):
            if math.isfinite(self._height(one)):
                best.setdefault(dict(one.setting)[name], one)
        for one in found.tried:
            if (value := dict(one.setting)[name]) not in best and one.status != "refused":
                mark = MARKS["x" if one.status == "diverged" else "|"]
                ax.plot(value, 1.0, color=colour, transform=above, clip_on=False, **mark)
        places = sorted(best)
        heights = [self._height(best[place]) for place in places]
        shape: Style = {"color": colour, "marker": style["marker"], "markersize": 5}
        ax.plot(places, heights, label=plain(label), linewidth=1.3, **shape)
        for place, height in zip(places, heights, strict=True):
            if best[place].status != "done":
                ax.plot(place, height, **shape, markerfacecolor="white")
        least, most = found.grid[name][0], found.grid[name][-1]
        if 0 < 5 * least < most:
            ax.set_xscale("log")
        if places and (self._by_rounds or found.column in LOGARITHMIC):  # an empty axis cannot be
            ax.set_yscale("log")
        if (edge := found.edge(name)) is not None:
            ax.axvline(edge, color=colour, linestyle=":", linewidth=1)

    @property
    def _by_rounds(self) -> bool:
        """Whether the picture has rounds to the target: each method has reached it somewhere."""
        return self.aims and all(any(t.reached for t in one.tried) for one in self.values())

    def _height(self, one: Tried) -> float:
        if self._by_rounds:
            return math.nan if one.reached is None else float(one.reached)
        return one.value

    def _rank(self, one: Tried) -> tuple[bool, float]:
        larger = not self._by_rounds and self.goal.larger(self.column)
        return one.status != "done", -self._height(one) if larger else self._height(one)

    def write(self, folder: Path) -> None:
        """What was found, as files."""
        rows = []
        for label, found in self.items():
            for one in found.tried:
                rows.append({"label": label, **one._asdict(), "setting": dict(one.setting)})
        lines = [json.dumps(finite(row)) for row in rows]
        write_whole(folder / "tried.jsonl", "\n".join([*lines, ""]))
        table = self.table()
        write_whole(folder / "tuning.md", "\n\n".join([table.markdown(), *table.notes, ""]))
        if self:
            write_whole(folder / "response.png", image(self.figure()))
        if self.spec is not None:
            for name, content in self.spec.sources.items():
                write_whole(folder / name, content)
            write_whole(folder / "tuned.toml", self.spec.toml())


def _values(setting: Mapping[str, float]) -> str:
    return ", ".join(f"{name} {value:g}" for name, value in setting.items())


def _span(values: Sequence[float]) -> str:
    return f"{values[0]:g}" if len(values) < 2 else f"{values[0]:g} to {values[-1]:g}"
