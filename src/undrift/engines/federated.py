"""The server's half of a real federation: clients are elsewhere, and keep their data and states.

It is the same engine as on one machine; only collecting the work, and remembering which work of
every client counted last, is done here. How messages travel is the business of a
:class:`Federation`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from typing import Any, NoReturn, Protocol

import numpy as np
import torch
from torch import Tensor

from undrift.core.cohort import Cohort
from undrift.core.method import Method
from undrift.core.params import BadParameters
from undrift.core.problem import Constants, Facts, Problem, Samples, Sums
from undrift.core.struct import Message
from undrift.engines.engine import Engine
from undrift.engines.messages.frames import Address, BadFrame, decode, pack
from undrift.engines.messages.packet import Packet, Tag
from undrift.engines.options import FederatedOptions
from undrift.engines.order import Order
from undrift.engines.work import Part, TensorForm, Work

LAST_WORKS = "last_works"
"""Of a snapshot: after which work of every client it continues, a row of a tag or of -1."""
KEPT = 3
"""Snapshots whose states nodes keep: those of a shelf, and one that is being written."""


class Refused(Exception):
    """A reply that cannot be used."""


Accept = Callable[[int, Packet], None]
"""Takes a client's reply, or raises :class:`Refused`."""


class Federation(Protocol):
    """Carries orders to clients and brings back their answers."""

    def begin(self, engine: Federated, seed: int) -> None:
        """From now on the orders are those of this run."""

    def ask(self, orders: Mapping[int, Packet], accept: Accept) -> dict[int, str]:
        """Have every client reply to its order; who did not, and why."""

    def evaluate(self, problem: Remote, x: Tensor) -> dict[str, float]:
        """The metrics at ``x``, by the clients' own data."""


class Remote(Problem):
    """A problem whose data are with the clients of a federation.

    ``whole`` is the problem itself where everybody can build it, as with public data; a server that
    has it measures as on one machine. ``by_name`` gives a model the names of its tensors, where
    clients have said them.
    """

    def __init__(
        self,
        facts: Facts,
        federation: Federation,
        digest: str | None,
        whole: Problem | None = None,
        samples: Samples | None = None,
        by_name: Callable[[Tensor], dict[str, Tensor]] | None = None,
    ):
        self.known, self.federation, self.whole = facts, federation, whole
        self.clients, self.dim, self.samples = facts.clients, facts.dim, [*facts.samples]
        self.dtype, self.device = facts.dtype, facts.device
        self.remembers, self.differentiates = facts.remembers, facts.differentiates
        self.labelled = True if whole is None else whole.labelled
        self._digest, self._by_name = digest, by_name
        self.reported: tuple[Tensor, Sums] | None = None
        """What nodes said of their own data at the last model that was measured."""
        if whole is not None:
            self.note, self.class_names = whole.note, whole.class_names
            self.own_samples, samples = whole.own_samples, whole.metric_samples
            self.pooled, self.sampled = whole.pooled, whole.sampled
        elif samples is not None:
            self.own_samples = samples
        self.metric_samples = samples

    def at(self, members: np.ndarray | None = None) -> NoReturn:
        raise RuntimeError("the data of a federation are with its clients")

    def to(self, dtype: torch.dtype, device: torch.device) -> NoReturn:
        self.at()

    @property
    def minimises(self) -> bool:
        """Of clients' own data, only they know."""
        return self.whole is None or self.whole.minimises

    def metrics(self, x: Tensor) -> dict[str, float]:
        return self.federation.evaluate(self, x)

    def client_metrics(self, x: Tensor, members: np.ndarray | None = None) -> Sums:
        """Of nodes with data of their own, what they report; NaN for those that are absent."""
        if self.whole is not None:
            return self.whole.client_metrics(x, members)
        # Metrics and numbers of clients of one model are one question to the nodes.
        if self.reported is None or not torch.equal(self.reported[0], x):
            self.metrics(x)
        assert self.reported is not None
        return {name: v if members is None else v[members] for name, v in self.reported[1].items()}

    def with_label_noise(self, noise: Mapping[int, np.ndarray]) -> Remote:
        return self  # clients change their own labels

    def label_counts(self, members: np.ndarray | None = None) -> Tensor | None:
        return None if self.whole is None else self.whole.label_counts(members)

    def tensors(self, x: Tensor) -> dict[str, Tensor]:
        if self.whole is not None:
            return self.whole.tensors(x)
        return super().tensors(x) if self._by_name is None else self._by_name(x)

    @property
    def constants(self) -> Constants:
        if self.whole is not None:
            return self.whole.constants
        return self.known.constants or Constants()

    def start(self) -> Tensor:
        return self.known.start()

    def digest(self) -> str | None:
        return self._digest


class CountedWork(Part):
    """After which work every client continues, now and in the snapshots that may be restored."""

    def __init__(self, clients: int):
        self.last: list[Tag | None] = [None] * clients
        self.attempt = 0
        """How often a round began again: work that did not count has another tag than its like."""
        self._stored: deque[list[Tag | None]] = deque([[*self.last]], KEPT)
        self.begin()

    def needed(self, client: int) -> list[Tag]:
        """The works of a client that a round or a snapshot may return to."""
        held = {self._begun[client], *(stored[client] for stored in self._stored)}
        return sorted(tag for tag in held if tag is not None)

    def roll_back(self) -> None:
        super().roll_back()
        # Work that did not count must not be taken for the work that is done in its place.
        self.attempt += 1

    def forms(self, members: int) -> dict[str, TensorForm]:
        return {LAST_WORKS: (torch.int64, (len(self.last), len(Tag._fields)))}

    def tensors(self, whole: bool) -> dict[str, Tensor]:
        rows = [(-1, -1, -1) if tag is None else tag for tag in self.last]
        # From here on a run may be resumed from these works: nodes are told to keep their states.
        self._stored.append([*self.last])
        return {LAST_WORKS: torch.tensor(rows)}

    def load(self, tensors: Mapping[str, Tensor]) -> None:
        rows = tensors[LAST_WORKS].tolist()
        self.last = [None if row[0] < 0 else Tag(*row) for row in rows]
        self.begin()
        self._stored.append([*self.last])


class Federated(Engine):
    """Clients on machines of their own; the server knows what they upload, and nothing else."""

    Options, remote = FederatedOptions, True
    problem: Remote

    def __init__(self, method: Method, problem: Problem, *, seed: int = 0, **arguments: Any):
        if not isinstance(problem, Remote):
            text = "engine = 'flower' needs a federation: undrift federate SPEC --local 3"
            raise BadParameters("engine", {"engine": text})
        super().__init__(method, problem, seed=seed, **arguments)
        self.counted = CountedWork(problem.clients)
        self.parts.append(self.counted)
        self._now = Tag(0, 0, 0)
        problem.federation.begin(self, seed)

    def collect(self, order: Order, down: Message) -> Work:
        self._now = Tag(order.round, order.place, self.counted.attempt)
        members, packed, Up = order.cohort.members.tolist(), pack(down), order.phase.Up
        senders = members if order.picked is None else [order.picked]
        uploads, gradients, unsound = dict[int, Message](), dict[int, int](), dict[int, str]()

        def accept(client: int, reply: Packet) -> None:
            if "unsound" in reply.table:  # its own word: it kept and sent nothing
                # It is the judge's to refuse, as if the numbers had been sent: only so a run in
                # which nobody's work is finite ends as diverged, as on one machine.
                if client in senders:
                    nothing = torch.full_like(self.x0, torch.nan)
                    uploads[client] = Up(**dict.fromkeys(Up.vectors, nothing))
                else:
                    unsound[client] = str(reply.table["unsound"])
                return
            if client in senders:
                try:
                    address = self._address(client)._replace(way="up")
                    uploads[client] = decode(Up, reply.content, self.x0, address)
                except BadFrame as error:
                    raise Refused(str(error)) from None
            gradients[client] = int(reply.table["gradients"])
            self.streams.used |= bool(reply.table["drawn"])

        orders = {
            client: self._order(client, self._address(client).frame(packed)) for client in members
        }
        failed = self.problem.federation.ask(orders, accept) | unsound
        answered = [client for client in members if client not in failed]
        sent = [client for client in answered if client in uploads]
        rows = [uploads[client] for client in sent]
        return Work(
            members=np.array(answered, int),
            up=rows[0].map(lambda *each: torch.stack(each), *rows[1:]) if rows else None,
            senders=np.array(sent, int),
            gradients=sum(gradients.values()),
            failed=failed,
        )

    def commit(self, work: Work, cohort: Cohort) -> None:
        for client in work.members.tolist():
            self.counted.last[client] = self._now

    def _order(self, client: int, frame: bytes) -> Packet:
        """What is asked of a client: which work, after which of its works, and which to keep."""
        return Packet(
            {
                "do": "work",
                "tag": self._now,
                "before": self.counted.last[client],
                "keep": self.counted.needed(client),
                "skipped": [*self.troubles.skipped_rounds],
                "gone": [*self.troubles.gone],
            },
            frame,
        )

    def _address(self, client: int) -> Address:
        return Address(self.identity, self._now.round, self._now.place, client, "down")
