"""What one phase of a round asks of the clients: a pure function of (settings, seed, round)."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Collection, Sequence
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from undrift.core.cohort import Cohort, Sampling
from undrift.core.method import Exchange, Method, Round
from undrift.core.schedules import Schedule
from undrift.core.streams import Streams


class Order(NamedTuple):
    """One phase of one round: who works, and how."""

    round: int
    counted: int
    """Rounds before it that counted: what a method takes for the number of the round."""
    place: int
    """Of the phase in its round, from 0."""
    phase: Exchange
    cohort: Cohort
    blocks: int
    """How often the local work is repeated before communicating."""
    blocks_before: int
    """Blocks of all the rounds before that counted."""
    decay: float
    """What lr was multiplied by since the last round that counted, or since it was given."""
    picked: int | None
    """The only client that uploads, where the reduction is ``pick``."""
    last: bool
    """Whether the phase ends its round."""
    iterations: int
    """Local steps of the round: the most of any client, times the blocks."""
    following: Callable[[], np.ndarray]
    """The cohort of the next round, for those who fetch its states ahead."""


class Share(NamedTuple):
    """Some members of a cohort, with their local steps."""

    order: Order
    members: np.ndarray
    steps: Sequence[int]
    everyone: bool
    """Whether these are all the clients of the federation."""

    def part(self, rows: slice) -> Share:
        """Some of them."""
        return Share(self.order, self.members[rows], self.steps[rows], False)

    def groups(self, most: int) -> list[slice]:
        """Rows of groups of at most ``most`` clients, as equal as possible.

        One group more than half full would be work for two cores: it is dealt in two.
        """
        size = len(self.members)
        count = 2 if most < 2 * size and 1 < size <= most else -(-size // most)
        return [slice(*ends) for ends in pairwise(size * k // count for k in range(count + 1))]


class Plan(NamedTuple):
    """A round: the local steps of every client and the most of them, its phases and blocks."""

    steps: Sequence[int]
    most: int
    phases: list[Exchange]
    blocks: int


class Clock:
    """Makes the orders of all phases, in any sequence: no answer depends on earlier ones."""

    def __init__(
        self,
        method: Method,
        steps: Sequence[int],
        sampling: Sampling,
        streams: Streams,
        schedule: Schedule | None = None,
    ):
        self.method, self.steps, self.sampling, self.streams = method, steps, sampling, streams
        self.schedule, self.clients = schedule, len(steps)
        self._everyone, self._most = np.arange(self.clients), max(steps)
        self._full = sampling.always_full(self.clients)
        self._repeats = method.repeats() and schedule is None
        self._single = type(method).blocks is Method.blocks
        self._plan: tuple[tuple[int, int], Plan] | None = None
        self._blocks: tuple[tuple[int, ...], int, int] = (), 0, 0

    def at(
        self, round: int, index: int, skipped: Sequence[int] = (), gone: Collection[int] = ()
    ) -> Order:
        """The order of one phase of a round.

        ``skipped`` are the rounds before it that did not count, ``gone`` the clients that are left
        out of this one.
        """
        counted = round - len(skipped)
        plan = self.plan(round, counted)
        phase = plan.phases[index]
        cohort, picked = self._cohort(phase, round, counted, plan.steps), None
        if gone:
            cohort = cohort.without(gone)
        if phase.reduction == "pick" and cohort.size:
            place = self.streams.at("pick", round, step=index).integers(cohort.size)
            picked = int(cohort.members[int(place)])
        return Order(
            round=round,
            counted=counted,
            place=index,
            phase=phase,
            cohort=cohort,
            blocks=plan.blocks,
            blocks_before=counted if self._single else self._blocks_before(round, skipped),
            decay=1.0 if self.schedule is None else self.schedule.change(counted),
            picked=picked,
            last=index + 1 == len(plan.phases),
            iterations=plan.most * plan.blocks,
            following=lambda: self.drawn(round + 1),
        )

    def asked(self, round: int, skipped: Sequence[int] = ()) -> np.ndarray:
        """The clients that any phase of a round asks, ascending."""
        phases = self.plan(round, round - len(skipped)).phases
        orders = [self.at(round, index, skipped) for index in range(len(phases))]
        return np.unique(np.concatenate([order.cohort.members for order in orders]))

    def plan(self, round: int, counted: int) -> Plan:
        """Steps, phases and blocks of a round."""
        # Phases of one round, and all rounds of most methods, share a plan: making it anew would
        # cost more than a round of a small problem.
        if self._plan is not None and (self._repeats or self._plan[0] == (round, counted)):
            return self._plan[1]
        method = self.method
        if self.schedule is not None:
            method = method.scaled(self.schedule(counted))
        now = self._begin(round, counted)
        steps = method.local_steps(now)
        now = dataclasses.replace(now, steps=steps)
        most = self._most if steps is self.steps else max(steps)
        plan = Plan(steps, most, method.phases(now), method.blocks(now))
        self._plan = (round, counted), plan
        return plan

    def drawn(self, round: int) -> np.ndarray:
        """The members of a round's cohort."""
        if self._full:
            return self._everyone
        return self.sampling.draw(self.streams, round, self.clients).members

    def _cohort(self, phase: Exchange, round: int, counted: int, steps: Sequence[int]) -> Cohort:
        n, who = self.clients, phase.who
        if who == "all" or (who == "cohort" and self._full):
            return Cohort(self._everyone, n, counted, steps)
        if who == "one":
            members = self.streams.at("one", round).integers(n, size=1)
        else:
            members = self.drawn(round)
        return Cohort(members, n, counted, [steps[i] for i in members.tolist()])

    def _blocks_before(self, round: int, skipped: Sequence[int]) -> int:
        # Goes on from the last answer: from the beginning each round would take longer than the
        # one before. Another list of skipped rounds makes that answer void.
        known, before, blocks = self._blocks
        if known != tuple(skipped) or before > round:
            before, blocks = 0, 0
        for number in range(before, round):
            if number not in skipped:
                counted = number - sum(one < number for one in skipped)
                blocks += self.method.blocks(self._begin(number, counted))
        self._blocks = tuple(skipped), round, blocks
        return blocks

    def _begin(self, round: int, counted: int) -> Round:
        return Round(counted, self.steps, lambda: self.streams.at("coins", round))
