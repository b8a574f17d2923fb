"""The reference engine: one client after the other, every message as bytes. Slow and obvious."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from undrift.core.method import Method
from undrift.core.problem import Problem
from undrift.core.struct import Message, State
from undrift.engines.codec import decode, encode
from undrift.engines.engine import Engine
from undrift.engines.local import One
from undrift.engines.order import Share
from undrift.engines.site import Common, OneByOne
from undrift.engines.work import Work


class Mailed(OneByOne):
    """A site whose clients receive and send bytes, and decode them by their own declarations."""

    def __init__(self, common: Common):
        super().__init__(common)
        self.frames_down = self.frames_up = 0
        self._frame = b""

    def _perform(self, share: Share, me: State, got: Message, previous: Tensor | None) -> Work:
        self._frame = encode(got)
        return super()._perform(share, me, got, previous)

    def _exchange(self, one: Share, me: State, got: Message, f: One) -> tuple[State, Message]:
        phase, like = one.order.phase, self.common.x0
        self.frames_down += len(self._frame)
        new, up = super()._exchange(one, me, decode(phase.Down, self._frame, like), f)
        if one.order.picked not in (None, *one.members.tolist()):
            return new, up
        frame = encode(up)
        self.frames_up += len(frame)
        return new, decode(phase.Up, frame, like)


class Wire(Engine):
    """Each client separately; ``frames_down`` and ``frames_up`` are the bytes that travelled."""

    def __init__(self, method: Method, problem: Problem, **arguments: Any):
        super().__init__(method, problem, **arguments)
        self._site = Mailed(self.common)
        self.sites = [self._site]

    @property
    def frames_down(self) -> int:
        return self._site.frames_down

    @property
    def frames_up(self) -> int:
        return self._site.frames_up
