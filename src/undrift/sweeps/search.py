"""The best hyper-parameters of a method on a problem, by runs side by side.

All settings of a grid begin together; where that is asked for, the worse half is given up at a
quarter and a half of the rounds. Where the best one is the least or the largest of its grid, the
grid goes on that way until the best is inside. A setting that diverges is worse than any that does
not.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from undrift.core.cohort import Sampling
from undrift.core.method import Method
from undrift.core.options import OF_RUNS
from undrift.core.params import BadParameters, unknown
from undrift.core.problem import Problem
from undrift.core.stopping import USUALLY, Alarm, EarlyStopping, Goal
from undrift.sweeps.sweep import Sweep

Grid = Mapping[str, Sequence[float]]
"""Values to try, ascending, by name."""
Setting = tuple[tuple[str, float], ...]
Make = Callable[[dict[str, float], Problem], Method]
"""The method with some hyper-parameters set. Raises ``ValueError`` where it cannot have them."""
CUTS = (1 / 4, 1 / 2)
"""Shares of the rounds at which half of the settings is given up."""
LOOKS = 40
"""How often a run is measured; five times as often on the way to a target."""
EXTENSIONS = 6
"""How often a grid is extended at most."""
BEYOND = 3
"""Values by which it is."""


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
    """done, given up, diverged, or refused by the method."""


@dataclasses.dataclass(frozen=True)
class Tuned:
    """What was found for one method."""

    best: dict[str, float]
    method: Method
    """With the best setting."""
    grid: dict[str, list[float]]
    """All values that were tried, by name."""
    tried: list[Tried]
    column: str
    """The name of the number that settings were compared by."""
    open_ends: list[str]
    """What the best value of is still the least or the largest that was tried, of a grid."""

    @property
    def gradients(self) -> int:
        """Of all runs together."""
        return sum(one.gradients for one in self.tried)

    @property
    def settings(self) -> int:
        """How many were tried."""
        return len({one.setting for one in self.tried})

    def document(self) -> dict[str, object]:
        """For JSON."""
        edges = {name: self.edge(name) for name in self.best}
        names = ("best", "grid", "column", "open_ends", "settings", "gradients")
        return {name: getattr(self, name) for name in names} | {"edges": edges}

    def edge(self, name: str) -> float | None:
        """The least value above the best one with which it diverged, all others as they are best;
        ``None`` where none did.
        """
        others = {key: value for key, value in self.best.items() if key != name}
        failed = []
        for one in self.tried:
            here = dict(one.setting)
            value = here.pop(name)
            if one.status == "diverged" and here == others and value > self.best[name]:
                failed.append(value)
        return min(failed, default=None)


@dataclasses.dataclass
class Limits:
    """What a search may spend; a limit of seconds makes it depend on the machine."""

    gradients: float = math.inf
    seconds: float = math.inf
    since: float = dataclasses.field(default_factory=time.monotonic)

    def over(self, gradients: int) -> bool:
        return gradients >= self.gradients or time.monotonic() - self.since >= self.seconds


class Search:
    """Settings of one method, compared after ``rounds`` by ``goal``; ``problems`` are by seed.

    ``known`` are runs of an earlier search, which are not run again; ``heard`` is told of all runs
    whenever some have ended; ``draws`` has the seed of the engine for each seed. Settings that
    differ in what is in ``apart`` are not run side by side.
    """

    def __init__(
        self,
        make: Make,
        problems: Mapping[int, Problem],
        rounds: int,
        goal: Goal = USUALLY,
        *,
        halve: bool = False,
        limits: Limits | None = None,
        known: Iterable[Tried] = (),
        heard: Callable[[list[Tried]], object] | None = None,
        draws: Callable[[int], int] = int,
        apart: Sequence[str] = OF_RUNS,
        **options: object,
    ):
        self.make, self.problems, self.rounds, self.goal = make, problems, rounds, goal
        self.halve, self.limits, self.options = halve, limits or Limits(), options
        self.known = {(one.setting, one.seed): one for one in known}
        self.heard, self.draws, self.apart = heard, draws, apart
        self.tried: dict[Setting, list[Tried]] = {}
        first = next(iter(problems.values()))
        self.row = first.metrics(first.start())
        self.column = goal.column(self.row)
        if self.column not in self.row:
            raise BadParameters("tune", {"goal": unknown("metric", self.column, self.row)})

    def tune(self, grid: Grid, extend: bool = True) -> Tuned:
        """The best setting of a grid, which is extended where that is at its edge."""
        values = {name: sorted({*some}) for name, some in grid.items()}
        self.run(product(values))
        for _ in range(EXTENSIONS if extend else 0):
            more = self._extended(values)
            if not more or self.limits.over(self.gradients):
                break
            self.run([setting for setting in more if setting not in self.tried])
        best = dict(self.best())
        return self.found([name for name, some in values.items() if _at_end(best[name], some)])

    def found(self, open_ends: Sequence[str] = ()) -> Tuned:
        """The best of all that were tried."""
        best, every = dict(self.best()), [*itertools.chain(*self.tried.values())]
        grid = {name: sorted({dict(one.setting)[name] for one in every}) for name in best}
        method = self.make(_of_method(best), next(iter(self.problems.values())))
        return Tuned(best, method, grid, every, self.column, list(open_ends))

    @property
    def gradients(self) -> int:
        return sum(one.gradients for some in self.tried.values() for one in some)

    def run(self, settings: Sequence[Setting]) -> None:
        """Try these settings with every seed, side by side where hyper-parameters alone differ."""
        alike: dict[Setting, list[Setting]] = {}
        for setting in dict.fromkeys(settings):
            shared = tuple(pair for pair in setting if pair[0] in self.apart)
            alike.setdefault(shared, []).append(setting)
        for shared, some in alike.items():
            how = {name: value for name, value in shared if name in OF_RUNS}
            for seed, problem in self.problems.items():
                found = [self.known.get((setting, seed)) for setting in some]
                ended = [one for one in found if one is not None]
                if len(ended) < len(some):
                    ended = self._tried(some, how, seed, problem)
                for one in ended:
                    self.tried.setdefault(one.setting, []).append(one)
                if self.heard:
                    self.heard([*itertools.chain(*self.tried.values())])

    def best(self) -> Setting:
        """The best of all that were tried."""
        return min(self.tried, key=lambda setting: self.badness(self.tried[setting]))

    def badness(self, runs: Sequence[Tried]) -> tuple[float, ...]:
        """By this a setting comes before others: refused, diverged and given up ones last."""
        unfinished = sum(one.status != "done" for one in runs)
        failed = sum(one.status in ("diverged", "refused") for one in runs)
        late = sum(math.inf if one.reached is None else one.reached for one in runs)
        if failed:  # a smaller number may not
            return failed, unfinished, late, sum(value for _, value in runs[0].setting)
        if math.isfinite(late):  # beyond the target, what is spent counts
            return failed, unfinished, late, sum(one.gradients for one in runs)
        sign = -1 if self.goal.larger(self.column) else 1
        mean = float(np.mean([one.value for one in runs]))
        return failed, unfinished, late, sign * mean if math.isfinite(mean) else math.inf

    def _tried(
        self, settings: Sequence[Setting], how: dict[str, float], seed: int, problem: Problem
    ) -> list[Tried]:
        """One race of settings that differ in hyper-parameters alone."""
        given = {**self.options, **how}
        if "cohort" in how:
            given["cohort"] = Sampling(int(how["cohort"]))
        methods, found = dict[Setting, Method](), list[Tried]()
        for setting in settings:
            try:
                methods[setting] = self.make(_of_method(dict(setting)), problem)
            except ValueError:
                found.append(Tried(setting, seed, 0, 0, math.nan, None, "refused"))
        if methods:
            race = Sweep([*methods.values()], problem, seed=self.draws(seed), **given)
            found += self._race(race, [*methods], seed)
        return found

    def _race(self, race: Sweep, settings: Sequence[Setting], seed: int) -> list[Tried]:
        alive, found = list(range(len(settings))), dict[int, Tried]()
        value, reached = dict[int, float](), dict[int, int]()
        alarms = [Alarm.first(self.row) for _ in settings]
        aim = self.goal if isinstance(self.goal, EarlyStopping) else None
        every = max(1, self.rounds // (5 * LOOKS if aim else LOOKS))
        cuts = {max(every, int(share * self.rounds) // every * every) for share in CUTS}

        def noted(t: int, done: int, status: str) -> None:
            spent = race.ledger(t).gradients
            last = math.nan if status == "diverged" else value.get(t, math.nan)
            setting = settings[t]
            found[t] = Tried(setting, seed, done, spent, last, reached.get(t), status)

        for done in range(1, self.rounds + 1):
            race.run_round()
            leave = {t: "diverged" for t in alive if t in race.failed}
            looked = alive if done % every == 0 or done == self.rounds else []
            for t in [t for t in looked if t not in leave]:
                row = race.metrics(t)
                value[t] = row[self.column]
                if alarms[t].look(row, None):
                    leave[t] = "diverged"
                elif aim and aim.reached(self.column, value[t]):
                    reached.setdefault(t, done)
            sound = [t for t in looked if t not in leave]
            spent = self.gradients + sum(race.ledger(t).gradients for t in range(len(settings)))
            if sound and done < self.rounds and self.limits.over(spent):
                leave |= dict.fromkeys(sound, "given up")
            elif self.halve and done in cuts and len(sound) > 1:
                leave |= dict.fromkeys(self._worse(sound, value, reached), "given up")
            for t, status in leave.items():
                noted(t, done, status)
            if leave:
                alive = [t for t in alive if t not in leave]
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
            finite = math.isfinite(value[t])
            return reached.get(t, math.inf), sign * value[t] if finite else math.inf

        return sorted(alive, key=badness)[(len(alive) + 1) // 2 :]

    def _extended(self, values: dict[str, list[float]]) -> list[Setting]:
        """New settings beyond the edges that the best one is at; the grid takes them in."""
        best, new = dict(self.best()), dict[str, list[float]]()
        for name, some in values.items():
            if not _at_end(best[name], some) or min(some) <= 0:
                continue
            low = best[name] == some[0]
            ratio = some[1] / some[0] if low else some[-1] / some[-2]
            powers = [ratio ** (k + 1) for k in range(BEYOND)]
            beyond = [some[0] / power if low else some[-1] * power for power in powers]
            new[name] = [float(f"{value:.6g}") for value in beyond]
            values[name] = sorted(some + new[name])
        grid = {name: some if name in new else [best[name]] for name, some in values.items()}
        return product(grid) if new else []


def product(values: Grid) -> list[Setting]:
    """Every combination."""
    names = list(values)
    return [tuple(zip(names, some, strict=True)) for some in itertools.product(*values.values())]


def replaced(method: Method) -> Make:
    """Makes ``method`` with other hyper-parameters."""
    return lambda setting, _: dataclasses.replace(method, **setting)


def _of_method(setting: Mapping[str, float]) -> dict[str, float]:
    return {name: value for name, value in setting.items() if name not in OF_RUNS}


def _at_end(value: float, values: Sequence[float]) -> bool:
    """Whether others may be better; how many steps, samples and clients there are is the user's."""
    several = len(values) > 1 and not isinstance(value, int)
    return several and value in (values[0], values[-1])
