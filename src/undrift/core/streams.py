"""Named random streams: every draw is a pure function of (seed, stream, round, client, step)."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from functools import cache
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from numpy.random import Generator


class Streams:
    """Independent streams of one seed.

    >>> a = Streams(0).at("batches", round=3, client=7, step=1).integers(1000, size=3)
    >>> b = Streams(0).at("batches", round=3, client=7, step=1).integers(1000, size=3)
    >>> bool((a == b).all())
    True
    """

    def __init__(self, seed: int):
        self.seed = seed
        self.used = False
        """Whether anything was drawn: if not, another seed gives the same."""

    def at(self, stream: str, round: int = 0, client: int = 0, step: int = 0) -> Generator:
        """A generator positioned at one place of a stream."""
        from numpy.random import Generator, Philox

        self.used = True
        return Generator(Philox(key=_key(self.seed, stream), counter=[0, step, client, round]))

    def along(self, stream: str) -> Callable[[int, int, int], Generator]:
        """``at`` of one stream by (round, client, step), with one generator that moves: cheaper."""
        from numpy.random import Generator, Philox

        @cache
        def first() -> tuple[Philox, Generator, Any]:
            bits = Philox(key=_key(self.seed, stream))
            return bits, Generator(bits), bits.state

        def move(round: int, client: int, step: int) -> Generator:
            self.used = True
            bits, generator, state = first()
            state["state"]["counter"][1:] = step, client, round
            bits.state = state
            return generator

        return move


@cache
def _key(seed: int, stream: str) -> int:
    return int.from_bytes(hashlib.sha256(f"{seed}/{stream}".encode()).digest()[:16], "little")
