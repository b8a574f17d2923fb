"""The reference engine: one client after the other, every message as bytes. Slow and obvious."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Any

from torch import Tensor

from undrift.core.method import Method
from undrift.core.problem import Problem
from undrift.core.struct import Message, State
from undrift.engines.codec import Address, BadFrame, Packed, Way, pack
from undrift.engines.engine import Engine
from undrift.engines.inbox import Inbox
from undrift.engines.local import One
from undrift.engines.order import Order, Share
from undrift.engines.site import Common, OneByOne, Unanswered
from undrift.engines.work import Work


class Mailed(OneByOne):
    """A site whose clients receive and send bytes, and decode them by their own declarations."""

    def __init__(self, common: Common, run: str):
        super().__init__(common)
        self.run = run
        self.frames_down = self.frames_up = 0
        self.refused: Counter[str] = Counter()
        """How many frames were refused, by reason."""
        self._at_client, self._at_server = Inbox(run, "down"), Inbox(run, "up")
        self._down = Packed("", b"")

    def carry(self, frame: bytes) -> Iterable[bytes]:
        """The frames that arrive when one is sent; here there is nothing that could fail."""
        return (frame,)

    def _perform(self, share: Share, me: State, got: Message, previous: Tensor | None) -> Work:
        order, senders = share.order, share.members.tolist()
        if order.picked is not None:
            senders = [client for client in senders if client == order.picked]
        self._at_server.expect(order.round, order.place, senders)
        self._down = pack(got)
        return super()._perform(share, me, got, previous)

    def _exchange(self, one: Share, me: State, got: Message, f: One) -> tuple[State, Message]:
        order, client = one.order, int(one.members[0])
        frame = self._down.frame(self._address(order, client, "down"))
        self.frames_down += len(frame)
        self._at_client.expect(order.round, order.place, [client])
        got = self._received(self._at_client, order.phase.Down, frame, client)
        new, up = super()._exchange(one, me, got, f)
        if order.picked not in (None, client):
            return new, up
        frame = pack(up).frame(self._address(order, client, "up"))
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
