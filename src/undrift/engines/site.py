"""The clients' half of a run: states and data of some clients, and what they do with an order."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager
from typing import Any, ClassVar, NamedTuple

import numpy as np
import torch
from torch import Tensor

from undrift._device import upload
from undrift._threads import each
from undrift.core.method import Method, returned
from undrift.core.problem import Facts, Problem
from undrift.core.struct import Message, State
from undrift.engines.local import Common, One, Stacked
from undrift.engines.order import Order, Share
from undrift.engines.store import BLOCK, StoredRows, opened
from undrift.engines.work import NOBODY, Part, TensorForm, Work, joined

PREVIOUS = "previous model"
"""The clients' last local models beside what a method declares; no field can have that name."""
WRITTEN = "client_members"
"""Of a snapshot: the clients whose states it has, in ascending order; left out: all of them."""


class Kept(NamedTuple):
    """Vectors ``[C, d]`` of some clients: scratch of the last phase, or states to return to."""

    members: np.ndarray
    rows: Mapping[str, Tensor]


class Site(Part):
    """Holds the clients ``held`` (ascending numbers; all when ``None``), their states at ``place``.

    It works on what it is ordered to do, and keeps nothing of it until it is committed.
    """

    stacks: ClassVar[bool] = True
    """Whether clients work side by side, their vectors ``[C, d]``."""

    def __init__(self, common: Common, held: np.ndarray | None = None, place: str = "device"):
        self.common, self.held = common, held
        self.method, self.problem = common.method, common.problem
        clients = self.problem.clients if held is None else len(held)
        found = self.method.client(common.x0)
        first = returned(self.method, "client", found, "Client", like=common.x0)
        start = dict(first.lasting().items()) | (
            {PREVIOUS: common.x0} if self.problem.remembers else {}
        )
        for name, v in start.items():
            # 0 * x0 has negative zeros, which would differ from row to row.
            if self.stacks and not v.any():
                start[name] = torch.zeros_like(v)
        self.store = opened(place, start, clients)
        self.ends: list[Tensor] = []
        """Local models of this round."""
        self.enders: np.ndarray = NOBODY
        """The clients whose they are."""
        self._scratch: Kept | None = None
        self._read: Kept | None = None
        self._undo: list[Kept] = []

    def work(self, share: Share, got: Message, states: Mapping[str, Tensor] | None = None) -> Work:
        """What these clients make of a message. Nothing changes here but what is fetched ahead.

        ``states`` are what they remember, where that is not only here.
        """
        if share.order.place == 0:
            self.ends = []
        if not len(share.members):
            return Work()
        mine = self._gathered(share.order, share.members) if states is None else dict(states)
        previous = mine.pop(PREVIOUS, None)
        me = self.method.Client(**mine)
        if torch.is_inference_mode_enabled():
            return self._perform(share, me, got, previous)
        with quiet(self.problem):  # an engine may call from another thread
            return self._perform(share, me, got, previous)

    def commit(self, work: Work) -> None:
        """Make the new states of these clients theirs."""
        if work.states:
            self.store.scatter(self._places(work.members), dict(work.states))
            if self._read is not None:
                self._undo.append(self._read)
        # Those of the last phase alone: a phase without scratch vectors ends their life.
        self._scratch = Kept(work.members, work.scratch) if work.scratch else None
        if work.ends:
            self.ends, self.enders = [*work.ends], work.members

    def begin(self) -> None:
        """Drop what only the round before needed."""
        self._scratch = self._read = None
        self._undo.clear()

    def roll_back(self) -> None:
        """Return to the states at the beginning of the round."""
        # The latest first: a client that worked in two phases returns to what it had before both.
        for members, rows in reversed(self._undo):
            places = self._places(members)
            # Stores outside the device take back the rows of the cohort that they gave last.
            self.store.gather(places)
            self.store.scatter(places, dict(rows))
        self.ends = []
        self.begin()

    def own_models(self, x: Tensor) -> Iterator[tuple[np.ndarray, Tensor]]:
        """Clients with their own models ``[C, d]``, some at a time: those that the method keeps for
        everybody, else this round's local models.
        """
        if type(self.method).own_point is Method.own_point:
            if self.ends:
                yield self.enders, torch.cat(self.ends)
            return
        held = np.arange(self.problem.clients) if self.held is None else self.held
        names = self.method.Client.vectors
        step = max(BLOCK // (self.problem.dim * x.element_size()), 1)
        for first in range(0, len(held), step):
            last = min(first + step, len(held))
            part = slice(first, last)
            rows = {name: self.store.read(name, part).to(x.device) for name in names}
            own = self.method.own_point(self.method.Client(**rows), x)
            if own is not None:
                yield held[first:last], own.expand(last - first, -1)

    def forms(self, members: int) -> dict[str, TensorForm]:
        form = self.common.x0.dtype, (members, self.problem.dim)
        return {f"client.{name}": form for name in self.store.names}

    def tensors(self, whole: bool) -> Mapping[str, Tensor | StoredRows]:
        """Client states: ``client.NAME [N, d]``.

        If not ``whole``, for reading before the next round, in blocks: the rows of clients that
        have taken part, ``client_members`` unless all have; others have those of the start.
        """
        if whole:
            return {f"client.{name}": v for name, v in self.store.gather(None).items()}
        found, places, like = dict[str, Any](), self.store.written(), self.common.x0
        for name in self.store.names:
            found[f"client.{name}"] = StoredRows(self.store, name, places, like)
        if found and len(places) < self.problem.clients:
            found[WRITTEN] = self.written()
        return found

    def written(self) -> Tensor:
        """The clients here that have taken part."""
        places = self.store.written()
        return torch.from_numpy(places if self.held is None else self.held[places])

    def load(self, tensors: Mapping[str, Tensor]) -> None:
        """Continue from the ``tensors`` of the clients here."""
        members, rows = tensors.get(WRITTEN), dict[str, Tensor]()
        for name in self.store.names:
            rows[name] = tensors[f"client.{name}"]
        self.store.load(rows, None if members is None else self._own(members.cpu().numpy()))
        self.ends = []
        self.begin()

    def _gathered(self, order: Order, members: np.ndarray) -> dict[str, Tensor]:
        """What clients remember whose states are here, with the scratch vectors of this round."""
        # The next cohort's rows come while these clients work.
        places = self._places(members)
        mine = self.store.gather(places, lambda: self._own(order.following()))
        # What the last phase did is never undone: it is judged before any of it is committed.
        self._read = None if order.last else Kept(members, {**mine})
        return mine if self._scratch is None else mine | self._recalled(*self._scratch, members)

    def _perform(self, share: Share, me: State, got: Message, previous: Tensor | None) -> Work:
        """Local work side by side, or in groups on threads where the problem prefers that."""
        together = self.common.at_clients.together
        if together is None:
            f = Stacked(share, self.common, previous)
            return self._work(share, share.order.phase.work(me, got, f), f)

        # Threads have gradient modes of their own.
        @torch.no_grad()
        def part(rows: slice, halted: Callable[[], bool]) -> Work:
            some = share.part(rows)
            before = None if previous is None else previous[rows]
            f = Stacked(some, self.common, before, halted)
            mine = me.map(lambda v: v[rows])
            return self._work(some, share.order.phase.work(mine, got, f), f)

        return joined(each(part, share.groups(together)))

    def _work(self, share: Share, found: tuple[State, Message], f: Stacked | One) -> Work:
        """What these clients, whose local work ``f`` was, return as work."""
        phase, like, members = share.order.phase, self.common.x0, share.members
        records = returned(phase, "work", found, "Client", "Up", like=like, clients=len(members))
        new, up = (record.map(f.rows) for record in records)
        vectors, end = dict(new.items()), None if f.end is None else f.rows(f.end)
        scratch = {name: vectors.pop(name) for name in new.scratch if name in vectors}
        if end is not None and self.problem.remembers:
            vectors[PREVIOUS] = end
        senders = members
        sent: Message | None = up
        if (picked := share.order.picked) is not None:
            only = slice(*np.searchsorted(members, [picked, picked + 1]))
            senders = members[only]
            sent = up.map(lambda v: v[only]) if len(senders) else None
        ends = () if end is None else (end,)
        return Work(members, vectors, scratch, sent, senders, f.gradients, ends)

    def _recalled(
        self, there: np.ndarray, rows: Mapping[str, Tensor], members: np.ndarray
    ) -> dict[str, Tensor]:
        """The scratch ``rows`` of the clients ``there`` for these members."""
        if there is members or np.array_equal(there, members):
            return {**rows}
        at, known = np.searchsorted(there, members), np.isin(members, there)
        if not known.any():
            return {}
        if not known.all():
            raise ValueError("a phase needs scratch vectors of clients that took no part before")
        places = upload(at, self.common.x0.device)
        return {name: v.index_select(0, places) for name, v in rows.items()}

    def _own(self, members: np.ndarray) -> np.ndarray:
        """Places in the store of those of ``members`` that are here."""
        if self.held is None:
            return members
        return np.searchsorted(self.held, members[np.isin(members, self.held)])

    def _places(self, members: np.ndarray) -> np.ndarray | None:
        """Places in the store of clients that are here; ``None`` for all of them."""
        if self.held is None:
            return None if len(members) == self.problem.clients else members
        return None if len(members) == len(self.held) else np.searchsorted(self.held, members)


def quiet(problem: Problem | Facts) -> AbstractContextManager[object]:
    """No automatic differentiation but where a problem itself uses it."""
    return torch.no_grad() if problem.differentiates else torch.inference_mode()
