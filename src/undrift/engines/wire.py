"""The reference engine: one client after the other, every message as bytes. Slow and obvious."""

from __future__ import annotations

import dataclasses
from typing import Any

from undrift.core.method import Method
from undrift.core.problem import Problem
from undrift.core.struct import Message
from undrift.engines.codec import decode, encode
from undrift.engines.engine import Engine
from undrift.engines.order import Order
from undrift.engines.site import OneByOne
from undrift.engines.work import Work, joined


class Wire(Engine):
    """Each client separately; ``frames_down`` and ``frames_up`` are the bytes that travelled."""

    def __init__(self, method: Method, problem: Problem, **arguments: Any):
        super().__init__(method, problem, **arguments)
        self.sites = [OneByOne(self.common)]
        self.frames_down = self.frames_up = 0

    def collect(self, order: Order, down: Message) -> list[Work]:
        (site,), works = self.sites, list[Work]()
        frame, share = encode(down), site.share(order)
        for k in range(len(share.members)):
            self.frames_down += len(frame)
            got = decode(order.phase.Down, frame, self.x0)
            work = site.work(share.part(slice(k, k + 1)), got)
            works.append(dataclasses.replace(work, up=self._travelled(order, work.up)))
        return [joined(works)]

    def _travelled(self, order: Order, up: Message | None) -> Message | None:
        """An upload as the server decodes it."""
        if up is None:
            return None
        frame = encode(up.map(lambda rows: rows[0]))
        self.frames_up += len(frame)
        return decode(order.phase.Up, frame, self.x0).map(lambda v: v.unsqueeze(0))
