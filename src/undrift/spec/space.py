"""Hyper-parameters with several values: lists, and numbers between two ends."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterator, Mapping
from typing import Annotated, Literal, Self

from undrift.core.method import Method
from undrift.core.options import OF_RUNS
from undrift.core.params import (
    Count,
    Natural,
    Positive,
    Record,
    Rule,
    hints,
    made,
    numeric,
)
from undrift.core.stopping import Goal

Seeds = Annotated[
    list[Natural],
    Rule("a list of one or more different ones", lambda some: 0 < len(some) == len({*some})),
]
Ends = Annotated[
    list[float],
    Rule("list of two numbers, the smaller one first", lambda e: len(e) == 2 and e[0] < e[1]),
]
Some = Annotated[
    list[float], Rule("list of different numbers", lambda v: v and len({*v}) == len(v))
]
Space = Mapping[str, "Several"]
"""The values to try, by name."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Several(Record):
    """What is tried of one number.

    Args:
        values: these.
        log: numbers between two ends, by equal factors.
        linear: numbers between two ends, by equal differences.
        n: how many; left out: undrift tune draws them.
    """

    owner, short = "space", "list of numbers"

    values: Some | None = None
    log: Ends | None = None
    linear: Ends | None = None
    n: Count | None = None

    @classmethod
    def read(cls, given: object) -> Self:
        """From a list too."""
        return made(cls, {"values": given} if isinstance(given, list | tuple) else given)

    def conditions(self) -> dict[str, str]:
        if sum(kind is not None for kind in (self.values, self.log, self.linear)) != 1:
            return {"": "a space is one of values, log and linear"}
        if self.values is not None and self.n is not None:
            return {"n": "n counts numbers between two ends; values are as many as there are"}
        if self.log is not None and self.log[0] <= 0:
            return {"log": "both ends of log are > 0"}
        return {}

    @property
    def ends(self) -> list[float]:
        """The least and the largest."""
        some = self.values or self.log or self.linear or []
        return [min(some), max(some)]

    def grid(self) -> list[float] | None:
        """The values in order; ``None`` where they are drawn."""
        n = len(self.values) if self.values else self.n or 0
        return [self.at(k / max(1, n - 1)) for k in range(n)] or None

    def at(self, share: float) -> float:
        """The number at a share of the way from the first to the last."""
        if self.values:
            return sorted(self.values)[min(int(share * len(self.values)), len(self.values) - 1)]
        low, high = self.ends
        found = low * (high / low) ** share if self.log else low + (high - low) * share
        return float(f"{found:.6g}")


def spaces(table: Mapping[str, object], kind: type[Method]) -> dict[str, object]:
    """What of the table of a method has several values, as it is written.

    A list of steps is one number for each client.
    """
    several = {name for name, hint in hints(kind).items() if numeric(hint)} | {*OF_RUNS}
    return {
        name: value
        for name, value in table.items()
        if name in several
        and (
            (isinstance(value, list | tuple) and name != "steps")
            or (isinstance(value, dict) and not {"values", "log", "linear"}.isdisjoint(value))
        )
    }


def whole(name: str, kind: type[Method], value: float) -> float:
    """``value``, as a whole number where its field takes nothing else."""
    return round(value) if name in OF_RUNS or numeric(hints(kind)[name], int) else float(value)


def grid_of(space: Space, kind: type[Method]) -> dict[str, list[float]]:
    """The values of each, none of what is drawn."""
    return {n: [whole(n, kind, value) for value in some.grid() or ()] for n, some in space.items()}


def settings(space: Space, kind: type[Method]) -> Iterator[dict[str, float]]:
    """Every choice of one value each, of spaces that are grids."""
    for chosen in itertools.product(*grid_of(space, kind).values()):
        yield dict(zip(space, chosen, strict=True))


def called(label: str, setting: Mapping[str, float]) -> str:
    """The label of a method with one of its settings.

    >>> called("FedDyn", {"lr": 0.05, "alpha": 1.0})
    'FedDyn lr=0.05 alpha=1'
    """
    return " ".join([label, *(f"{name}={value:g}" for name, value in setting.items())])


@dataclasses.dataclass(frozen=True, kw_only=True)
class TuningNote(Record):
    """How the values of a method were found, which tables say beside it.

    Args:
        over: what was tried, in words.
        settings: how many settings were tried.
        gradients: what that took, of all clients together.
        by: what they were compared by, in words.
        asked: how many of the settings were asked for; the others came when the grid was extended.
    """

    owner = "tuned"

    over: str
    settings: Count
    gradients: Natural
    by: str
    asked: Natural = 0

    def __str__(self) -> str:
        return f"{self.over}, {self.settings} setting{'s' * (self.settings > 1)}"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Tuning(Record):
    """How the best values of each method are found.

    Args:
        rounds: those of a trial; left out: those of the run.
        seed: of trials, apart from the seeds that are shown: a number, or a list, one trial with
            each.
        goal: what settings are compared by: a metric, or a table of metric and mode; left out: what
            the spec's target is of, else what its best model is best in.
        target: compare by the rounds until the goal is so good; left out: the spec's target.
        halve: give up the worse half of the settings after a quarter and a half of the rounds,
            which costs half as much, and loses those that are best at the end and not before.
        extend: where the best value is the least or the largest of a grid, go on that way.
        samples: settings that are drawn of spaces without n.
        sampler: how they are drawn: random, or by Optuna: tpe, gp or qmc.
        gradients: the most that a method may take, of all clients together.
        seconds: the longest that the search of a method may take.
    """

    owner = "tune"

    rounds: Count | None = None
    seed: Natural | Seeds = 1_000_000
    goal: Goal | None = None
    target: float | None = None
    halve: bool = False
    extend: bool = True
    samples: Count = 16
    sampler: Literal["random", "tpe", "gp", "qmc"] = "random"
    gradients: Count | None = None
    seconds: Positive | None = None

    @property
    def seeds(self) -> list[int]:
        """One trial of every setting with each."""
        return [self.seed] if isinstance(self.seed, int) else self.seed
