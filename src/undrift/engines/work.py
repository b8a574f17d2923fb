"""What clients did in one phase, what a run has spent so far, and what went wrong in it.

Nothing of a work is kept until a site commits it.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from copy import copy
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from undrift._device import upload
from undrift.core.struct import Message
from undrift.engines.messages.frames import sparse_bytes
from undrift.engines.order import Order

Counters = dict[str, Any]
"""Numbers that JSON holds."""
TensorForm = tuple[torch.dtype, tuple[int, ...]]
"""Type and shape of a tensor in a snapshot."""
NOBODY = np.arange(0)


class Work(NamedTuple):
    """The rows of some clients, in the order of ``members``."""

    members: np.ndarray = NOBODY
    states: Mapping[str, Tensor] = MappingProxyType({})
    """New vectors ``[C, d]`` that clients remember."""
    scratch: Mapping[str, Tensor] = MappingProxyType({})
    """Vectors ``[C, d]`` for the next phases of the round."""
    up: Message | None = None
    """Uploads ``[S, d]`` of ``senders``; ``None`` where nobody sends."""
    senders: np.ndarray = NOBODY
    gradients: int = 0
    ends: Sequence[Tensor] = ()
    """Local models, together ``[C, d]``; empty where none were made."""
    failed: Mapping[int, str] = MappingProxyType({})
    """Members of whom nothing usable came back, and why."""

    def vectors(self) -> list[tuple[str, Tensor]]:
        """(name, rows) of the uploads."""
        return [] if self.up is None else self.up.items()

    def only(self, kept: np.ndarray) -> Work:
        """The same without the clients that are not ``kept``."""
        mine, sent = np.isin(self.members, kept), np.isin(self.senders, kept)
        if mine.all() and sent.all():
            return self
        rows = _chooser(mine)
        return self._replace(
            members=self.members[mine],
            states={name: rows(v) for name, v in self.states.items()},
            scratch={name: rows(v) for name, v in self.scratch.items()},
            up=self.up.map(_chooser(sent)) if self.up is not None and sent.any() else None,
            senders=self.senders[sent],
            ends=[rows(torch.cat([*self.ends]))] if self.ends else (),
        )


def joined(works: Sequence[Work]) -> Work:
    """The work of several groups of clients as one."""
    # Nothing is copied where one group did everything.
    works = [work for work in works if len(work.members)]
    if len(works) < 2:
        return works[0] if works else Work()
    ups = [work.up for work in works if work.up is not None]
    first = works[0]
    return Work(
        members=np.concatenate([work.members for work in works]),
        states={name: torch.cat([work.states[name] for work in works]) for name in first.states},
        scratch={name: torch.cat([work.scratch[name] for work in works]) for name in first.scratch},
        up=ups[0].map(lambda *rows: torch.cat(rows), *ups[1:]) if ups else None,
        senders=np.concatenate([work.senders for work in works]),
        gradients=sum(work.gradients for work in works),
        ends=[rows for work in works for rows in work.ends],
        failed={client: why for work in works for client, why in work.failed.items()},
    )


def _chooser(mask: np.ndarray) -> Callable[[Tensor], Tensor]:
    at = np.flatnonzero(mask)
    return lambda v: v.index_select(0, upload(at, v.device))


class Part:
    """What a round changes beside the server's state, and a snapshot has: here ``last``."""

    last: Any

    def begin(self) -> None:
        """A round begins."""
        self._begun = copy(self.last)

    def roll_back(self) -> None:
        """Be as the round began."""
        # A copy again: the round that now begins anew may be rolled back too.
        self.last = copy(self._begun)

    def forms(self, members: int) -> Mapping[str, TensorForm]:
        """The tensors that every snapshot has, where it has the states of so many clients."""
        return {}

    def tensors(self, whole: bool) -> Mapping[str, Any]:
        """What a continuation needs."""
        raise NotImplementedError

    def load(self, tensors: Mapping[str, Tensor]) -> None:
        """Continue from ``tensors``, which are copied, from whatever device."""
        raise NotImplementedError


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
        each = size * len(Down.whole) + (sparse_bytes(down) if Down.sparse else 0)
        self.bytes_down += len(order.cohort.members) * each
        self.gradients += work.gradients
        self.bytes_up += size * len(Up.whole) * len(work.senders)
        if Up.sparse and work.up is not None:
            self.bytes_up += sparse_bytes(work.up)

    def counts(self) -> dict[str, int]:
        """All of it by name; without troubles, where there were none."""
        # Rows of runs without troubles have no columns for them.
        spent = dataclasses.asdict(self)
        for name in ("left_out", "skipped"):
            if not spent[name]:
                del spent[name]
        return spent


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
