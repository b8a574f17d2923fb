"""The best hyper-parameters of a method on a problem, by runs side by side.

All settings of a grid begin together; where that is asked for, the worse half is given up at a
quarter and a half of the rounds. Where the best one is the least or the largest of its grid, the
grid goes on that way until the best is inside. A setting that diverges is worse than any that does
not. Samples that test the final model do not choose it: where clients have none of their own that
they do not train on, settings are compared by training samples.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from statistics import mean
from typing import NamedTuple

from torch import Tensor

from undrift.core.method import Method
from undrift.core.options import OF_RUNS
from undrift.core.params import BadParameters, unknown
from undrift.core.problem import Problem
from undrift.core.stopping import USUALLY, Alarm, EarlyStopping, Goal
from undrift.sweeps.sweep import Sweep

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
    reached: float | None
    """The round in which a target was first seen reached; of several seeds the mean."""
    status: str
    """done, given up, diverged, or refused by the method."""

    def row(self) -> dict[str, object]:
        """For JSON."""
        return self._asdict() | {"setting": dict(self.setting)}


@dataclasses.dataclass(frozen=True)
class Tuned:
    """What was found for one method."""

    best: dict[str, float]
    method: Method
    """With the best setting."""
    tried: list[Tried]
    rounds: int
    """Those of a trial."""
    goal: Goal
    column: str
    """The name of the number that settings were compared by."""
    asked: int = 0
    """Settings of the grid that was given, without those by which it was extended."""

    @property
    def grid(self) -> dict[str, list[float]]:
        """All values that were tried, by name; the method has refused others."""
        tried = [dict(one.setting) for one in self.tried if one.status != "refused"]
        return {name: sorted({setting[name] for setting in tried}) for name in self.best}

    @property
    def open_ends(self) -> list[str]:
        """What the best value of is still the least or the largest that was tried, of a grid.

        How many steps, samples and clients there are is the user's.
        """
        return [
            name
            for name, some in self.grid.items()
            if self.asked and len(some) > 1 and self.best[name] in (some[0], some[-1])
            if not isinstance(self.best[name], int)
        ]

    @property
    def means(self) -> list[Tried]:
        """Every setting once, as the mean over its seeds."""
        own = dict.fromkeys(one.setting for one in self.tried)
        return [over_seeds([one for one in self.tried if one.setting == each]) for each in own]

    @property
    def gradients(self) -> int:
        """Of all runs together."""
        return sum(one.gradients for one in self.tried)

    @property
    def settings(self) -> int:
        """How many were tried."""
        return len({one.setting for one in self.tried if one.status != "refused"})

    @property
    def runs(self) -> list[Tried]:
        """Those with the best setting, one for each seed."""
        return [one for one in self.tried if dict(one.setting) == self.best]

    @property
    def result(self) -> Tried:
        """Those as one: the round in which all reached the target, and their number, NaN if one
        diverged.
        """
        return over_seeds(self.runs)

    @property
    def target(self) -> float | None:
        """What their number was to reach."""
        return self.goal.target if isinstance(self.goal, EarlyStopping) else None

    @property
    def by(self) -> str:
        """What settings were compared by."""
        if self.target is not None:
            sign = ">=" if self.goal.larger(self.column) else "<="
            return f"rounds to {self.column} {sign} {self.target:g}"
        return f"{self.column} after {self.rounds} rounds"

    def edge(self, name: str) -> float | None:
        """The least value above the best one with which it diverged, all others as they are best;
        ``None`` where none did.
        """
        failed = [dict(one.setting) for one in self.tried if one.status == "diverged"]
        along = [one[name] for one in failed if one | {name: self.best[name]} == self.best]
        return min((value for value in along if value > self.best[name]), default=None)

    def document(self) -> dict[str, object]:
        """For JSON."""
        names = ("best", "grid", "column", "open_ends", "settings", "gradients")
        return {name: getattr(self, name) for name in names} | {
            "edges": {name: self.edge(name) for name in self.best}
        }


class Search:
    """Settings of one method, compared after ``rounds`` by ``goal``; ``problems`` are by seed.

    It ends when so many ``gradients`` or ``seconds`` are spent; with seconds it depends on the
    machine. ``known`` are runs of an earlier search, which are not run again; ``heard`` is told of
    all runs whenever some have ended, ``looked`` of the seed and the round that others have come
    to; ``draws`` has the seed of the engine for each seed. Settings
    that differ in what is in ``apart`` are not run side by side.
    """

    def __init__(
        self,
        make: Make,
        problems: Mapping[int, Problem],
        rounds: int,
        goal: Goal = USUALLY,
        *,
        halve: bool = False,
        gradients: float | None = None,
        seconds: float | None = None,
        known: Iterable[Tried] = (),
        heard: Callable[[list[Tried]], object] = lambda _: None,
        looked: Callable[[int, int], object] = lambda *_: None,
        draws: Callable[[int], int] = int,
        apart: Sequence[str] = OF_RUNS,
        **options: object,
    ):
        self.make, self.problems, self.rounds, self.goal = make, problems, rounds, goal
        self.halve, self.most = halve, math.inf if gradients is None else gradients
        self.end = time.monotonic() + (math.inf if seconds is None else seconds)
        self.known = {(one.setting, one.seed): one for one in known}
        self.heard, self.looked, self.draws = heard, looked, draws
        self.apart, self.options = apart, options
        self.tried: dict[Setting, list[Tried]] = {}
        first = next(iter(problems.values()))
        self.row = measured(first, first.start())
        self.column = goal.column(self.row)
        if tested(first):
            self.column = f"train_{self.column.removeprefix('train_')}"
        if self.column not in self.row:
            raise BadParameters("tune", {"goal": unknown("metric", self.column, self.row)})

    def tune(self, grid: Mapping[str, Sequence[float]], extend: bool = True) -> Tuned:
        """The best setting of a grid, which is extended where that is at its edge."""
        values = wanted = {name: sorted({*some}) for name, some in grid.items()}
        for _ in range(EXTENSIONS + 1 if extend else 1):
            self.run(
                [tuple(zip(wanted, v, strict=True)) for v in itertools.product(*wanted.values())]
            )
            best = dict(self.best())
            new = {
                name: _beyond(some, best[name])
                for name, some in values.items()
                if len(some) > 1 and some[0] > 0 and best[name] in (some[0], some[-1])
                if not isinstance(best[name], int)
            }
            if not new or self.over():
                break
            values = values | new
            wanted = {name: new.get(name, [value]) for name, value in best.items()}
        return dataclasses.replace(self.found(), asked=math.prod(map(len, grid.values())))

    def found(self) -> Tuned:
        """The best of all that were tried."""
        best = dict(self.best())
        method = self.make(parted(best)[0], next(iter(self.problems.values())))
        return Tuned(best, method, self.runs, self.rounds, self.goal, self.column)

    @property
    def runs(self) -> list[Tried]:
        """All that have ended."""
        return [*itertools.chain(*self.tried.values())]

    def over(self, further: Iterable[Tried] = ()) -> bool:
        """Whether what may be spent is, with ``further`` runs."""
        late = time.monotonic() >= self.end
        return late or sum(one.gradients for one in (*self.runs, *further)) >= self.most

    def run(self, settings: Sequence[Setting]) -> None:
        """Try these settings with every seed, side by side where hyper-parameters alone differ."""
        alike: dict[Setting, list[Setting]] = {}
        for setting in dict.fromkeys(settings):
            if setting not in self.tried:
                shared = tuple(pair for pair in setting if pair[0] in self.apart)
                alike.setdefault(shared, []).append(setting)
        for some, seed in itertools.product(alike.values(), self.problems):
            ended = [self.known[s, seed] for s in some if (s, seed) in self.known]
            if len(ended) < len(some):
                ended = self._race(some, seed)
            for one in ended:
                self.tried.setdefault(one.setting, []).append(one)
            self.heard(self.runs)

    def best(self) -> Setting:
        """The best of all that were tried."""
        return min(self.tried, key=lambda setting: self.badness(self.tried[setting]))

    def badness(self, runs: Sequence[Tried]) -> tuple[float, ...]:
        """By this a setting comes before others: refused, diverged and given up ones last."""
        unfinished = sum(one.status != "done" for one in runs)
        failed = sum(one.status in ("diverged", "refused") for one in runs)
        late = sum(math.inf if one.reached is None else one.reached for one in runs)
        last = self.goal.badness(self.column, mean(one.value for one in runs))
        if failed:  # a smaller number may not
            last = sum(value for _, value in runs[0].setting)
        elif math.isfinite(late):  # beyond the target, what is spent counts
            last = sum(one.gradients for one in runs)
        return failed, unfinished, late, last

    def _race(self, settings: Sequence[Setting], seed: int) -> list[Tried]:
        """One race of settings that differ in hyper-parameters alone."""
        problem, methods = self.problems[seed], dict[Setting, Method]()
        for setting in settings:
            with suppress(ValueError):
                methods[setting] = self.make(parted(dict(setting))[0], problem)
        start = seed, 0, 0, math.nan, None
        refused = [Tried(one, *start, "refused") for one in settings if one not in methods]
        if not methods:
            return refused
        found, alive = [Tried(one, *start, "done") for one in methods], [*range(len(methods))]
        options = {**self.options, **parted(dict(settings[0]))[1], "seed": self.draws(seed)}
        race = Sweep([*methods.values()], problem, **options)
        alarms = [Alarm.first(self.row) for _ in methods]
        looks = 5 * LOOKS if isinstance(self.goal, EarlyStopping) else LOOKS
        every = max(1, self.rounds // looks)
        cuts = {max(every, int(share * self.rounds) // every * every) for share in CUTS}
        for done in range(1, self.rounds + 1):
            race.run_round()
            looked = done % every == 0 or done == self.rounds
            for t in alive if looked else race.failed.keys() & alive:
                found[t] = self._look(found[t], race, t, done, alarms[t])
            if looked:
                self.looked(seed, done)
            if looked and done < self.rounds:
                sound = [t for t in alive if found[t].status == "done"]
                ranked = sorted(sound, key=lambda t: self.badness([found[t]]))
                worse = ranked[(len(ranked) + 1) // 2 :] if self.halve and done in cuts else []
                for t in ranked if self.over(found) else worse:
                    found[t] = found[t]._replace(status="given up")
            alive = [t for t in alive if found[t].status == "done"]
            race.keep(alive)
        return refused + found

    def _look(self, one: Tried, race: Sweep, t: int, done: int, alarm: Alarm) -> Tried:
        """What is known of the t-th setting after so many rounds."""
        now = one._replace(rounds=done, gradients=race.ledger(t).gradients)
        row = {} if t in race.failed else measured(race.problem, race.x(t))
        if not row or alarm.look(row, None):
            return now._replace(value=math.nan, status="diverged")
        value, aim = row[self.column], self.goal
        if isinstance(aim, EarlyStopping) and aim.reached(self.column, value):
            now = now._replace(reached=now.reached or done)
        return now._replace(value=value)


def over_seeds(runs: Sequence[Tried]) -> Tried:
    """Runs of one setting as one: their means, and the status of one that did not end well."""
    late = [one.reached for one in runs if one.reached is not None]
    return max(runs, key=lambda one: (one.status == "diverged", one.status != "done"))._replace(
        value=mean(one.value for one in runs),
        reached=mean(late) if len(late) == len(runs) else None,
    )


def tested(problem: Problem) -> bool:
    """Whether metrics are of samples that no client holds out for itself."""
    return problem.metric_samples == "test" and problem.own_samples == "train"


def measured(problem: Problem, x: Tensor) -> dict[str, float]:
    """Metrics, and those of the clients' training samples where the others are of a test."""
    row = dict(problem.metrics(x))
    if tested(problem):
        own = problem.client_metrics(x).items()
        row |= {f"train_{name}": float(numbers.mean()) for name, numbers in own}
    return row


def parted(setting: Mapping[str, float]) -> tuple[dict[str, float], dict[str, float]]:
    """What of a setting is the method's, and what is of its runs."""
    of_runs = {name: value for name, value in setting.items() if name in OF_RUNS}
    return {name: value for name, value in setting.items() if name not in OF_RUNS}, of_runs


def _beyond(values: Sequence[float], best: float) -> list[float]:
    """More values, on the side where the best one is at the end."""
    end, inner = values[:2] if best == values[0] else values[:-3:-1]
    further = [end * (end / inner) ** k for k in range(1, BEYOND + 1)]
    return sorted([*values, *(float(f"{value:.6g}") for value in further)])
