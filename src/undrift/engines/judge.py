"""Which work of a phase counts, and why the rest does not.

A check looks at the work of a phase, and at what came late, and returns client -> reason for those
it refuses. Every engine has one, :class:`Sound`, whose usual answer costs a norm for each vector.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from undrift._threads import one_for_few
from undrift.core.faults import Rejection
from undrift.core.struct import Message
from undrift.engines.order import Order
from undrift.engines.work import Work

Check = Callable[[Order, Message, Sequence[Work]], Mapping[int, str]]


class Diverged(ArithmeticError):
    """The model would no longer be finite. The engine is as it was when the round began."""

    def __init__(self, round: int, reason: str):
        self.round, self.reason = round, reason
        super().__init__(f"round {round}: {reason}")


class Stuck(RuntimeError):
    """Too many rounds in a row could not be counted. The engine is as it was before them."""

    def __init__(self, rounds: int, last: Sequence[Rejection]):
        self.rounds, self.last = rounds, list(last)
        why = f"; client {last[0].client}: {last[0].reason}" if last else ""
        super().__init__(f"{rounds} rounds in a row could not be counted{why}")


class Judge:
    """Applies a check; of a client that has failed, that is the reason."""

    def __init__(self, check: Check):
        self.check = check

    def __call__(self, order: Order, down: Message, works: Sequence[Work]) -> Mapping[int, str]:
        """Client -> why its work does not count."""
        failed = {client: why for work in works for client, why in work.failed.items()}
        return {**self.check(order, down, works), **failed}


class Rows(NamedTuple):
    """One vector of several clients: a field of their uploads, or of their new states."""

    name: str
    clients: np.ndarray
    v: Tensor


class Sound:
    """Uploads and new states have the declared size and type and are finite; no upload is longer
    than ``norm`` times the median of its phase.

    Of an even number of clients the median is the lower one. One of rounding size, measured by the
    vectors sent down, bounds nothing.
    """

    def __init__(self, dim: int, dtype: torch.dtype, norm: float = math.inf):
        self.dim, self.dtype, self.norm = dim, dtype, norm

    def __call__(self, order: Order, down: Message, works: Sequence[Work]) -> dict[int, str]:
        uploads = [[Rows(name, work.senders, v) for name, v in work.vectors()] for work in works]
        states = [Rows(name, work.members, v) for work in works for name, v in work.states.items()]
        if self._plainly_sound(uploads, states):
            return {}
        found: dict[int, str] = {}
        for client, reason in self._reasons(down, uploads, states):
            found.setdefault(client, reason)
        return found

    def _plainly_sound(self, uploads: Sequence[Sequence[Rows]], states: Sequence[Rows]) -> bool:
        """One look at the norms of all vectors; ``False`` where that does not suffice."""
        rows = [*states, *(row for sent in uploads for row in sent)]
        if not rows:
            return True
        if not all(self._fits(row) for row in rows):
            return False
        norms = [_norms(row.v) for row in rows]
        together = (torch.cat(norms) if len(norms) > 1 else norms[0]).tolist()
        if not math.isfinite(sum(together)):
            return False
        if self.norm == math.inf:
            return True
        at = sum(len(row.clients) for row in states)
        for sent in uploads:
            for row in sent:
                some, at = together[at : at + len(row.clients)], at + len(row.clients)
                if len(uploads) > 1 or max(some) > self.norm * min(some):
                    return False
        return True

    def _reasons(
        self, down: Message, uploads: Sequence[Sequence[Rows]], states: Sequence[Rows]
    ) -> Iterator[tuple[int, str]]:
        for row in (*states, *(row for sent in uploads for row in sent)):
            clients = row.clients.tolist()
            if not self._fits(row):
                found = f"{row.v.dtype} {list(row.v.shape)}"
                wanted = f"{self.dtype} {[len(clients), self.dim]}"
                yield from ((client, f"{row.name} is {found}, not {wanted}") for client in clients)
                continue
            for place in (~row.v.isfinite().all(-1)).nonzero().squeeze(-1).tolist():
                yield clients[place], f"{row.name} has entries that are not finite"
        sent_down = max((float(v.norm()) for _, v in down.items()), default=0.0)
        rounding = torch.finfo(self.dtype).eps * sent_down
        fields = {row.name for sent in uploads for row in sent}
        for name in sorted(fields) if self.norm < math.inf else ():
            lengths: dict[int, float] = {}
            for row in (row for sent in uploads for row in sent):
                if row.name != name or not self._fits(row):
                    continue
                norms = row.v.double().norm(dim=-1).tolist()
                lengths |= dict(zip(row.clients.tolist(), norms, strict=True))
            finite = sorted(length for length in lengths.values() if math.isfinite(length))
            median = finite[(len(finite) - 1) // 2] if finite else 0.0
            if median <= rounding:
                continue
            for client, length in lengths.items():
                if not length <= self.norm * median:
                    times = f"{length / median:.3g} times the median of the cohort"
                    yield client, f"{name} is {length:.3g} long, {times}"

    def _fits(self, row: Rows) -> bool:
        return tuple(row.v.shape) == (len(row.clients), self.dim) and row.v.dtype == self.dtype


def _norms(v: Tensor) -> Tensor:
    with one_for_few(v):
        norms: Tensor = torch.linalg.vector_norm(v, dim=-1)
    return norms
