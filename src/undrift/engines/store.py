"""Where the clients' vectors are between rounds: on the device, in page-locked memory, or in a
file.
"""

from __future__ import annotations

import errno
import mmap
import os
import tempfile
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from torch import Tensor

from undrift._device import upload

BLOCK = 2**28
"""Bytes that are read at a time where a vector of all clients goes to a checkpoint."""


class Store:
    """Vectors of N clients by name, ``[N, d]`` each, on the device. Nothing handed out is written
    to later.

    Rows are scattered to the clients that were gathered last. ``None`` stands for every client.
    """

    def __init__(self, start: dict[str, Tensor], clients: int):
        self._all = {name: row.expand(clients, -1) for name, row in start.items()}
        self._own: set[str] = set()  # names of tensors that nobody else has seen
        self._members, self._at = np.arange(0), torch.arange(0)

    def gather(self, members: np.ndarray | None) -> dict[str, Tensor]:
        """The rows of some clients, in their order."""
        if members is None or not self._all:
            self._own.clear()
            return dict(self._all)
        at = self._index(members)
        return {name: v.index_select(0, at) for name, v in self._all.items()}

    def scatter(self, members: np.ndarray | None, rows: dict[str, Tensor]) -> None:
        """Renew the rows of some clients, or those of their vectors that are given."""
        if members is None:
            self._all.update(rows)
            return
        at = self._index(members)
        for name, new in rows.items():
            if name not in self._own:
                self._all[name] = _writable(self._all[name])
                self._own.add(name)
            self._all[name].index_copy_(0, at, new)

    def expect(self, who: Callable[[], np.ndarray]) -> None:
        """``who()`` is gathered next, once the rows that are out have been scattered."""

    def tensors(self) -> dict[str, Tensor]:
        """Every vector of every client."""
        self._own.clear()
        return dict(self._all)

    def load(self, tensors: dict[str, Tensor]) -> None:
        """Copies of ``tensors`` in place of all that was there."""
        self._all = {name: tensors[name].to(v.device, copy=True) for name, v in self._all.items()}
        self._own = set(self._all)

    def read(self, name: str, first: int, last: int) -> Tensor:
        """Rows on the CPU, good until the next scatter."""
        return self._all[name][first:last].cpu()

    @property
    def names(self) -> list[str]:
        return list(self._all)

    def rows(self) -> dict[str, Rows]:
        """Every vector of every client, for reading only."""
        return {name: Rows(self, name, v) for name, v in self._all.items()}

    def _index(self, members: np.ndarray) -> Tensor:
        if members is not self._members and not np.array_equal(members, self._members):
            self._members, self._at = (
                members,
                upload(members, next(iter(self._all.values())).device),
            )
        return self._at


class Apart(Store):
    """Outside the device's memory; a client that never took part has no row, its vectors are the
    start's.

    In memory, rows come and go on a CUDA stream of their own: those of the next cohort while this
    one is at work. The
    rows of the last cohort stay on the device. With ``folder`` they are in a file there, which
    nobody else sees and
    which is gone with the process.
    """

    def __init__(self, start: dict[str, Tensor], clients: int, folder: str | None = None):
        row = next(iter(start.values()))
        size = len(start) * clients * row.nbytes
        self._file, self._bytes = _sparse(size, folder)
        self._block = torch.frombuffer(self._bytes, dtype=row.dtype).view(len(start), clients, -1)
        self._all = dict(zip(start, self._block, strict=True))
        self._start, self._device, self._folder = start, row.device, folder
        self._seen = {name: np.zeros(clients, dtype=bool) for name in start}
        self._side = torch.cuda.Stream(row.device, priority=-1) if folder is None else None
        self._ahead = self._side is not None
        self._here: tuple[np.ndarray, dict[str, Tensor]] = np.arange(0), {}
        self._coming: tuple[np.ndarray, dict[str, Tensor], Any] | None = None
        if self._side:
            _lock(self._block)
            weakref.finalize(self, _unlock, self._block, self._side)

    def gather(self, members: np.ndarray | None) -> dict[str, Tensor]:
        members = np.arange(self._block.shape[1]) if members is None else members
        if not np.array_equal(members, self._here[0]):
            coming, self._coming = self._coming, None
            if coming is None or not np.array_equal(members, coming[0]):
                coming = self._fetch(members)
            self._here = members, self._arrived(*coming)
        return dict(self._here[1])

    def scatter(self, members: np.ndarray | None, rows: dict[str, Tensor]) -> None:
        members = self._here[0]
        with self._aside():
            for name, new in rows.items():
                for k, i in enumerate(members):
                    self._claim(name, i)
                    self._all[name][i].copy_(new[k], non_blocking=self._side is not None)
                if self._side:
                    new.record_stream(self._side)
        self._here = members, {**self._here[1], **rows}

    def expect(self, who: Callable[[], np.ndarray]) -> None:
        if self._coming is not None or np.array_equal(members := who(), self._here[0]):
            return
        if self._ahead:
            self._coming = self._fetch(members)
        elif hasattr(mmap, "MADV_WILLNEED"):  # not on Windows
            for name, seen in self._seen.items():
                for i in members[seen[members]]:
                    before = self._place(name, i) % mmap.PAGESIZE
                    first, size = self._place(name, i) - before, self._start[name].nbytes + before
                    self._bytes.madvise(mmap.MADV_WILLNEED, first, size)

    def tensors(self) -> dict[str, Tensor]:
        return {name: self.read(name, 0, len(v)) for name, v in self._all.items()}

    def load(self, tensors: dict[str, Tensor]) -> None:
        self._settle()
        self._here, self._coming = (np.arange(0), {}), None
        for name, mine in self._all.items():
            start = self._start[name].cpu()
            for i, row in enumerate(tensors[name]):
                if torch.equal(row.cpu(), start):
                    self._seen[name][i] = False
                else:
                    self._claim(name, i)
                    mine[i].copy_(row)

    def read(self, name: str, first: int, last: int) -> Tensor:
        self._settle()
        block = self._all[name][first:last].clone()
        block[torch.from_numpy(~self._seen[name][first:last])] = self._start[name].cpu()
        return block

    def _fetch(self, members: np.ndarray) -> tuple[np.ndarray, dict[str, Tensor], Any]:
        """Rows on their way to the device, all but those of the cohort that is there."""
        rows = {name: v.new_empty(len(members), len(v)) for name, v in self._start.items()}
        absent = np.flatnonzero(~np.isin(members, self._here[0]))
        with self._aside():
            for name, out in rows.items():
                for k in absent:
                    stored = self._seen[name][members[k]]
                    row = self._all[name][members[k]] if stored else self._start[name]
                    out[k].copy_(row, non_blocking=self._side is not None)
                if self._side:
                    out.record_stream(self._side)
        return members, rows, self._side and self._side.record_event()

    def _arrived(
        self, members: np.ndarray, rows: dict[str, Tensor], event: Any
    ) -> dict[str, Tensor]:
        if event is not None:
            torch.cuda.current_stream(self._device).wait_event(event)
        there, before = self._here
        _, new, old = np.intersect1d(members, there, assume_unique=True, return_indices=True)
        for name, out in rows.items():
            for k, j in zip(new, old, strict=True):
                out[k].copy_(before[name][j])
        return rows

    @contextmanager
    def _aside(self) -> Iterator[None]:
        """Copies beside the work, after all that was asked of the device so far."""
        if self._side is None:
            yield
            return
        self._side.wait_stream(torch.cuda.current_stream(self._device))
        with torch.cuda.stream(self._side):
            yield

    def _settle(self) -> None:
        if self._side:
            self._side.synchronize()

    def _claim(self, name: str, client: int) -> None:
        """Room on disk for a row, before it is written: without it the process would die of a
        signal.
        """
        if self._file and not self._seen[name][client]:
            try:
                _reserve(self._file.fileno(), self._place(name, client), self._start[name].nbytes)
            except OSError as error:
                error.filename = self._folder
                raise
        self._seen[name][client] = True

    def _place(self, name: str, client: int) -> int:
        return self._all[name][client].data_ptr() - self._block.data_ptr()


class Rows:
    """One vector of all clients as blocks on the CPU, each read when it is asked for; good until
    the next phase.
    """

    def __init__(self, store: Store, name: str, like: Tensor):
        self._store, self._name = store, name
        self.shape, self.dtype = tuple(like.shape), like.dtype

    def __iter__(self) -> Iterator[Tensor]:
        n, d = self.shape
        step = max(BLOCK // (d * self.dtype.itemsize), 1)
        return (
            self._store.read(self._name, first, min(first + step, n)) for first in range(0, n, step)
        )


def _writable(v: Tensor) -> Tensor:
    """A copy; on a CPU, zeros that are common to all clients take no room until they differ."""
    if v.device.type == "cpu" and v.stride(0) == 0 and not v[0].any():
        return torch.frombuffer(_sparse(v.numel() * v.element_size())[1], dtype=v.dtype).view(
            v.shape
        )
    return v.clone()


def _sparse(size: int, folder: str | None = None) -> tuple[Any, mmap.mmap]:
    """Zeros that take no room until they are written: in memory, or in a nameless file."""
    if folder is None:
        return None, mmap.mmap(-1, size, access=mmap.ACCESS_COPY)
    file = tempfile.TemporaryFile(dir=folder)  # noqa: SIM115
    file.truncate(size)
    return file, mmap.mmap(file.fileno(), size)


def _reserve(file: int, start: int, size: int) -> None:
    """Room on disk for a part of a file that nobody has written to yet."""
    if hasattr(os, "posix_fallocate"):
        try:
            os.posix_fallocate(file, start, size)
            return
        except OSError as error:
            if error.errno not in (
                errno.EINVAL,
                errno.EOPNOTSUPP,
            ):  # not there on every file system
                raise
    if hasattr(
        os, "pwrite"
    ):  # Windows, which lacks it, takes the room of the whole file when that is made
        zeros, end = bytes(min(size, 2**20)), start + size
        while start < end:
            start += os.pwrite(file, zeros[: end - start], start)


def _lock(block: Tensor) -> None:
    """Page-lock: PyTorch's own allocator would take the next power of two."""
    if error := int(torch.cuda.cudart().cudaHostRegister(block.data_ptr(), block.nbytes, 1)):
        text = f"{block.nbytes / 1e9:.1f} GB cannot be page-locked (CUDA error {error}): keep the client states in a file"
        raise OSError(errno.ENOMEM, text)


def _unlock(block: Tensor, side: Any) -> None:
    side.synchronize()
    torch.cuda.cudart().cudaHostUnregister(block.data_ptr())
