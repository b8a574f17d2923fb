"""Named random streams: every draw is a pure function of (seed, stream, round, client, step)."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from functools import cache
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np
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

    def words(
        self, stream: str, round: int, clients: np.ndarray, step: int, count: int
    ) -> np.ndarray:
        """The first ``count`` whole numbers of 64 bits of every client's generator, ``[count, C]``:
        what ``at`` draws everything from.
        """
        import numpy as np

        self.used = True
        block = np.arange(1, -(-count // 4) + 1, dtype=np.uint64)[:, None]
        found = _philox(_key(self.seed, stream), block, step, clients.astype(np.uint64), round)
        return found.reshape(-1, len(clients))[:count]


def _philox(key: int, a: np.ndarray, b: int, c: np.ndarray, d: int) -> np.ndarray:
    """Philox4x64-10 (Salmon et al. 2011) of the counters (a, b, c, d): ``[A, 4, C]``."""
    import numpy as np

    shape, low, half = (len(a), 2, len(c)), np.uint64(2**32 - 1), np.uint64(32)
    even, odd = np.empty(shape, np.uint64), np.empty(shape, np.uint64)
    even[:, 0], even[:, 1], odd[:, 0], odd[:, 1] = a, c, b, d

    def pair(one: int, two: int) -> np.ndarray:
        return np.array([[one], [two]], dtype=np.uint64)

    k, more = pair(key % 2**64, key >> 64), pair(0x9E3779B97F4A7C15, 0xBB67AE8584CAA73B)
    m = pair(0xD2E7470EE14C6C93, 0xCA5A826395121157)
    m_low, m_high = m & low, m >> half
    for _ in range(10):
        # the upper half of a product of 128 bits, by products of 64
        left, right = even >> half, even & low
        carry = left * m_low + (right * m_low >> half)
        upper = left * m_high + (carry >> half) + (right * m_high + (carry & low) >> half)
        even, odd = upper[:, ::-1] ^ odd ^ k, (even * m)[:, ::-1]
        k = k + more
    return np.stack([even, odd], 2).reshape(len(a), 4, len(c))


@cache
def _key(seed: int, stream: str) -> int:
    return int.from_bytes(hashlib.sha256(f"{seed}/{stream}".encode()).digest()[:16], "little")
