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
    def load(self, tensors: dict[str, Tensor], written: np.ndarray | None = None) -> None:
        """Copies of ``tensors`` in place of all that was there: the rows of the clients
        ``written``, where others have those of the start, or of all.
        """

    @abc.abstractmethod
    def read(self, name: str, which: slice | np.ndarray) -> Tensor:
        """Rows on the CPU, good until the next scatter."""

    @abc.abstractmethod
    def written(self) -> np.ndarray:
        """The clients whose rows were scattered or loaded; those of others are the start's."""

    @property
    def names(self) -> list[str]:
        return list(self._all)

    def rows(self) -> dict[str, StoredRows]:
        """Every vector of the clients that are written, for reading only."""
        written = self.written()
        return {name: StoredRows(self, name, written, v) for name, v in self._all.items()}


class StoredRows:
    """One vector of some clients as blocks on the CPU, read lazily; good until the next phase."""

    def __init__(self, store: Store, name: str, clients: np.ndarray, like: Tensor):
        self._store, self._name, self._clients = store, name, clients
        self.shape, self.dtype = (len(clients), like.shape[-1]), like.dtype
        self._step = max(BLOCK // (like.shape[-1] * self.dtype.itemsize), 1)

    def __iter__(self) -> Iterator[Tensor]:
        for some in self._blocks(self._clients):
            yield self._store.read(self._name, some)

    def _blocks(self, clients: np.ndarray) -> Iterator[slice | np.ndarray]:
        """So many of them at a time; a slice, which takes no copy, where none is left out."""
        for first in range(0, len(clients), self._step):
            some = clients[first : first + self._step]
            whole = some[-1] - some[0] == len(some) - 1
            yield slice(int(some[0]), int(some[-1]) + 1) if whole else some


def zeros(size: int) -> mmap.mmap:
    """Zeros in memory that take no room until they are written."""
    return mmap.mmap(-1, size, access=mmap.ACCESS_COPY)
