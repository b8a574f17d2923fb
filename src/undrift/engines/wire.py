"""The reference engine: one client after the other, every message as bytes. Slow and obvious."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from undrift.core.method import Method, returned
from undrift.core.problem import Problem
from undrift.core.struct import Message, State
from undrift.engines.engine import Engine
from undrift.engines.local import Common, One
from undrift.engines.messages.frames import Address, BadFrame, decode, pack
from undrift.engines.order import Share
from undrift.engines.site import Site
from undrift.engines.work import Work, joined


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
        """Bytes that have travelled."""

    def carry(self, frame: bytes) -> bytes:
        """What arrives of a frame; here there is nothing that could go wrong on the way."""
        return frame

    def _perform(self, share: Share, me: State, got: Message, previous: Tensor | None) -> Work:
        down = pack(got)
        did, failed, gradients = list[Work](), dict[int, str](), 0
        rows = {name: v.unbind() for name, v in me.items()}
        for k in range(len(share.members)):
            one = share.part(slice(k, k + 1))
            f = One(one, self.common, None if previous is None else previous[k : k + 1])
            mine = self.method.Client(**{name: v[k] for name, v in rows.items()})
            try:
                new, up = self._exchange(one, mine, down, f)
            except BadFrame as error:
                failed[int(one.members[0])] = str(error)
            else:
                did.append(self._work(one, (new, up), f))
            gradients += f.gradients
        return joined(did)._replace(gradients=gradients, failed=failed)

    def _exchange(self, one: Share, me: State, down: bytes, f: One) -> tuple[State, Message]:
        """The work of one client on the message ``down``."""
        order, client, like = one.order, int(one.members[0]), self.common.x0
        address = Address(self.run, order.round, order.place, client, "down")
        frame = address.frame(down)
        self.frames_down += len(frame)
        got = decode(order.phase.Down, self.carry(frame), like, address)
        new, up = returned(
            order.phase, "work", order.phase.work(me, got, f), "Client", "Up", like=like
        )
        if order.picked not in (None, client):
            return new, up
        address = address._replace(way="up")
        frame = address.frame(pack(up))
        self.frames_up += len(frame)
        return new, decode(order.phase.Up, self.carry(frame), like, address)


class Wire(Engine):
    """Each client separately, by messages."""

    site: Mailed

    def __init__(self, method: Method, problem: Problem, **arguments: Any):
        super().__init__(method, problem, **arguments)
        self.site = Mailed(self.common, self.identity)
        self.parts.append(self.site)
