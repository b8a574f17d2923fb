"""NumPy's ``choice`` and ``permutation`` for many clients at once, number for number.

Clients whose draws take a turn that is too rare to be followed for all, one in thousands at most,
are left to NumPy itself, as all of them are where that is faster.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.random import Generator

from undrift.core.streams import Streams

SIDE = 64
"""Samples up to which clients are drawn side by side."""
FEW = 20
"""So many clients, and one more for each sample, are as fast one by one."""


class CohortDraws:
    """One stream at (round, step), for ``clients`` that hold so many samples each."""

    def __init__(
        self,
        streams: Streams,
        stream: str,
        place: tuple[int, int],
        clients: np.ndarray,
        held: np.ndarray,
    ):
        self._streams, self._stream, (self._round, self._step) = streams, stream, place
        self._clients, self._held = clients, held

    def choice(self, size: int) -> np.ndarray:
        """``choice(held, size, replace=False)`` of each, ``[C, size]``; all hold more than that."""
        held, places = self._held, np.arange(size)[:, None]
        found = np.empty((size, len(held)), dtype=np.int64)

        def alone(rng: Generator, held: int) -> np.ndarray:
            return rng.choice(held, size, replace=False)

        if self._apart(size):
            return self._completed(found, alone, held > 0)
        last = np.concatenate([held - size + places, 0 * held + places[:0:-1]])
        # A number up to ``last`` is the upper half of a word's product with their count; where the
        # lower half is small, the word may have to be drawn again (Lemire 2019).
        products = self._words(len(last)) * (last + 1).astype(np.uint64)
        rare = ((products & np.uint64(2**32 - 1)).astype(np.int64) <= last).any(0)
        drawn = (products >> np.uint64(32)).astype(np.int64)
        for k in range(size):  # Floyd's algorithm
            taken = (found[:k] == drawn[k]).any(0)
            found[k] = np.where(taken, last[k], drawn[k])
        swap = _swaps(found)
        for i, j in zip(last[size:], drawn[size:], strict=True):
            swap(i, j)
        # of more samples than this NumPy may shuffle all
        return self._completed(found, alone, rare | (held > 10_000))

    def permutation(self) -> np.ndarray:
        """``permutation(held)`` of each, ``[C, most]``, then -1."""
        most, left = int(self._held.max()), self._held - 1
        places = np.arange(most)[:, None]
        found = np.where(places <= left, places, -1)

        def alone(rng: Generator, held: int) -> np.ndarray:
            return np.pad(rng.permutation(held), (0, most - held), constant_values=-1)

        if self._apart(most):
            return self._completed(found, alone, left >= 0)
        # of every word so many bits as the largest place has, until these are no larger
        masks = np.array([2 ** place.bit_length() - 1 for place in range(most)])
        swap = _swaps(found)
        for word in self._words(2 * most + 16).astype(np.int64):
            drawn = word & masks[left]
            fits = drawn <= left
            swap(left, np.where(fits, drawn, left))
            left = left - (fits & (left > 0))
        return self._completed(found, alone, left > 0)

    def _apart(self, samples: int) -> bool:
        """Whether clients are faster one by one."""
        return samples > SIDE or len(self._clients) < FEW + samples

    def _words(self, count: int) -> np.ndarray:
        """The first words of 32 bits, ``[count, C]``."""
        at = self._stream, self._round, self._clients, self._step
        words = self._streams.words(*at, -(-count // 2))
        halves = words & np.uint64(2**32 - 1), words >> np.uint64(32)
        return np.stack(halves, 1).reshape(-1, words.shape[1])[:count]

    def _completed(
        self,
        found: np.ndarray,
        alone: Callable[[Generator, int], np.ndarray],
        missing: np.ndarray,
    ) -> np.ndarray:
        """``found [size, C]`` as ``[C, size]``, where those of some clients are drawn alone."""
        at = self._streams.along(self._stream)
        for column in np.flatnonzero(missing).tolist():
            rng = at(self._round, int(self._clients[column]), self._step)
            found[:, column] = alone(rng, int(self._held[column]))
        return np.ascontiguousarray(found.T)


def _swaps(found: np.ndarray) -> Callable[[np.ndarray, np.ndarray], None]:
    """A function that swaps what every column has in two rows."""
    flat, column = found.reshape(-1), np.arange(found.shape[1])

    def swap(i: np.ndarray, j: np.ndarray) -> None:
        i, j = i * len(column) + column, j * len(column) + column
        flat[i], flat[j] = flat[j], flat[i]

    return swap
