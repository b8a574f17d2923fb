"""Schedules of lr: what it is multiplied by in each round. Listing them loads no torch.

A factor is a function of the rounds that counted before; the last one a schedule names holds from
there on.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable

from undrift.core.params import (
    BadParameters,
    Count,
    Natural,
    Positive,
    Probability,
    Variant,
    describe,
    fits,
    not_allowed,
    plain,
    shown,
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Schedule(Variant):
    """What lr is multiplied by; the fields of a subclass are its parameters.

    Args:
        warmup: rounds before the schedule, in which the factor rises to 1 by equal parts.
    """

    owner, short = "schedule", "number > 0 and <= 1"

    warmup: Natural = 0

    @classmethod
    def read(cls, given: object) -> Schedule:
        """From a number too, by which lr falls after every round, and from a function of it."""
        if isinstance(given, int | float) and not isinstance(given, bool):
            if not fits(given, Probability):
                text = not_allowed(cls.owner, given, describe(Probability))
                raise BadParameters(cls.owner, {"": text})
            return Exponential(rate=given)
        if callable(given) and not isinstance(given, type | Schedule):
            return Computed(function=given)
        return super().read(given)

    def __call__(self, round: int) -> float:
        """The factor of a round, counted from 0. Raises :class:`BadParameters` if it is none."""
        if round < self.warmup:
            return (round + 1) / (self.warmup + 1)
        value = self.after(round)
        if not (isinstance(value, int | float) and 0 < value < math.inf) or value is True:
            text = f"the factor on lr in round {round} is {shown(value)}, not a number > 0"
            raise BadParameters("schedule", {"schedule": text})
        return value

    def change(self, round: int) -> float:
        """What lr is multiplied by since the round before, or since it was given."""
        return self(round) / self(round - 1) if round else self(0)

    def after(self, round: int) -> float:
        """The factor of a round once it is warm."""
        raise NotImplementedError

    def least(self, rounds: int) -> float:
        """The smallest factor of so many rounds, of one that rises only as it warms up."""
        return min(self(0), self(rounds - 1))


@dataclasses.dataclass(frozen=True, kw_only=True)
class Constant(Schedule):
    """lr as it is, after the warm-up."""

    name = "constant"
    title = "lr as it is"

    def after(self, round: int) -> float:
        return 1.0


@dataclasses.dataclass(frozen=True, kw_only=True)
class Exponential(Schedule):
    """lr times the same number after every round: what a number alone stands for.

    Args:
        rate: what lr is multiplied by after a round.
    """

    name = "exponential"
    title = "lr times the same number after every round"

    rate: Probability

    def after(self, round: int) -> float:
        return self.rate ** (round - self.warmup)

    def change(self, round: int) -> float:
        return self.rate if round > self.warmup else super().change(round)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Cosine(Schedule):
    """Half a wave of a cosine, from 1 down to the last factor.

    Args:
        rounds: in which lr falls, the warm-up included; as many as the run has.
        last: the factor of the last of them.
    """

    name = "cosine"
    title = "half a wave of a cosine, from 1 to the last factor"

    rounds: Count
    last: Probability = 0.01

    def conditions(self) -> dict[str, str]:
        if self.rounds > self.warmup + 1:
            return {}
        text = f"leaves no round to fall in after a warm-up of {self.warmup}: give more"
        return {"rounds": f"rounds = {self.rounds} {text}"}

    def after(self, round: int) -> float:
        part = min((round - self.warmup) / (self.rounds - self.warmup - 1), 1.0)
        return self.last + (1 - self.last) * (1 + math.cos(math.pi * part)) / 2


@dataclasses.dataclass(frozen=True, kw_only=True)
class Step(Schedule):
    """lr times a number now and then: every so many rounds, or at given ones.

    Args:
        factor: what lr is multiplied by.
        every: rounds from one time to the next, the first round being 0.
        at: the rounds themselves, instead of every.
    """

    name = "step"
    title = "lr times a number every so many rounds, or at given ones"

    factor: Probability = 0.1
    every: Count | None = None
    at: list[Count] | None = None

    def conditions(self) -> dict[str, str]:
        if (self.every is None) == (not self.at):
            return {"every": "give every, or the rounds in at, and not both"}
        return {}

    def after(self, round: int) -> float:
        times = round // self.every if self.every else sum(one <= round for one in self.at or ())
        return self.factor**times


@dataclasses.dataclass(frozen=True, kw_only=True)
class Listed(Schedule):
    """The factor of every round, one by one.

    A warm-up takes the place of the first factors; the others stay with their rounds.

    >>> listed = Listed(factors=[1.0, 0.9, 0.8, 0.7], warmup=2)
    >>> [round(listed(k), 2) for k in range(5)]
    [0.33, 0.67, 0.8, 0.7, 0.7]

    Args:
        factors: those of the rounds 0, 1, ... with the warm-up counted; the last one holds from
            there on.
    """

    name = "listed"
    title = "the factor of every round, one by one"

    factors: list[Positive]

    def conditions(self) -> dict[str, str]:
        return {} if self.factors else {"factors": not_allowed("factors", [], "one or more")}

    def after(self, round: int) -> float:
        return self.factors[min(round, len(self.factors) - 1)]

    def least(self, rounds: int) -> float:
        return min(map(self, range(min(rounds, max(len(self.factors), self.warmup + 1)))))


@dataclasses.dataclass(frozen=True, kw_only=True)
class Computed(Schedule):
    """A user's function of the number of the round, always the same for the same number."""

    name = "a function"

    function: Callable[[int], float]

    def __post_init__(self) -> None:
        pass  # a function is taken as it is

    def __repr__(self) -> str:
        named = getattr(self.function, "__qualname__", type(self.function).__name__)
        return f"Computed({getattr(self.function, '__module__', '')}.{named})"

    def after(self, round: int) -> float:
        found: float = plain(self.function(round))
        return found

    def listed(self, rounds: int) -> Listed:
        """The same for so many rounds, as a spec can have it."""
        return Listed(factors=[float(self(round)) for round in range(rounds)])


registry: dict[str, type[Schedule]] = {
    kind.name: kind for kind in (Constant, Exponential, Cosine, Step, Listed)
}
"""Every schedule by name."""
Schedule.kinds = registry


__all__ = ["Constant", "Cosine", "Exponential", "Listed", "Schedule", "Step"]
