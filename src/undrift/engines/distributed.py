"""Many processes, one run: every rank keeps the server and the clock, and works on its part.

All draws are functions of the seed, so every rank makes the same orders, judgements and merges by
itself. What travels is uploads, to all ranks, and the states of clients that work away from where
they live (:mod:`undrift.engines.shard`).
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor

from undrift._threads import one_thread
from undrift.core.cohort import Sampling
from undrift.core.method import Method
from undrift.core.params import BadParameters
from undrift.core.problem import Facts, Problem, Sums
from undrift.core.struct import Message
from undrift.engines.engine import Engine, Tensors
from undrift.engines.format import KINDS, TYPES, content
from undrift.engines.ledger import Counters
from undrift.engines.memory import Needs, plan
from undrift.engines.options import DistributedOptions
from undrift.engines.order import Order
from undrift.engines.ranks import Parted, Ranks, WorkFailed, count, here
from undrift.engines.saved import WRITTEN
from undrift.engines.shard import Shard
from undrift.engines.work import Work

LARGEST = 2**26
"""Bytes of the uploads of a phase up to which ``auto`` sends all of them to all ranks."""


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
        self._spent = [0, 0]
        """Gradients, and bytes sent up, of this rank that the ledger does not have yet."""

    @classmethod
    def needs(
        cls, method: Method, problem: Problem | Facts, cohort: Sampling, options: object
    ) -> Needs:
        chosen = cast(DistributedOptions, options)
        return plan(method, problem, cohort, chosen.store, count(), here())

    def agree(self, decision: bool) -> bool:
        return self.ranks.agree(decision)

    def told(self, numbers: dict[str, float]) -> dict[str, float]:
        said: dict[str, float] = self.ranks.tell(numbers)
        return said

    def collect(self, order: Order, down: Message) -> Work:
        work = self.site.work(self.site.share(order), down)
        self._spent[0] += work.gradients
        if not self._adds(order):
            work = self.site.uploads(order, work)
        return work._replace(gradients=0)

    def commit(self, work: Work) -> None:
        gone, skipped = self.troubles.gone, self.troubles.skipped_rounds
        kept = self.clock.at(self.round, self.phase, skipped, gone).cohort.members
        self.site.send_home(work, kept)

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
        self._settle()
        digest = hashlib.sha256(b"".join(content(v) for _, v in self.server.items())).digest()
        if not self.ranks.same(digest):
            text = "the processes of the run have come to different models"
            raise Parted(f"round {self.round}: {text}; continue from the last checkpoint")
        pieces = self.problem.pieces(self.x, self.ranks.rank, self.ranks.size)
        if pieces is not None:
            sizes = self.ranks.sizes(len(pieces))
            return self.problem.of_pieces(self.ranks.gather(pieces, sizes), self.x)
        return self._from_leader()

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

    def snapshot(self, whole: bool = True) -> tuple[dict[str, Any], Counters]:
        self._settle()
        return super().snapshot(whole)

    def restore(self, tensors: Tensors, counters: Counters) -> None:
        """From what rank 0 is given; the others need not have it."""
        forms = dict[str, tuple[str, list[int]]]()
        if self.leads:
            self._check(tensors)
            common = tensors.keys() - self.site.names()
            forms = {n: (KINDS[tensors[n].dtype], list(tensors[n].shape)) for n in sorted(common)}
        self._receive(tensors, self.ranks.tell({"counters": counters, "forms": forms}))

    def lead(self, notes: Mapping[str, Any] | None) -> None:
        words = {name: note for name, note in (notes or {}).items() if not isinstance(note, Tensor)}
        self.ranks.tell(notes and words)

    def follow(self) -> dict[str, Any] | None:
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
        for saved in sorted(self.site.names()):
            for rank, (first, last) in enumerate(pairwise(bounds.tolist())):
                if self.ranks.rank in (0, rank):
                    blank = torch.empty(last - first, self.problem.dim, dtype=self.x0.dtype)
                    rows = tensors[saved][first:last].cpu() if self.leads else blank
                    rows = self.ranks.hand(rows, 0, rank)
                    if rank == self.ranks.rank:
                        found[saved] = rows
        self._continue(found, said["counters"])
        self._spent = [0, 0]

    def _settle(self) -> None:
        """Add to the ledger what all ranks have spent."""
        spent = self.ranks.total([*self._spent, int(self.streams.used)])
        self.ledger.gradients += spent[0]
        self.ledger.bytes_up += spent[1]
        self.streams.used, self._spent = spent[2] > 0, [0, 0]

    def _from_leader(self) -> dict[str, float]:
        """Metrics that only rank 0 computes."""
        found: dict[str, float] = {}
        try:
            if self.leads:
                found = self.problem.metrics(self.x)
        except Exception as error:
            self.ranks.tell({"failed": str(error)})
            raise
        said = self.ranks.tell({"metrics": found})
        if "failed" in said:
            raise WorkFailed(said["failed"])
        return cast(dict[str, float], said["metrics"])

    def _book(self, order: Order, down: Message, work: Work) -> None:
        before = self.ledger.bytes_up
        super()._book(order, down, work)
        if self._adds(order):  # these are the uploads of this rank alone
            self._spent[1] += self.ledger.bytes_up - before
            self.ledger.bytes_up = before

    def judge(self, order: Order, down: Message, work: Work) -> Mapping[int, str]:
        """The same answer on all ranks."""
        site = self.site
        if site.sound and self.faulty is None and self._even(order):
            return {}
        if self._adds(order):
            work = site.uploads(order, work)
        states = {} if site.sound else site.states(work)
        whole = work._replace(members=order.cohort.members, states=states)
        return super().judge(order, down, whole)

    def _even(self, order: Order) -> bool:
        """Whether no upload is too long; only lengths travel for it."""
        judge, ranks, even = self.soundness, self.ranks, True
        if not judge.bounds(order):
            return even
        fields = zip(order.phase.Up.vectors, self.site.norms, self.site.lengths, strict=True)
        for name, mine, (shortest, longest) in fields:
            if not judge.within(order, name, shortest, longest):
                norms = torch.tensor(mine, dtype=torch.float64)
                every = ranks.gather(norms, ranks.sizes(len(mine))).tolist()
                even &= longest <= judge.norm * judge.scale(order, name, every)
        return even

    def _adds(self, order: Order) -> bool:
        """Whether sums travel in this phase."""
        return self.sums and order.phase.reduction in ("mean", "sum")

    def _chosen(self, options: DistributedOptions) -> bool:
        """Whether to send sums. Raises :class:`BadParameters`."""
        n, rule, faults = self.problem.clients, self.rule, self.faulty
        if wrong := options.refuse(self.ranks.size, n, rule, faults):
            raise BadParameters("distributed", wrong)
        if options.collect != "auto" or rule is not None or faults is not None:
            return options.collect == "sums"
        phases = self.method.exchanges()
        everyone = any(phase.who == "all" for phase in phases)
        vectors = max(len(phase.Up.vectors) for phase in phases)
        return (n if everyone else self.cohort.size) * vectors * self._size > LARGEST
