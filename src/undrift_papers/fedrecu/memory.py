"""Vectors a client needs at hand, found by following a method's round."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

from undrift.core.method import Method, Round
from undrift.core.struct import Struct

Step = Callable[..., object]


def vectors_held(method: Method) -> int:
    """Vectors a client needs during a local step: one round is followed with symbols for them."""
    x0: Any = Symbol()
    everybody: Any = SimpleNamespace(fraction=1.0)
    s, me, most = method.server(x0), method.client(x0), 0
    for phase in method.phases(Round(0, [2])):
        reads: set[tuple[str, str]] = set()
        f: Any = SymbolicLocal(reads)
        new, up = phase.work(Reads("me", me, reads), Reads("got", phase.send(s), reads), f)
        most = max(most, f.point + len(reads) if f.point else 0)
        me = new.record if isinstance(new, Reads) else new
        s = phase.merge(s, up, everybody)
    return most


class Symbol:
    """Stands for a vector: all arithmetic gives another."""

    def anything(self, other: object = None) -> Symbol:
        return Symbol()

    __add__ = __radd__ = __sub__ = __rsub__ = __mul__ = __rmul__ = __truediv__ = __rtruediv__ = (
        __neg__
    ) = anything


class Reads:
    """A record that notes which of its vectors are read."""

    def __init__(self, label: str, record: Struct, reads: set[tuple[str, str]]):
        self.label, self.record, self.reads = label, record, reads

    def __getattr__(self, name: str) -> object:
        if name in self.record.names:
            self.reads.add((self.label, name))
        return getattr(self.record, name)


class SymbolicLocal:
    """``f`` for symbols: takes one local step and forgets what was read before it."""

    steps, round, decay, point = Symbol(), 0, 1.0, 0

    def __init__(self, reads: set[tuple[str, str]]):
        self.reads = reads

    def grad(self, y: object, step: int | None = None) -> Symbol:
        return Symbol()

    def descend(self, y: object, step: Step, until: Step | None = None, start: int = 0) -> object:
        self.reads.clear()
        self.point = len(y.vectors) if isinstance(y, Struct) else 1
        return step(y, self.grad)

    def sgd(self, x: object, lr: float, direction: Step | None = None, prox: float = 0.0) -> object:
        return self.descend(x, direction or (lambda y, grad: grad(y)))
