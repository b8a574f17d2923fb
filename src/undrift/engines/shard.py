"""The clients' half of a run on one of several ranks.

Clients live on ranks in equal runs of their numbers, and a cohort is dealt in equal runs of its
positions. Both ascend, so most clients work where they live, all of them where everybody takes
part. What a client remembers, its scratch vectors included, goes to the rank that works for it and
back.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from undrift.core.struct import Message
from undrift.engines.order import Order, Share
from undrift.engines.ranks import Ranks, WorkFailed
from undrift.engines.saved import WRITTEN
from undrift.engines.site import PREVIOUS, Common, Kept, Site, saved_name
from undrift.engines.store import StoredRows
from undrift.engines.work import NOBODY, Work

Tensors = dict[str, Tensor]


class Route(NamedTuple):
    """Some members of a cohort, with the ranks where they live and where they work."""

    members: np.ndarray
    homes: np.ndarray
    workers: np.ndarray

    def only(self, kept: np.ndarray) -> Route:
        at = np.isin(self.members, kept)
        return Route(self.members[at], self.homes[at], self.workers[at])


class Shard(Site):
    """The clients that live on this rank, and the part of a cohort that it works on."""

    def __init__(self, common: Common, ranks: Ranks, place: str):
        clients, self.ranks = common.problem.clients, ranks
        self.bounds = [clients * k // ranks.size for k in range(ranks.size + 1)]
        super().__init__(common, np.arange(*self.bounds[ranks.rank : ranks.rank + 2]), place)
        self.route = Route(NOBODY, NOBODY, NOBODY)
        self.sound, self.lengths = True, list[tuple[float, float]]()
        """Whether all new states and uploads are finite; per upload its shortest and longest."""
        self.norms = list[list[float]]()
        """Per upload the lengths on this rank."""
        self._names, self._passed = list[str](), list[str]()
        """What clients remember anew, and what they pass on to the next phase."""
        self._scratched = NOBODY
        """The clients of all ranks that have passed something on."""

    def share(self, order: Order) -> Share:
        size, members = order.cohort.size, order.cohort.members
        deal = [size * k // self.ranks.size for k in range(self.ranks.size + 1)]
        workers = np.repeat(np.arange(self.ranks.size), np.diff(deal))
        homes = np.searchsorted(self.bounds, members, side="right") - 1
        self.route = Route(members, homes, workers)
        whole = order.share()
        first, last = deal[self.ranks.rank : self.ranks.rank + 2]
        return whole if last - first == size else whole.part(slice(first, last))

    def work(self, share: Share, got: Message) -> Work:
        order, (members, homes, workers) = share.order, self.route
        if order.place == 0:
            self.ends = []
        mine = members[homes == self.ranks.rank]
        rows = self._none(self.store.names)
        if len(mine):
            rows = self.store.gather(self._places(mine))
        self._read = None if order.last else Kept(mine, {**rows})
        self.store.expect(lambda: self._own(order.following()))
        rows = self.ranks.move(rows, self.store.names, homes, workers)
        known = np.isin(members, self._scratched)
        if known.any() and not known.all():
            raise ValueError("a phase needs scratch vectors of clients that took no part before")
        passed = self._passed if known.any() else []
        scratch = self._none(passed)
        if passed and len(mine):
            scratch = dict(self._recalled(mine))
        scratch = self.ranks.move(scratch, passed, homes, workers)
        work, error = Work(), None
        try:
            if len(share.members):
                previous = rows.pop(PREVIOUS, None)
                work = self._perform(share, self.method.Client(**rows, **scratch), got, previous)
                self._refuse_misfits(work)
        except Exception as raised:
            work, error = Work(), raised
        self._heed(order, work, error)
        return work

    def send_home(self, work: Work, kept: np.ndarray) -> None:
        """Commit the work of all ranks on the clients ``kept``."""
        members, homes, workers = self.route.only(kept)
        given = self._none([*self._names, *self._passed]) | {**work.states, **work.scratch}
        states = self.ranks.move(given, self._names, workers, homes)
        scratch = self.ranks.move(given, self._passed, workers, homes)
        mine = members[homes == self.ranks.rank]
        here = Work(mine, states, scratch) if len(mine) else Work()
        self.commit(here._replace(ends=work.ends))
        if work.ends:
            self.enders = work.members
        self._scratched = kept if self._passed else NOBODY

    def uploads(self, order: Order, work: Work) -> Work:
        """The same with the uploads of all ranks."""
        senders = order.cohort.members if order.picked is None else np.array([order.picked])
        workers, mine = self.route.only(senders).workers, dict(work.vectors())
        names = order.phase.Up.vectors
        rows = {name: self.together(mine.get(name), workers) for name in names}
        return work._replace(up=order.phase.Up(**rows), senders=senders)

    def states(self, work: Work) -> Tensors:
        """The new states of the whole cohort."""
        return {n: self.together(work.states.get(n), self.route.workers) for n in self._names}

    def begin(self) -> None:
        super().begin()
        self._scratched = NOBODY

    def tensors(self, whole: bool) -> Mapping[str, Tensor | StoredRows]:
        names = self.store.names
        if whole:
            homes, mine = np.repeat(np.arange(self.ranks.size), np.diff(self.bounds)), self.store
            found = mine.tensors()
            return {saved_name(name): self.together(found[name], homes) for name in names}
        here = self.written()
        members = self.ranks.gather(here, self.ranks.sizes(len(here))) if names else here
        rows = {saved_name(name): Everyone(self, name, members.numpy()) for name in names}
        index = {WRITTEN: members} if names and len(members) < self.problem.clients else {}
        return {**rows, **index}

    def _heed(self, order: Order, work: Work, error: Exception | None) -> None:
        """Let all ranks know what has become of the work on each of them."""
        ranks, declared = self.ranks, self.method.Client.scratch
        vectors = [*work.states.values(), *(v for _, v in work.vectors())]
        norms = [torch.linalg.vector_norm(v, dim=-1) for v in vectors]
        known = torch.cat(norms).tolist() if norms else []
        ends, at = list[float](), sum(map(len, work.states.values()))
        self.norms = []
        for _ in order.phase.Up.vectors:
            some, at = known[at : at + len(work.senders)], at + len(work.senders)
            self.norms.append(some)
            ends += [max(some, default=-math.inf), -min(some, default=math.inf)]
        flags = [0 if error is None else ranks.size - ranks.rank, not math.isfinite(sum(known))]
        flags += [bool(work.ends), *(name in work.scratch for name in declared)]
        failed, unsound, made, *found = ranks.most([*flags, *ends])
        if failed:
            source = ranks.size - int(failed)
            said = ranks.tell(f"rank {source}: {type(error).__name__}: {error}", source)
            raise error if error and ranks.rank == 0 else WorkFailed(said) from error
        self.sound, self._names = not unsound, [*self.method.Client.vectors]
        self._names += [PREVIOUS] if made and self.problem.remembers else []
        self._passed = [n for n, there in zip(declared, found, strict=False) if there]
        bounds = found[len(declared) :]
        self.lengths = [(-low, high) for high, low in zip(bounds[::2], bounds[1::2], strict=True)]

    def _refuse_misfits(self, work: Work) -> None:
        """What has another size or type cannot travel."""
        dim, like = self.problem.dim, self.common.x0.dtype
        for some, who in ((work.states.items(), work.members), (work.vectors(), work.senders)):
            for name, v in some:
                if (tuple(v.shape), v.dtype) != ((len(who), dim), like):
                    found, wanted = f"{v.dtype} {list(v.shape)}", f"{like} {[len(who), dim]}"
                    raise ValueError(f"{name} is {found}, not {wanted}")

    def together(self, rows: Tensor | None, where: np.ndarray) -> Tensor:
        """The rows of all ranks, in the order of the clients, who are on the ranks ``where``."""
        rows = self.common.x0.new_empty(0, self.problem.dim) if rows is None else rows
        return self.ranks.gather(rows, np.bincount(where, minlength=self.ranks.size).tolist())

    def _none(self, names: Sequence[str]) -> Tensors:
        return dict.fromkeys(names, self.common.x0.new_empty(0, self.problem.dim))


class Everyone(StoredRows):
    """One vector of some clients as blocks, each rank's in turn; on rank 0 all of them."""

    def __init__(self, site: Shard, name: str, clients: np.ndarray):
        super().__init__(site.store, name, clients, site.common.x0)
        self._ranks, self._bounds = site.ranks, site.bounds

    def __iter__(self) -> Iterator[Tensor]:
        for rank, (first, last) in enumerate(pairwise(self._bounds)):
            own = self._clients[slice(*np.searchsorted(self._clients, [first, last]))] - first
            for some in self._blocks(own):
                if rank == self._ranks.rank:
                    yield self._ranks.hand(self._store.read(self._name, some), rank, 0)
                elif self._ranks.rank == 0:
                    size = some.stop - some.start if isinstance(some, slice) else len(some)
                    block = torch.empty(size, self.shape[1], dtype=self.dtype)
                    yield self._ranks.hand(block, rank, 0)
