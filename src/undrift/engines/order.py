"""What one phase of a round asks of the clients: a pure function of (settings, seed, round)."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from undrift.core.cohort import Cohort, Sampling
from undrift.core.method import Method, Phase, Round
from undrift.core.streams import Streams


class Order(NamedTuple):
    """One phase of one round: who works, and how."""

    round: int
    place: int
    """Of the phase in its round, from 0."""
    phase: Phase
    cohort: Cohort
    blocks: int
    """How often the local work is repeated before communicating."""
    blocks_before: int
    """Blocks of all the rounds before."""
    decay: float
    """What lr was multiplied by since the round before."""
    picked: int | None
    """The only client that uploads, where the reduction is ``pick``."""
    last: bool
    """Whether the phase ends its round."""
    iterations: int
    """Local steps of the round: the most of any client, times the blocks."""
    following: Callable[[], np.ndarray]
    """The cohort of the next round, for those who fetch its states ahead."""

    def share(self, held: np.ndarray | None = None) -> Share:
        """The part of the cohort among the clients ``held`` (ascending; ``None``: all)."""
        members, steps = self.cohort.members, self.cohort.planned
        if held is None:
            return Share(self, members, steps, len(members) == self.cohort.total)
        at = np.flatnonzero(np.isin(members, held))
        return Share(self, members[at], [steps[k] for k in at.tolist()], False)


class Share(NamedTuple):
    """The members of a cohort that one site holds, with their local steps."""

    order: Order
    members: np.ndarray
    steps: Sequence[int]
    everyone: bool
    """Whether these are all the clients of the federation."""

    def part(self, rows: slice) -> Share:
        """Some of them."""
        return Share(self.order, self.members[rows], self.steps[rows], False)

    def groups(self, most: int) -> list[slice]:
        """Rows of groups of at most ``most`` clients, as equal as possible."""
        size = len(self.members)
        count = -(-size // most)
        return [slice(*ends) for ends in pairwise(size * k // count for k in range(count + 1))]


class Plan(NamedTuple):
    """A round: the local steps of every client and the most of them, its phases and blocks."""

    steps: Sequence[int]
    most: int
    phases: list[Phase]
    blocks: int


class Clock:
    """Makes the orders of all phases, in any sequence: no answer depends on earlier ones."""

    def __init__(
        self,
        method: Method,
        steps: Sequence[int],
        sampling: Sampling,
        streams: Streams,
        decay: float = 1.0,
    ):
        self.method, self.steps, self.sampling, self.streams = method, steps, sampling, streams
        self.decay, self.clients = decay, len(steps)
        self._everyone, self._most = np.arange(self.clients), max(steps)
        self._full = sampling.always_full(self.clients)
        self._repeats = method.repeats() and decay == 1
        self._single = type(method).blocks is Method.blocks
        self._plan: tuple[int, Plan] | None = None
        self._counted = 0, 0

    def at(self, round: int, index: int) -> Order:
        """The order of one phase of a round."""
        plan = self.plan(round)
        phase = plan.phases[index]
        cohort, picked = self._cohort(phase, round, plan.steps), None
        if phase.reduction == "pick":
            place = self.streams.at("pick", round, step=index).integers(cohort.size)
            picked = int(cohort.members[int(place)])
        return Order(
            round=round,
            place=index,
            phase=phase,
            cohort=cohort,
            blocks=plan.blocks,
            blocks_before=round if self._single else self._blocks_before(round),
            decay=self.decay if round else 1.0,
            picked=picked,
            last=index + 1 == len(plan.phases),
            iterations=plan.most * plan.blocks,
            following=lambda: self.drawn(round + 1),
        )

    def plan(self, round: int) -> Plan:
        """Steps, phases and blocks of a round."""
        if self._plan is not None and (self._repeats or self._plan[0] == round):
            return self._plan[1]
        method = self.method
        if self.decay != 1:
            lr = getattr(method, "lr") * self.decay**round  # noqa: B009 - refused without lr
            method = dataclasses.replace(method, lr=lr)
        now = self._begin(round)
        steps = method.local_steps(now)
        now = dataclasses.replace(now, steps=steps)
        most = self._most if steps is self.steps else max(steps)
        plan = Plan(steps, most, method.phases(now), method.blocks(now))
        self._plan = round, plan
        return plan

    def drawn(self, round: int) -> np.ndarray:
        """The members of a round's cohort."""
        if self._full:
            return self._everyone
        return self.sampling.draw(self.streams, round, self.clients).members

    def _cohort(self, phase: Phase, round: int, steps: Sequence[int]) -> Cohort:
        n, who = self.clients, phase.who
        if who == "all" or (who == "cohort" and self._full):
            return Cohort(self._everyone, n, round, steps)
        if who == "one":
            members = self.streams.at("one", round).integers(n, size=1)
        else:
            members = self.drawn(round)
        return Cohort(members, n, round, [steps[i] for i in members.tolist()])

    def _blocks_before(self, round: int) -> int:
        counted, blocks = self._counted if self._counted[0] <= round else (0, 0)
        blocks += sum(self.method.blocks(self._begin(number)) for number in range(counted, round))
        self._counted = round, blocks
        return blocks

    def _begin(self, round: int) -> Round:
        return Round(round, self.steps, lambda: self.streams.at("coins", round))
