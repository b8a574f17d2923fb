"""The best hyper-parameters of a method on a problem, by runs side by side.

All settings of a grid begin together; at an eighth, a quarter and a half of the rounds the worse
half is given up. Where the best one is the least or the largest of its grid, the grid goes on that
way until the best is inside. A setting that diverges is worse than any that does not.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from undrift.core.method import Method
from undrift.core.params import BadParameters, hints
from undrift.core.problem import Problem
from undrift.core.stopping import USUALLY, EarlyStopping, Goal
from undrift.sweeps.sweep import Sweep

Grid = Mapping[str, Sequence[float]]
"""Values to try, ascending, by hyper-parameter."""
Setting = tuple[tuple[str, float], ...]
CUTS = (1 / 8, 1 / 4, 1 / 2)
"""Shares of the rounds at which half of the settings is given up."""
LOOKS = 40
"""How often a run is measured."""
EXTENSIONS = 6
"""How often a grid is extended at most."""


class Tried(NamedTuple):
    """One setting with one seed: how far it came, what it cost, and how good it was."""

    setting: Setting
    seed: int
    rounds: int
    gradients: int
    value: float
    """The number that settings are compared by; NaN where it diverged."""
    reached: int | None
    """The round in which a target was first seen reached."""
    status: str
    """done, given up or diverged."""


@dataclasses.dataclass(frozen=True)
class Tuned:
    """What was found for one method."""

    method: Method
    """The best."""
    grid: dict[str, list[float]]
    """All values of each hyper-parameter that were tried."""
    tried: list[Tried]
    column: str
    """The name of the number that settings were compared by."""
    edges: list[str]
    """Hyper-parameters whose best value is still the least or the largest that was tried."""

    @property
    def gradients(self) -> int:
        """Of all runs together."""
        return sum(one.gradients for one in self.tried)


class Search:
    """Settings of one method on one problem, compared after ``rounds`` by ``goal``."""

    def __init__(
        self,
        method: Method,
        problem: Problem,
        rounds: int,
        goal: Goal = USUALLY,
        seeds: Sequence[int] = (0,),
        **options: object,
    ):
        self.method, self.problem, self.rounds, self.goal = method, problem, rounds, goal
        self.seeds, self.options = list(seeds), options
        self.tried: dict[Setting, list[Tried]] = {}
        self.column = ""

    def tune(self, grid: Grid, extend: bool = True) -> Tuned:
        """The best setting of a grid, which is extended where that is at its edge."""
        unknown = [name for name in grid if name not in hints(type(self.method))]
        if unknown or not grid or not all(len(values) for values in grid.values()):
            text = f"{type(self.method).__name__} has no {', '.join(unknown)} that could be tuned"
            raise BadParameters("tune", {unknown[0] if unknown else "grid": text})
        values = {name: sorted(set(some)) for name, some in grid.items()}
        self.run(product(values))
        for _ in range(EXTENSIONS if extend else 0):
            more = self._extended(values)
            if not more:
                break
            self.run([setting for setting in more if setting not in self.tried])
        best = dict(self.best())
        edges = [n for n, v in best.items() if len(values[n]) > 1 and v in _ends(values[n])]
        method = dataclasses.replace(self.method, **best)
        return Tuned(method, values, [*itertools.chain(*self.tried.values())], self.column, edges)

    def run(self, settings: Sequence[Setting]) -> None:
        """Try these settings with every seed."""
        methods = [dataclasses.replace(self.method, **dict(setting)) for setting in settings]
        for seed in self.seeds:
            race = Sweep(methods, self.problem, seed=seed, **self.options)
            for setting, one in zip(settings, self._race(race, settings, seed), strict=True):
                self.tried.setdefault(setting, []).append(one)

    def best(self) -> Setting:
        """The best of all that were tried."""
        return min(self.tried, key=lambda setting: self._badness(self.tried[setting]))

    def _badness(self, runs: Sequence[Tried]) -> tuple[float, ...]:
        """By this a setting comes before others: diverged and given up ones last."""
        unfinished = sum(one.status != "done" for one in runs)
        diverged = sum(one.status == "diverged" for one in runs)
        late = sum(math.inf if one.reached is None else one.reached for one in runs)
        sign = -1 if self.goal.larger(self.column) else 1
        return diverged, unfinished, late, sign * float(np.mean([one.value for one in runs]))

    def _race(self, race: Sweep, settings: Sequence[Setting], seed: int) -> list[Tried]:
        alive, found = list(range(len(settings))), dict[int, Tried]()
        value, reached = dict[int, float](), dict[int, int]()
        every = max(1, self.rounds // LOOKS)
        cuts = {max(every, int(share * self.rounds) // every * every) for share in CUTS}

        def noted(t: int, done: int, status: str) -> None:
            spent = race.ledger(t).gradients
            last = math.nan if status == "diverged" else value.get(t, math.nan)
            setting = settings[t]
            found[t] = Tried(setting, seed, done, spent, last, reached.get(t), status)

        for done in range(1, self.rounds + 1):
            race.run_round()
            for t in [t for t in alive if t in race.failed]:
                noted(t, done, "diverged")
                alive.remove(t)
            if done % every and done < self.rounds:
                continue
            for t in alive:
                row = race.metrics(t)
                self.column = self.column or self.goal.column(row)
                value[t] = row[self.column]
                if isinstance(self.goal, EarlyStopping) and self.goal.reached(
                    self.column, value[t]
                ):
                    reached.setdefault(t, done)
            if done in cuts and len(alive) > 1:
                for t in self._worse(alive, value, reached):
                    noted(t, done, "given up")
                    alive.remove(t)
                race.keep(alive)
            if not alive:
                break
        for t in alive:
            noted(t, self.rounds, "done")
        return [found[t] for t in range(len(settings))]

    def _worse(
        self, alive: Sequence[int], value: Mapping[int, float], reached: Mapping[int, int]
    ) -> list[int]:
        """The worse half."""
        sign = -1 if self.goal.larger(self.column) else 1

        def badness(t: int) -> tuple[float, float]:
            return reached.get(t, math.inf), sign * value[t] if math.isfinite(
                value[t]
            ) else math.inf

        return sorted(alive, key=badness)[(len(alive) + 1) // 2 :]

    def _extended(self, values: dict[str, list[float]]) -> list[Setting]:
        """New settings beyond the edges that the best one is at; the grid takes them in."""
        best, new = dict(self.best()), dict[str, list[float]]()
        for name, some in values.items():
            if len(some) < 2 or best[name] not in _ends(some) or min(some) <= 0:
                continue
            low = best[name] == some[0]
            ratio = some[1] / some[0] if low else some[-1] / some[-2]
            new[name] = [some[0] / ratio] if low else [some[-1] * ratio]
            values[name] = sorted(some + new[name])
        return product({name: new.get(name, [best[name]]) for name in values}) if new else []


def product(values: Mapping[str, Sequence[float]]) -> list[Setting]:
    """Every combination."""
    names = list(values)
    return [tuple(zip(names, some, strict=True)) for some in itertools.product(*values.values())]


def _ends(values: Sequence[float]) -> tuple[float, float]:
    return values[0], values[-1]
