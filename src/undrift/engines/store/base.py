"""What every store of client vectors offers."""

from __future__ import annotations

import abc
import mmap
from collections.abc import Callable, Iterator

import numpy as np
from torch import Tensor

BLOCK = 2**28
"""Bytes read at a time where a vector of all clients goes to a checkpoint."""


class Store(abc.ABC):
    """Vectors of N clients by name, ``[N, d]`` each. Nothing handed out is written to later.

    Clients are their places 0 ... N-1 in the store, in ascending order; ``None`` stands for all.
    """

    _all: dict[str, Tensor]

    @abc.abstractmethod
    def gather(self, members: np.ndarray | None) -> dict[str, Tensor]:
        """The rows of some clients, in their order."""

    @abc.abstractmethod
    def scatter(self, members: np.ndarray | None, rows: dict[str, Tensor]) -> None:
        """Replace rows of clients that were gathered, or those of their vectors that are given."""

    def expect(self, who: Callable[[], np.ndarray]) -> None:
        """``who()`` is gathered next, once the rows that are out have been scattered."""
        return

    @abc.abstractmethod
    def tensors(self) -> dict[str, Tensor]:
        """Every vector of every client."""

    @abc.abstractmethod
    def load(self, tensors: dict[str, Tensor]) -> None:
        """Copies of ``tensors`` in place of all that was there."""

    @abc.abstractmethod
    def read(self, name: str, first: int, last: int) -> Tensor:
        """Rows on the CPU, good until the next scatter."""

    @property
    def names(self) -> list[str]:
        return list(self._all)

    def rows(self) -> dict[str, Rows]:
        """Every vector of every client, for reading only."""
        return {name: Rows(self, name, v) for name, v in self._all.items()}


class Rows:
    """One vector of all clients as blocks on the CPU, read lazily; good until the next phase."""

    def __init__(self, store: Store, name: str, like: Tensor):
        self._store, self._name = store, name
        self.shape, self.dtype = tuple(like.shape), like.dtype

    def __iter__(self) -> Iterator[Tensor]:
        n, d = self.shape
        step = max(BLOCK // (d * self.dtype.itemsize), 1)
        for first in range(0, n, step):
            yield self._store.read(self._name, first, min(first + step, n))


def zeros(size: int) -> mmap.mmap:
    """Zeros in memory that take no room until they are written."""
    return mmap.mmap(-1, size, access=mmap.ACCESS_COPY)
