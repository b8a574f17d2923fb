"""The step of a method on a problem, by short runs side by side: ``lr = "auto"``.

Steps are powers of the square root of 2, rungs of a ladder. Every sixth is tried for two rounds,
until the best is inside; then they get closer and the runs longer. A method with bias or noise goes
on falling with a smaller step where a larger one has stalled, so longer runs look downwards, and
are judged by what they would have after half of the rounds if they went on as before.

The edge is the least step whose run blew up: what is chosen is at most 0.71 of it. It has itself
run for five eighths of the rounds, and does not grow at a rate that would blow up in the others.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import NamedTuple

import numpy as np
from torch import Tensor

from undrift.core.method import Method
from undrift.core.params import BadParameters
from undrift.core.problem import Problem, Unsupported
from undrift.engines.engine import first_point
from undrift.sweeps.sweep import Sweep

SEED = 0x6175746F
"""Of the short runs, whatever the seed of the run that follows."""
FIRST, WIDE, MOST = 2, 6, 12
"""Rounds of the first rungs, their distance, and how often they are extended at most."""
STAGES = (
    (1 / 16, (4, 2, 0, -2, -4, -6)),
    (1 / 8, (2, 0, -2, -4)),
    (1 / 4, (0, -2, -4)),
)
"""Shares of the rounds, and the rungs that are taken so far, from the best of the stage before."""
AHEAD, HORIZON = 1 / 4, 1 / 2
"""From which share on runs are judged by what they will have, and when."""
LAST, SLOWER = 3 / 8, 3.0
"""The share of the last stage, which looks between two rungs: above the best if with half its step
the logarithm of the loss will be so much larger, else below."""
PROOF = 5 / 8
"""The share of the rounds that what is chosen has run itself."""
SHORTEST = 4
"""Rounds of a stage at least."""
LOOKS = 8
"""How often a stage is measured."""
GROWTH = 3.0
"""A run blows up when its loss, or gap, is so many times the first."""
CONVERGED = 1e-11
"""Of the first gap: what falls below it is rounding."""
TINY = 1e-300


Make = Callable[[float], Method]


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
    best, horizon, found = runs.bracket(), HORIZON * rounds, dict[int, float]()
    for share, rungs in STAGES:
        length = max(SHORTEST, int(share * rounds))
        ahead = max(horizon, length) if share >= AHEAD else None
        found = runs.stage([best + k for k in rungs], length, ahead)
        best = least(found)
    between = 1 if found.get(best - 2, -math.inf) > found[best] + SLOWER else -1
    length = max(SHORTEST, int(LAST * rounds))
    best = least(runs.stage([best, best + between], length, max(horizon, length)))
    while not runs.steady(best, length, max(length + SHORTEST, int(PROOF * rounds)), rounds):
        best = least(runs.stage([best - 2], length))
    return Found(step_at(best), runs.gradients, step_at(runs.edge))


def least(found: Mapping[int, float]) -> int:
    """The best rung."""
    return min(found, key=lambda k: found[k])


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
        self.most = first + (GROWTH - 1) * abs(first) if first else math.inf

    def keep(self, rungs: Sequence[int]) -> None:
        """Go on with these alone."""
        self.curves = {k: curve for k, curve in self.curves.items() if k in rungs}
        self.sweep.keep([t for t, k in enumerate(self.rungs) if k in self.curves])

    def go(self, rounds: int, loss: Callable[[Tensor], float]) -> list[int]:
        """Run up to so many rounds; returns the rungs that have blown up."""
        looks, blown = {rounds * (k + 1) // LOOKS for k in range(LOOKS)}, list[int]()
        while self.curves and self.done < rounds:
            self.sweep.run_round()
            self.done += 1
            going = [(t, k) for t, k in enumerate(self.rungs) if k in self.curves]
            failed = [k for t, k in going if t in self.sweep.failed]
            for t, k in going if self.done in looks else ():
                if k not in failed:
                    self.curves[k].append((self.done, loss(self.sweep.x(t))))
            failed += [k for k, curve in self.curves.items() if not curve[-1][1] <= self.most]
            if failed:
                self.keep([k for k in self.curves if k not in failed])
                blown += failed
        return blown


class ShortRuns:
    """Runs of one method that differ in their step."""

    def __init__(self, make: Make, problem: Problem, options: dict[str, object]):
        self.make, self.problem, self.options = make, problem, {**options, "seed": SEED}
        self.first = self.loss(first_point(options.get("x0"), problem))
        self.races: list[Race] = []
        self.edge = math.inf
        """The least rung that has blown up."""

    @property
    def gradients(self) -> int:
        """Of all runs."""
        every = [(race.sweep, t) for race in self.races for t in range(len(race.rungs))]
        return sum(sweep.ledger(t).gradients for sweep, t in every)

    def loss(self, x: Tensor) -> float:
        """f(x), or how far it is above its minimum; of training samples alone."""
        tested = self.problem.metric_samples == "test"
        if tested and self.problem.own_samples == "train":
            return float(self.problem.client_metrics(x)["loss"].mean())
        row = self.problem.metrics(x)
        if tested and "train_loss" not in row:
            raise Unsupported("short runs are judged by training samples: set train_metrics")
        return max(row["gap"], TINY) if "gap" in row else row.get("train_loss", row["loss"])

    def bracket(self) -> int:
        """A rung that is better after two rounds than eight times its step, and than an eighth."""
        L = self.problem.cheap_constants.L
        best = -2 * round(math.log2(L)) if L else 0
        low, high = best - WIDE, best + WIDE
        for _ in range(MOST):
            best = least(self.stage(range(low, high + 1, WIDE), FIRST))
            low, high = min(low, best - WIDE), max(high, best + WIDE)
        return best

    def stage(
        self, rungs: Sequence[int], rounds: int, ahead: float | None = None
    ) -> dict[int, float]:
        """How good ``rungs`` are after so many rounds; or one below them, if all blow up.

        By what they have then, or will have after ``ahead`` rounds; less is better.
        """
        lower = [[min(rungs) - WIDE * k] for k in range(1, MOST)]
        for some in (rungs, *lower):
            self.go(some, rounds)
            curves = {k: curve for race in self.races for k, curve in race.curves.items()}
            found = {k: self.judged(curve, ahead) for k, curve in curves.items() if k < self.edge}
            if found:
                return found
        raise Unsupported(f"its runs blow up with every step down to {step_at(min(some)):.2g}")

    def judged(self, curve: Curve, ahead: float | None) -> float:
        """The last loss of a run, or the one that its later half, drawn on, has after ``ahead``
        rounds: by its logarithm, where losses are positive.
        """
        if ahead is None:
            return curve[-1][1]
        positive = all(value > 0 for _, value in curve)
        under = [n for n, (_, v) in enumerate(curve) if positive and v <= CONVERGED * self.first]
        curve = curve[: under[0] + 1] if under else curve
        last, half = curve[-1][0], min(curve[-1][0] / 2, curve[-2][0])
        late = [(t, math.log(v) if positive else v) for t, v in curve if t >= half]
        times, values = np.array(late).T
        slope, start = np.polyfit(times - last, values, 1)
        return float(start + min(slope, 0.0) * (ahead - last))

    def steady(self, rung: int, before: int, rounds: int, end: int) -> bool:
        """Whether a run does not blow up by its end if it grows as between two earlier rounds.

        What grows from rounding errors on is not seen until it is larger than what falls.
        """
        self.go([rung], rounds)
        for race in self.races:
            if curve := race.curves.get(rung):
                early = max(v for t, v in curve if before <= 2 * t <= 2 * before)
                late = max(v for t, v in curve if t > before)
                rate = math.log(late / early) / (rounds - before) if early > 0 < late else 0.0
                return rate * (end - rounds) <= math.log(race.most / late) if rate > 0 else True
        return False

    def go(self, rungs: Sequence[int], rounds: int) -> None:
        """Take the runs of these rungs so far, from where they are; others end."""
        for race in self.races:
            race.keep(rungs)
        going, methods = {k for race in self.races for k in race.curves}, dict[int, Method]()
        for k in rungs:
            if k not in going and k < self.edge:
                with suppress(BadParameters):  # of other fields, which theory sets by the step
                    methods[k] = self.make(step_at(k))
        if methods:
            sweep = Sweep([*methods.values()], self.problem, **self.options)
            self.races.append(Race(sweep, [*methods], self.first))
        for race in self.races:
            self.edge = min(self.edge, *race.go(rounds, self.loss), math.inf)
