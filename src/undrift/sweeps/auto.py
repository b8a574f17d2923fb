"""The step of a method on a problem, by short runs side by side: ``lr = "auto"``.

Steps are powers of the square root of 2, rungs of a ladder. Every sixth is tried for two rounds,
until the best is inside. Around it every second one runs for an eighth of the rounds, and around
the best of those for a quarter: bias and noise stop a large step where a smaller one goes on. The
best three go on to three eighths, and two to half of the rounds, for which the step is chosen.

The edge is the least step whose run blew up: what is chosen is at most 0.71 of it, and does not
grow at a rate that would blow up in the rest of the rounds.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from typing import NamedTuple

import numpy as np
from torch import Tensor

from undrift.core.method import Method
from undrift.core.params import BadParameters
from undrift.core.problem import Problem, Unsupported
from undrift.engines.engine import first_point
from undrift.sweeps.search import measured
from undrift.sweeps.sweep import Sweep

SEED = 0x6175746F
"""Of the short runs, whatever the seed of the run that follows."""
FIRST, WIDE, MOST = 2, 6, 12
"""Rounds of the first rungs, their distance, and how often they are extended at most."""
SHORTEST = 4
"""Rounds of a stage at least."""
LOOKS = 8
"""How often a stage is measured."""
GROWTH = 100.0
"""A run blows up when its loss, or gap, is so many times the first: some swing before they fall."""
CLOSE, ROUNDING = 1e-8, 1e-16
"""Of the first gap: who has come so close is compared by when; what is below any trust."""
TINY = 1e-300

Make = Callable[[float], Method]
Badness = tuple[float, float]
"""By this a step comes before others: the round in which it came close, and its loss."""


class Found(NamedTuple):
    """A step, and what it took to find it."""

    step: float
    gradients: int
    edge: float
    """The least step that blew up; infinite where none did."""


def at(method: Method, step: float) -> Method:
    """``method`` with a step: its lr, or one over the proximal weight that takes its place."""
    field = method.step_field
    return dataclasses.replace(method, **{field: step if field in method.step_sizes else 1 / step})


def find(make: Make, problem: Problem, rounds: int, **options: object) -> Found:
    """The step for ``rounds`` of the method that ``make`` gives for a step.

    Raises :class:`Unsupported` where runs blow up with every step.
    """
    runs = ShortRuns(make, problem, options)
    eighth, quarter, half = (max(SHORTEST, rounds // n) for n in (8, 4, 2))
    L = problem.cheap_constants.L
    best = least(runs.climb(-2 * round(math.log2(L)) if L else 0, FIRST, apart=WIDE))
    best = least(runs.climb(best, eighth))
    found = runs.climb(best, quarter, half)
    best = least(found)
    if math.isfinite(close := found[best][0]):  # few rounds tell it from its neighbours
        enough = min(half, max(SHORTEST, 2 * int(close)))
        found = runs.stage([best - 1, best, best + 1], enough)
        finalists = [least(found)]
    else:
        found = runs.stage(ranked(found)[:3], (quarter + half) // 2, half)
        finalists = ranked(found)[:2]
    best = least(runs.stage(finalists, half))
    while not runs.steady(best, half, rounds):
        best = least(runs.stage([best - 2], half))
    return Found(step_at(best), runs.gradients, step_at(runs.edge))


def ranked(found: Mapping[int, Badness]) -> list[int]:
    """The rungs from the best on."""
    return sorted(found, key=lambda k: found[k])


def least(found: Mapping[int, Badness]) -> int:
    """The best rung."""
    return ranked(found)[0]


def step_at(rung: float) -> float:
    return float(2 ** (rung / 2))


Curve = list[tuple[int, float]]
"""The loss after so many rounds."""


class Race:
    """Runs in one stack, each known by the rung of its step."""

    def __init__(self, sweep: Sweep, rungs: Sequence[int], first: float):
        self.sweep, self.rungs, self.done = sweep, list(rungs), 0
        self.curves: dict[int, Curve] = {k: [(0, first)] for k in rungs}
        """Of those that go on."""

    def keep(self, rungs: Iterable[int]) -> None:
        """Go on with these alone."""
        self.curves = {k: curve for k, curve in self.curves.items() if k in rungs}
        self.sweep.keep([t for t, k in enumerate(self.rungs) if k in self.curves])

    def go(self, rounds: int, loss: Callable[[Tensor], float], most: float) -> list[int]:
        """Run up to so many rounds; returns the rungs that have blown up, beyond ``most``."""
        looks, blown = {rounds * (k + 1) // LOOKS for k in range(LOOKS)}, list[int]()
        while self.curves and self.done < rounds:
            self.sweep.run_round()
            self.done += 1
            going = [(t, k) for t, k in enumerate(self.rungs) if k in self.curves]
            failed = [k for t, k in going if t in self.sweep.failed]
            for t, k in going if self.done in looks else ():
                if k not in failed:
                    self.curves[k].append((self.done, loss(self.sweep.x(t))))
            failed += [k for k, curve in self.curves.items() if not curve[-1][1] <= most]
            if failed:
                self.keep(self.curves.keys() - failed)
                blown += failed
        return blown


class ShortRuns:
    """Runs of one method that differ in their step."""

    def __init__(self, make: Make, problem: Problem, options: dict[str, object]):
        self.make, self.problem, self.options = make, problem, {**options, "seed": SEED}
        self.first = self.loss(first_point(options.get("x0"), problem))
        self.most = self.first + (GROWTH - 1) * abs(self.first) if self.first else math.inf
        self.races: list[Race] = []
        self.edge = math.inf
        """The least rung that has blown up."""

    @property
    def gradients(self) -> int:
        """Of all runs."""
        every = [(race.sweep, t) for race in self.races for t in range(len(race.rungs))]
        return sum(sweep.ledger(t).gradients for sweep, t in every)

    @property
    def curves(self) -> dict[int, Curve]:
        """Of the runs that go on."""
        every = [pair for race in self.races for pair in race.curves.items()]
        return {k: curve for k, curve in every if k < self.edge}

    def loss(self, x: Tensor) -> float:
        """f(x), or how far it is above its minimum; of training samples alone."""
        row = measured(self.problem, x)
        if self.problem.metric_samples == "test" and "train_loss" not in row:
            raise Unsupported("short runs are judged by training samples: set train_metrics")
        return max(row["gap"], TINY) if "gap" in row else row.get("train_loss", row["loss"])

    def climb(
        self, middle: int, rounds: int, ahead: int | None = None, apart: int = 2
    ) -> dict[int, Badness]:
        """As :meth:`stage`, of rungs around one, so far apart, until the best is inside."""
        rungs = [middle + apart, middle, middle - apart]
        for _ in range(MOST):
            found = self.stage(rungs, rounds, ahead)
            best = least(found)
            if best == max(found) and best + apart < self.edge:
                rungs = [*found, best + apart]
            elif best == min(found):
                rungs = [*found, best - apart]
            else:
                break
        return found

    def stage(
        self, rungs: Iterable[int], rounds: int, ahead: int | None = None
    ) -> dict[int, Badness]:
        """How good ``rungs`` are after so many rounds; or those below them, if all blow up.

        By what they have then, or will have after ``ahead`` rounds.
        """
        for lower in range(0, WIDE * MOST, WIDE):
            self.go([k - lower for k in rungs], rounds)
            if found := self.curves:
                return {k: self.badness(curve, ahead) for k, curve in found.items()}
        least = step_at(min(rungs) - lower)
        raise Unsupported(f"its runs blow up with every step down to {least:.2g}")

    def badness(self, curve: Curve, ahead: int | None) -> Badness:
        """When a run came close, and its last loss, or what its later half, drawn on, has after
        ``ahead`` rounds: by its logarithm, where losses are positive.
        """
        close = [t for t, loss in curve if 0 < loss <= CLOSE * self.first]
        last, positive = curve[-1][0], all(loss > 0 for _, loss in curve)
        late = [(t, math.log(v) if positive else v) for t, v in curve if 2 * t >= last]
        value = late[-1][1]
        if ahead and len(late) > 1:
            times, values = np.array(late).T
            slope, value = np.polyfit(times - last, values, 1)
            value += min(slope, 0.0) * max(ahead - last, 0)
        return (float(close[0]) if close else math.inf), float(value)

    def steady(self, rung: int, rounds: int, end: int) -> bool:
        """Whether a run does not blow up by its end if it grows as from its second third to its
        last. What grows from rounding errors on is not seen until it is larger than what falls.
        """
        curve = self.curves[rung]
        trust = max(ROUNDING * self.first, TINY)
        late = max([trust, *(v for t, v in curve if 3 * t > 2 * rounds)])
        early = max([trust, *(v for t, v in curve if rounds <= 3 * t <= 2 * rounds)])
        rate = 3 * math.log(late / early) / rounds
        return late <= early or rate * (end - rounds) <= math.log(self.most / late)

    def go(self, rungs: Sequence[int], rounds: int) -> None:
        """Take the runs of these rungs so far, from where they are; others end."""
        for race in self.races:
            race.keep(rungs)
        methods = dict[int, Method]()
        for k in rungs:
            if k not in self.curves and k < self.edge:
                with suppress(BadParameters):  # of other fields, which theory sets by the step
                    methods[k] = self.make(step_at(k))
        if methods:
            sweep = Sweep([*methods.values()], self.problem, **self.options)
            self.races.append(Race(sweep, [*methods], self.first))
        for race in self.races:
            self.edge = min([self.edge, *race.go(rounds, self.loss, self.most)])
