"""Who takes part in a round."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, Literal

from undrift.core.params import (
    BelowOne,
    Count,
    Record,
    Refusal,
    fits,
    made,
)
from undrift.core.streams import Streams

if TYPE_CHECKING:
    import numpy as np


@dataclasses.dataclass(frozen=True)
class Cohort:
    """The clients of one phase of ``round``: their numbers in ascending order, out of ``total``."""

    members: np.ndarray
    total: int
    round: int
    planned: Sequence[int] = ()
    """Local steps of each member."""

    @property
    def size(self) -> int:
        return len(self.members)

    @property
    def full(self) -> bool:
        return self.size == self.total

    @property
    def fraction(self) -> float:
        """|S| / N."""
        return self.size / self.total

    @property
    def steps(self) -> float:
        """Local steps of its members, on average."""
        return sum(self.planned) / self.size if self.planned else 1.0

    def without(self, gone: Collection[int]) -> Cohort:
        """The same cohort for those of its members that are not ``gone``."""
        at = [k for k, member in enumerate(self.members.tolist()) if member not in gone]
        planned = [self.planned[k] for k in at] if self.planned else ()
        return dataclasses.replace(self, members=self.members[at], planned=planned)


@dataclasses.dataclass(frozen=True)
class Sampling(Record):
    """How a cohort is drawn.

    Args:
        size: clients per round; with bernoulli sampling, how many on average.
        sampling: fixed: that many without replacement; bernoulli: each client by its own coin,
            redrawn while none is in.
        pool: only so many clients are candidates at a time.
        renew: rounds after which a new pool is drawn.
        dropout: probability that a sampled client does not take part after all; one always does.
    """

    owner, short = "cohort", "whole number >= 1"

    size: Count
    sampling: Literal["fixed", "bernoulli"] = "fixed"
    pool: Count | None = None
    renew: Count = 1
    dropout: BelowOne = 0.0

    @classmethod
    def read(cls, given: object) -> Sampling:
        """From a number too, which is the size."""
        return made(cls, {"size": given} if fits(given, Count) else given)

    def refuse(self, clients: int) -> list[Refusal]:
        """Why such cohorts cannot be drawn from ``clients``."""
        if self.pool is not None and self.pool > clients:
            text = f"a pool of {self.pool} is more than the {clients} clients there are"
            return [Refusal("cohort.pool", text)]
        candidates = self.pool or clients
        if self.size > candidates:
            among = "clients there are" if self.pool is None else "candidates of the pool"
            text = f"a cohort of {self.size} is more than the {candidates} {among}"
            return [Refusal("cohort.size", text)]
        return []

    def always_full(self, clients: int) -> bool:
        return self.size == clients and not self.dropout

    @property
    def varies(self) -> bool:
        """Whether cohorts differ in size."""
        return self.sampling == "bernoulli" or self.dropout > 0

    def draw(self, streams: Streams, round: int, total: int) -> Cohort:
        """The cohort of a round: a pure function of the seed and the round."""
        import numpy as np

        candidates, rng = self.pool or total, streams.at("cohort", round)
        members = (
            rng.choice(candidates, self.size, replace=False)
            if self.sampling == "fixed"
            else np.arange(0)
        )
        while not len(members):
            members = np.flatnonzero(rng.random(candidates) < self.size / candidates)
        if self.pool is not None:
            pool = streams.at("pool", round // self.renew).choice(total, self.pool, replace=False)
            members = pool[members]
        if self.dropout:
            coins = streams.at("dropout", round)
            staying = members[coins.random(len(members)) >= self.dropout]
            members = staying if len(staying) else coins.choice(members, 1)
        return Cohort(np.sort(members), total, round)
