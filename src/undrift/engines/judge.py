"""Which work of a phase counts, and why the rest does not.

Every engine asks :class:`Sound`, whose usual answer costs a norm for each vector.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from undrift._threads import one_for_few
from undrift.core.faults import Rejection
from undrift.core.struct import Message
from undrift.engines.order import Order
from undrift.engines.work import Work


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


class ClientRows(NamedTuple):
    """One vector of several clients: a field of their uploads, or of their new states."""

    name: str
    clients: np.ndarray
    v: Tensor


def client_rows(work: Work) -> list[ClientRows]:
    """The uploads, then the new states."""
    rows = []
    for name, v in work.vectors():
        rows.append(ClientRows(name, work.senders, v))
    for name, v in work.states.items():
        rows.append(ClientRows(name, work.members, v))
    return rows


@dataclasses.dataclass
class Sound:
    """Uploads and new states are finite; no upload is longer than ``norm`` times what is usual in
    its phase. Size and type were looked at where they were made, and where they arrived.

    That is the median, but never less than it is known to have been: as a method converges most
    uploads vanish, and a client that has not converged must not be refused for it. Where the two
    halves of a cohort are ``norm`` times apart, it is what it was before, or else the longer half.
    One of rounding size, measured by the vectors sent down, bounds nothing, and neither does a
    phase that needs everybody.
    """

    dtype: torch.dtype
    norm: float = math.inf
    usual: dict[str, float] = dataclasses.field(default_factory=dict)
    """The usual length of each upload, by phase and name."""

    def __call__(self, order: Order, down: Message, work: Work) -> dict[int, str]:
        rows = client_rows(work)
        norms = lengths(rows)
        if math.isfinite(sum(norms)) and self.even(order, norms, len(work.senders)):
            return {}
        found: dict[int, str] = {}
        for client, reason in self._reasons(order, down, rows, len(work.vectors())):
            found.setdefault(client, reason)
        return found

    def even(self, order: Order, norms: Sequence[float], size: int) -> bool:
        """Whether no upload is too long: ``norms`` begins with the lengths of its vectors, one
        after another, each of ``size`` clients.
        """
        even = True
        # All of them, not until the first that is too long: what is usual is remembered.
        for k, name in enumerate(order.phase.Up.vectors if size else ()):
            some = norms[k * size : (k + 1) * size]
            even &= max(some) <= self.norm * self.scale(order, name, some)
        return even

    def scale(self, order: Order, name: str, lengths: Iterable[float]) -> float:
        """What is usual among these lengths; it is remembered. Infinite where none is too long."""
        if self.norm == math.inf or order.phase.who == "all":
            return math.inf
        key, some = f"{order.place}.{name}", sorted(filter(math.isfinite, lengths))
        usual = self.usual.get(key, 0.0)
        if not some:
            return usual
        low, high = some[(len(some) - 1) // 2], some[len(some) // 2]
        if high > self.norm * low:
            return usual or high
        if high > usual:  # as a power of two: engines do not round alike
            self.usual[key] = 2.0 ** math.frexp(high)[1]
        return max(usual, high)

    def _reasons(
        self, order: Order, down: Message, rows: Sequence[ClientRows], uploads: int
    ) -> Iterator[tuple[int, str]]:
        for row in (*rows[uploads:], *rows[:uploads]):
            clients = row.clients.tolist()
            for place in (~row.v.isfinite().all(-1)).nonzero().squeeze(-1).tolist():
                yield clients[place], f"{row.name} has entries that are not finite"
        # Where a cohort has converged, uploads are rounding errors, of any ratio to each other.
        sent_down = max((float(v.norm()) for _, v in down.items()), default=0.0)
        rounding = torch.finfo(self.dtype).eps * sent_down
        for row in rows[:uploads]:
            lengths = row.v.double().norm(dim=-1).tolist()
            scale = self.scale(order, row.name, lengths)
            if scale <= rounding:
                continue
            for client, length in zip(row.clients.tolist(), lengths, strict=True):
                if not length <= self.norm * scale:
                    times = f"{length / scale:.3g} times the median of the cohort"
                    yield client, f"{row.name} is {length:.3g} long, {times}"


def lengths(rows: Sequence[ClientRows]) -> list[float]:
    """The lengths of all vectors of these."""
    norms = []
    for row in rows:
        with one_for_few(row.v):
            norms.append(torch.linalg.vector_norm(row.v, dim=-1))
    # One list for all vectors: on a GPU every look waits for the work before it.
    found: list[float] = []
    if norms:
        found = (torch.cat(norms) if len(norms) > 1 else norms[0]).tolist()
    return found
