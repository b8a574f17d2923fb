"""Many processes, one run: every rank keeps the server and the clock, and works on its part.

All draws are functions of the seed, so every rank makes the same orders, judgements and merges by
itself. What travels is uploads, to all ranks, and the states of clients that work away from where
they live.

Clients live on ranks in equal runs of their numbers, and a cohort is dealt in equal runs of its
positions. Both ascend, so most clients work where they live, all of them where everybody takes
part. What a client remembers, its scratch vectors included, goes to the rank that works for it and
back.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any, NamedTuple, cast

import numpy as np
import torch
from torch import Tensor

from undrift._threads import one_thread
from undrift.core.cohort import Cohort, Sampling
from undrift.core.method import Method
from undrift.core.params import BadParameters
from undrift.core.problem import Facts, Problem, Sums
from undrift.core.struct import Message
from undrift.engines.engine import Engine, Tensors
from undrift.engines.judge import client_rows, lengths
from undrift.engines.local import Common
from undrift.engines.memory import Needs, plan
from undrift.engines.messages.format import KINDS, TYPES, content
from undrift.engines.options import DistributedOptions
from undrift.engines.order import Order, Share
from undrift.engines.ranks import Parted, Ranks, WorkFailed, count, here
from undrift.engines.site import PREVIOUS, WRITTEN, Site
from undrift.engines.store import StoredRows
from undrift.engines.work import NOBODY, Counters, Work

LARGEST = 2**26
"""Bytes of the uploads of a phase up to which ``auto`` sends all of them to all ranks."""


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
        self.sound, self.norms = True, list[float]()
        """Whether all new states and uploads are finite; the lengths of the uploads."""
        self._names, self._passed = list[str](), list[str]()
        """What clients remember anew, and what they pass on to the next phase."""
        self._scratched = NOBODY
        """The clients of all ranks that have passed something on."""

    def share(self, order: Order) -> Share:
        """The clients of an order that this rank works for."""
        size, members = order.cohort.size, order.cohort.members
        deal = [size * k // self.ranks.size for k in range(self.ranks.size + 1)]
        workers = np.repeat(np.arange(self.ranks.size), np.diff(deal))
        self.route = Route(members, self._homes(members), workers)
        whole = Share(order, members, order.cohort.planned, order.cohort.full)
        first, last = deal[self.ranks.rank : self.ranks.rank + 2]
        return whole if last - first == size else whole.part(slice(first, last))

    def work(self, share: Share, got: Message, states: Mapping[str, Tensor] | None = None) -> Work:
        # Outside: who fails among collectives must not go on to another one.
        mine = self._moved(share)
        # An error of the method is told to all ranks before it is raised, or the others would wait
        # in the next collective until their patience ends.
        work, error = Work(), None
        try:
            work = super().work(share, got, mine)
        except Exception as raised:
            error = raised
        return work._replace(gradients=self._heed(share.order, work, error))

    def _moved(self, share: Share) -> Tensors:
        """What the clients remember, moved here from where they live."""
        members, homes, workers = self.route
        mine, names = members[homes == self.ranks.rank], self.store.names
        self._read = None
        rows = self._gathered(share.order, mine) if len(mine) else self._none(names)
        # Every rank asks about all members, so that all of them move scratch vectors or none does:
        # a collective that one rank leaves out would wait for ever.
        known = np.isin(members, self._scratched)
        if known.any() and not known.all():
            raise ValueError("a phase needs scratch vectors of clients that took no part before")
        passed = self._passed if known.any() else []
        rows = self._none(passed) | rows
        return self.ranks.move(rows, [*names, *passed], homes, workers)

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

    def senders(self, order: Order) -> np.ndarray:
        """The clients of all ranks that upload something."""
        return order.cohort.members if order.picked is None else np.array([order.picked])

    def uploads(self, order: Order, work: Work) -> Work:
        """The same with the uploads of all ranks."""
        senders = self.senders(order)
        workers, mine, Up = self.route.only(senders).workers, dict(work.vectors()), order.phase.Up
        rows = {name: self.together(mine.get(name), workers) for name in Up.vectors}
        return work._replace(up=Up(**rows), senders=senders)

    def states(self, work: Work) -> Tensors:
        """The new states of the whole cohort."""
        return {n: self.together(work.states.get(n), self.route.workers) for n in self._names}

    def begin(self) -> None:
        super().begin()
        self._scratched = NOBODY

    def tensors(self, whole: bool) -> Mapping[str, Tensor | StoredRows]:
        names = self.store.names
        if whole:
            homes, mine = self._homes(np.arange(self.problem.clients)), self.store.gather(None)
            return {f"client.{name}": self.together(mine[name], homes) for name in names}
        here = self.written()
        members = self.ranks.gather(here, self.ranks.sizes(len(here))) if names else here
        rows = {f"client.{name}": Everyone(self, name, members.numpy()) for name in names}
        index = {WRITTEN: members} if names and len(members) < self.problem.clients else {}
        return {**rows, **index}

    def _heed(self, order: Order, work: Work, error: Exception | None) -> int:
        """Let all ranks know what has become of the work on each of them; returns the gradients
        that it took on all of them.

        One collective for all of it: a line of each rank about its work as a whole, then a line for
        every upload with the lengths of its vectors.
        """
        ranks, declared, names = self.ranks, self.method.Client.scratch, order.phase.Up.vectors
        norms = lengths(client_rows(work))
        streams, unsound = self.common.batches.streams, not math.isfinite(sum(norms))
        mine = [error is not None, unsound, bool(work.ends), streams.used, work.gradients]
        mine += [name in work.scratch for name in declared]
        counts = np.bincount(self.route.only(self.senders(order)).workers, minlength=ranks.size)
        lines = torch.zeros(
            1 + int(counts[ranks.rank]), max(len(mine), len(names)), dtype=torch.float64
        )
        lines[0, : len(mine)] = torch.tensor(mine, dtype=torch.float64)
        if work.up is not None:
            uploads = norms[: len(names) * len(work.senders)]
            lines[1:, : len(names)] = (
                torch.tensor(uploads, dtype=torch.float64).view(len(names), -1).T
            )
        every = ranks.gather(lines, (1 + counts).tolist())
        first = np.isin(np.arange(len(every)), np.cumsum(1 + counts) - 1 - counts)
        about, rest = every[torch.from_numpy(first)], every[torch.from_numpy(~first)]
        failed, unsound, made, used, gradients, *passed = about.sum(0).tolist()
        if failed:
            source = about[:, 0].tolist().index(1)  # the lowest of them, on all ranks
            said = ranks.tell(f"rank {source}: {type(error).__name__}: {error}", source)
            raise error if error and ranks.rank == 0 else WorkFailed(said) from error
        self.sound = not unsound
        self.norms = rest[:, : len(names)].T.flatten().tolist()
        streams.used = used > 0
        self._names = [*self.method.Client.vectors]
        self._names += [PREVIOUS] if made and self.problem.remembers else []
        self._passed = [name for name, there in zip(declared, passed, strict=False) if there]
        return int(gradients)

    def together(self, rows: Tensor | None, where: np.ndarray) -> Tensor:
        """The rows of all ranks, in the order of the clients, who are on the ranks ``where``."""
        rows = self.common.x0.new_empty(0, self.problem.dim) if rows is None else rows
        return self.ranks.gather(rows, np.bincount(where, minlength=self.ranks.size).tolist())

    def _homes(self, members: np.ndarray) -> np.ndarray:
        """The ranks where clients live."""
        return np.searchsorted(self.bounds, members, side="right") - 1

    def _none(self, names: Sequence[str]) -> Tensors:
        return dict.fromkeys(names, self.common.x0.new_empty(0, self.problem.dim))


class Everyone(StoredRows):
    """One vector of some clients as blocks, each rank's in turn; on rank 0 all of them."""

    def __init__(self, site: Shard, name: str, clients: np.ndarray):
        super().__init__(site.store, name, clients, site.common.x0)
        self._ranks, self._bounds = site.ranks, site.bounds

    def __iter__(self) -> Iterator[Tensor]:
        # All ranks iterate, in the same order: what one sends, rank 0 receives before it goes on.
        for rank, (first, last) in enumerate(pairwise(self._bounds)):
            own = self._clients[slice(*np.searchsorted(self._clients, [first, last]))] - first
            for some in self._blocks(own):
                if rank == self._ranks.rank:
                    yield self._ranks.hand(self._store.read(self._name, some), rank, 0)
                elif self._ranks.rank == 0:
                    size = some.stop - some.start if isinstance(some, slice) else len(some)
                    block = torch.empty(size, self.shape[1], dtype=self.dtype)
                    yield self._ranks.hand(block, rank, 0)


class Distributed(Engine):
    """As :class:`undrift.Simulate`, in several processes of torch.distributed.

    ``collect`` says how uploads reach the server, which is on every rank: as ``rows``, all of them,
    which gives the numbers of simulate bit for bit; as ``sums`` of each rank, which travel faster
    and agree up to rounding; or as rows up to 64 MiB a phase, then as sums (``auto``). ``store`` is
    that of simulate; ``workers`` is for the command line, which starts so many processes.
    """

    Options = DistributedOptions
    site: Shard

    def __init__(self, method: Method, problem: Problem, **arguments: Any):
        self.ranks = ranks = Ranks(problem.device)
        super().__init__(method, problem, **arguments)
        self.leads = ranks.rank == 0
        self.sums = self._chosen(cast(DistributedOptions, self.own))
        self.site = Shard(self.common, ranks, self.memory.place)
        self.parts.append(self.site)

    @classmethod
    def needs(
        cls, method: Method, problem: Problem | Facts, cohort: Sampling, options: object
    ) -> Needs:
        chosen = cast(DistributedOptions, options)
        return plan(method, problem, cohort, chosen.store, count(), here())

    def agree(self, decision: bool) -> bool:
        return self.ranks.agree(decision)

    def told(self, numbers: dict[str, float]) -> dict[str, float]:
        return cast(dict[str, float], self.ranks.tell(numbers))

    def collect(self, order: Order, down: Message) -> Work:
        work = self.site.work(self.site.share(order), down)
        return work if self._adds(order) else self.site.uploads(order, work)

    def commit(self, work: Work, cohort: Cohort) -> None:
        self.site.send_home(work, cohort.members)

    def reduce(self, order: Order, work: Work) -> Message:
        if not self._adds(order):
            return super().reduce(order, work)
        phase, reducer = order.phase, self.reducer
        sums, weight = [torch.zeros_like(self.x0) for _ in phase.Up.vectors], self.x0.new_zeros(1)
        if work.up is not None:
            mine = reducer.reduce(phase, self.server, work.up, work.senders)
            own = reducer.weight(work.senders)
            factor = own if phase.reduction == "mean" else 1
            sums, weight = [v * factor for _, v in mine.items()], weight + own
        total = self.ranks.sum(torch.cat([*sums, weight]))
        factor = total[-1] if phase.reduction == "mean" else 1
        found = total[:-1].view(len(sums), -1) / factor
        return phase.Up(**dict(zip(phase.Up.vectors, found, strict=True)))

    def metrics(self) -> dict[str, float]:
        # Every row of metrics compares the servers: ranks that have parted stop here, before what
        # they would go on to write.
        digest = hashlib.sha256(b"".join(content(v) for _, v in self.server.items())).digest()
        if not self.ranks.same(digest):
            raise Parted(
                f"round {self.round}: the processes of the run have come to different models; "
                "continue from the last checkpoint"
            )
        pieces = self.problem.pieces(self.x, self.ranks.rank, self.ranks.size)
        if pieces is not None:
            sizes = self.ranks.sizes(len(pieces))
            return self.problem.of_pieces(self.ranks.gather(pieces, sizes), self.x)
        # Rank 0's, should others have rounded in another way: all must decide by the same numbers.
        return self.told(self.problem.metrics(self.x))

    def client_metrics(self) -> Sums:
        found = self.problem.client_metrics(self.x, self.site.held)
        return self._of_all_ranks(found, [*np.diff(self.site.bounds).tolist()])

    def own_metrics(self, names: Sequence[str]) -> tuple[np.ndarray, Sums]:
        mine, found = super().own_metrics(names)
        if not any(sizes := self.ranks.sizes(len(mine))):
            return mine, found
        members = self.ranks.gather(torch.from_numpy(mine), sizes).numpy()
        return members, self._of_all_ranks(found, sizes)

    def _of_all_ranks(self, found: Sums, sizes: Sequence[int]) -> Sums:
        """Numbers about clients, of which each rank has so many."""
        rows = torch.stack([*found.values()], 1)
        return dict(zip(found, self.ranks.gather(rows, sizes).unbind(1), strict=True))

    @property
    def drift(self) -> float | None:
        mine = self.x0.new_empty(0)
        if self.site.ends:
            with one_thread():  # one row is not to be summed in another order than many
                mine = (torch.cat(self.site.ends) - self.x).square().sum(-1)
        sizes = self.ranks.sizes(len(mine))
        return float(self.ranks.gather(mine, sizes).mean()) if any(sizes) else None

    def restore(self, tensors: Tensors, counters: Counters) -> None:
        """From what rank 0 is given; the others need not have it."""
        forms = dict[str, tuple[str, list[int]]]()
        if self.leads:
            self._check(tensors)
            common = tensors.keys() - self.site.forms(0).keys()
            forms = {n: (KINDS[tensors[n].dtype], list(tensors[n].shape)) for n in sorted(common)}
        self._receive(tensors, self.ranks.tell({"counters": counters, "forms": forms}))

    def continued(self, notes: dict[str, Any] | None) -> dict[str, Any] | None:
        if self.leads:
            words = {n: note for n, note in (notes or {}).items() if not isinstance(note, Tensor)}
            self.ranks.tell(notes and words)
            return notes
        # What rank 0 says first is in its restore, if there is something to continue from.
        said = self.ranks.tell()
        if said is None:
            return None
        self._receive({}, said)
        return cast(dict[str, Any], self.ranks.tell())

    def _receive(self, tensors: Tensors, said: Mapping[str, Any]) -> None:
        """Continue with what rank 0 has: all that is common, and the clients that live here."""
        found: Tensors = {}
        for name, (kind, shape) in said["forms"].items():
            blank = torch.empty(shape, dtype=TYPES[kind])
            found[name] = self.ranks.broadcast(tensors[name] if self.leads else blank)
        everybody = torch.arange(self.problem.clients)
        bounds = np.searchsorted(found.get(WRITTEN, everybody).cpu().numpy(), self.site.bounds)
        for saved in sorted(self.site.forms(0)):
            for rank, (first, last) in enumerate(pairwise(bounds.tolist())):
                if self.ranks.rank in (0, rank):
                    blank = torch.empty(last - first, self.problem.dim, dtype=self.x0.dtype)
                    rows = tensors[saved][first:last].cpu() if self.leads else blank
                    rows = self.ranks.hand(rows, 0, rank)
                    if rank == self.ranks.rank:
                        found[saved] = rows
        self._continue(found, said["counters"])

    def _book(self, order: Order, down: Message, work: Work) -> None:
        # Where sums travel, the work has the uploads of this rank alone.
        super()._book(order, down, work._replace(senders=self.site.senders(order)))

    def judge(self, order: Order, down: Message, work: Work) -> Mapping[int, str]:
        """The same answer on all ranks."""
        site = self.site
        senders = len(site.senders(order))
        if site.sound and self.faulty is None and self.soundness.even(order, site.norms, senders):
            return {}
        if self._adds(order):
            work = site.uploads(order, work)
        # States travel only if one of them, or an upload, is known not to be finite.
        states = {} if site.sound else site.states(work)
        whole = work._replace(members=order.cohort.members, states=states)
        return super().judge(order, down, whole)

    def _adds(self, order: Order) -> bool:
        """Whether sums travel in this phase; of sparse vectors they would no longer be sparse."""
        phase = order.phase
        return self.sums and phase.reduction in ("mean", "sum") and not phase.Up.sparse

    def _chosen(self, options: DistributedOptions) -> bool:
        """Whether to send sums. Raises :class:`BadParameters`."""
        n, rule, faults = self.problem.clients, self.options.aggregation, self.faulty
        if wrong := options.refuse(self.ranks.size, n, rule, faults):
            raise BadParameters("distributed", wrong)
        if options.collect != "auto" or self.reducer.rule is not None or faults is not None:
            return options.collect == "sums"
        phases = self.method.exchanges()
        everyone = any(phase.who == "all" for phase in phases)
        vectors = max(len(phase.Up.vectors) for phase in phases)
        return (n if everyone else self.cohort.size) * vectors * self._size > LARGEST
