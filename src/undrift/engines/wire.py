"""The reference engine: one client after the other, every message as bytes. Slow and obvious."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Any

from torch import Tensor

from undrift.core.method import Method
from undrift.core.problem import Problem
from undrift.core.struct import Message, State
from undrift.engines.engine import Engine
from undrift.engines.local import Common, One
from undrift.engines.messages.frames import Address, BadFrame, Inbox, Way, pack
from undrift.engines.order import Order, Share
from undrift.engines.site import Site
from undrift.engines.work import Work, joined


class Unanswered(Exception):
    """A client gave no answer that can be used."""


class Mailed(Site):
    """A site whose clients work one after the other, each with vectors ``[d]``.

    They receive and send bytes, and decode them by their own declarations. One whose answer cannot
    be used has failed in this phase.
    """

    stacks = False

    def __init__(self, common: Common, run: str):
        super().__init__(common)
        self.run = run
        self.frames_down = self.frames_up = 0
        self.refused: Counter[str] = Counter()
        """How many frames were refused, by reason."""
        self._at_client, self._at_server = Inbox(run, "down"), Inbox(run, "up")
        self._down = b""

    def carry(self, frame: bytes) -> Iterable[bytes]:
        """The frames that arrive when one is sent; here there is nothing that could fail."""
        return (frame,)

    def _perform(self, share: Share, me: State, got: Message, previous: Tensor | None) -> Work:
        order, senders = share.order, share.members.tolist()
        if order.picked is not None:
            senders = [client for client in senders if client == order.picked]
        self._at_server.expect(order.round, order.place, senders)
        self._down = pack(got)
        did, failed, gradients = list[Work](), dict[int, str](), 0
        rows = {name: v.unbind() for name, v in me.items()}
        for k in range(len(share.members)):
            one = share.part(slice(k, k + 1))
            f = One(one, self.common, None if previous is None else previous[k : k + 1])
            mine = self.method.Client(**{name: v[k] for name, v in rows.items()})
            try:
                new, up = self._exchange(one, mine, f)
            except Unanswered as error:
                failed[int(one.members[0])] = str(error)
            else:
                end = None if f.end is None else _row(f.end)
                did.append(self._work(one, new.map(_row), up.map(_row), end, 0))
            gradients += f.gradients
        return joined(did)._replace(gradients=gradients, failed=failed)

    def _exchange(self, one: Share, me: State, f: One) -> tuple[State, Message]:
        """The work of one client."""
        order, client = one.order, int(one.members[0])
        frame = self._address(order, client, "down").frame(self._down)
        self.frames_down += len(frame)
        self._at_client.expect(order.round, order.place, [client])
        got = self._received(self._at_client, order.phase.Down, frame, client)
        new, up = order.phase.work(me, got, f)
        if order.picked not in (None, client):
            return new, up
        frame = self._address(order, client, "up").frame(pack(up))
        self.frames_up += len(frame)
        return new, self._received(self._at_server, order.phase.Up, frame, client)

    def _address(self, order: Order, client: int, way: Way) -> Address:
        return Address(self.run, order.round, order.place, client, way)

    def _received(self, inbox: Inbox, kind: type[Message], frame: bytes, client: int) -> Message:
        """What arrives of a frame sent to or by a client."""
        found: dict[int, Message] = {}
        why = "nothing arrived"
        for arrived in self.carry(frame):
            try:
                sender, message = inbox.take(kind, arrived, self.common.x0)
                found[sender] = message
            except BadFrame as error:
                self.refused[error.reason] += 1
                why = str(error)
        if client not in found:
            raise Unanswered(f"{kind.__qualname__}: {why}")
        return found[client]


def _row(v: Tensor) -> Tensor:
    return v.unsqueeze(0)


class Wire(Engine):
    """Each client separately; ``frames_down`` and ``frames_up`` are the bytes that travelled."""

    site: Mailed

    def __init__(self, method: Method, problem: Problem, **arguments: Any):
        super().__init__(method, problem, **arguments)
        self.site = Mailed(self.common, self.identity)

    @property
    def frames_down(self) -> int:
        return self.site.frames_down

    @property
    def frames_up(self) -> int:
        return self.site.frames_up
