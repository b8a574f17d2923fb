"""What a run has spent so far, and what went wrong in it."""

from __future__ import annotations

import dataclasses
from typing import Any

from undrift.core.struct import Message
from undrift.engines.messages.frames import sparse_bytes
from undrift.engines.order import Order
from undrift.engines.work import Work

Counters = dict[str, Any]
"""Numbers that JSON holds."""


@dataclasses.dataclass
class Ledger:
    """What has been spent so far: vectors per participating client, bytes and gradients in all.

    Vectors are those that a method declares to send, each of them whole; bytes are those that
    travel, which for a ``Sparse`` vector are its non-zero entries and their places where that is
    less.
    """

    vectors_up: int = 0
    vectors_down: int = 0
    bytes_up: int = 0
    bytes_down: int = 0
    gradients: int = 0
    iterations: int = 0
    syncs: int = 0
    left_out: int = 0
    """Clients whose work did not count, summed over rounds."""
    skipped: int = 0
    """Rounds that did not count."""

    def book(self, order: Order, down: Message, work: Work, size: int) -> None:
        """Add a phase, with vectors of ``size`` bytes."""
        Down, Up = order.phase.Down, order.phase.Up
        self.syncs += 1
        self.vectors_down += len(Down.vectors)
        self.vectors_up += len(Up.vectors)
        each = size * len(Down.whole) + sparse_bytes(down)
        self.bytes_down += len(order.cohort.members) * each
        self.gradients += work.gradients
        self.bytes_up += size * len(Up.whole) * len(work.senders)
        self.bytes_up += 0 if work.up is None else sparse_bytes(work.up)

    def counts(self) -> dict[str, int]:
        """All of it by name; without troubles, where there were none."""
        spent = dataclasses.asdict(self)
        return {k: v for k, v in spent.items() if v or k not in ("left_out", "skipped")}


@dataclasses.dataclass
class Troubles:
    """What went wrong, as far as the rounds to come depend on it."""

    gone: list[int] = dataclasses.field(default_factory=list)
    """Clients that are left out of the round in progress."""
    skipped_rounds: list[int] = dataclasses.field(default_factory=list)
    failing: int = 0
    """Rounds in a row, up to now, that could not be counted."""
    useless: int = 0
    """Those of them in which all work was done and none of it was sound."""

    def counters(self) -> Counters:
        """All of it by name, where there was any."""
        return {name: value for name, value in dataclasses.asdict(self).items() if value}
