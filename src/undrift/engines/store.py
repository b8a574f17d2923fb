"""Where the clients' vectors are between rounds: on the device, in host memory, or in a file."""

from __future__ import annotations

import errno
import mmap
import os
import tempfile
import weakref
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import Any, NamedTuple, cast

import numpy as np
import torch
from torch import Tensor

from undrift._device import upload
from undrift._files import naming
from undrift.engines.memory import folder

BLOCK = 2**28
"""Bytes read at a time where a vector of all clients goes to a checkpoint."""


class Store:
    """Vectors of N clients by name, ``[N, d]`` each, on the device.

    Nothing handed out is written to later. Clients are their places 0 ... N-1 in the store, in
    ascending order; ``None`` stands for all, who are handed out, and taken back, without a copy.
    """

    def __init__(self, start: dict[str, Tensor], clients: int):
        self._all = {name: row.expand(clients, *row.shape) for name, row in start.items()}
        self._own: set[str] = set()
        """Names of tensors that nobody else has seen, which may be written to."""
        self.names, self._start = [*start], start
        self._taken = np.zeros(clients, dtype=bool)
        self._members, self._at = np.arange(0), torch.arange(0)

    def gather(
        self, members: np.ndarray | None, following: Callable[[], np.ndarray] | None = None
    ) -> dict[str, Tensor]:
        """The rows of some clients, in their order; those of ``following()`` are gathered next."""
        if members is None or not self._all:
            self._own.clear()
            return dict(self._all)
        at = self._index(members)
        return {name: v.index_select(0, at) for name, v in self._all.items()}

    def scatter(self, members: np.ndarray | None, rows: dict[str, Tensor]) -> None:
        """Replace rows of clients that were gathered, or those of their vectors that are given."""
        self._taken[slice(None) if members is None else members] = True
        if members is None:
            self._all.update(rows)
            return
        at = self._index(members)
        for name, new in rows.items():
            # Copy on the first write: what was handed out for everybody stays as it is.
            if name not in self._own:
                self._all[name] = _writable(self._all[name])
                self._own.add(name)
            self._all[name].index_copy_(0, at, new)

    def load(self, tensors: dict[str, Tensor], written: np.ndarray | None = None) -> None:
        """Copies of ``tensors`` in place of all that was there: the rows of the clients
        ``written``, where others have those of the start, or of all.
        """
        rows = {name: tensors[name].to(v.device, copy=True) for name, v in self._all.items()}
        Store.__init__(self, self._start, len(self._taken))
        self.scatter(written, rows)
        if written is None:
            self._own.update(rows)

    def read(self, name: str, which: slice | np.ndarray) -> Tensor:
        """Rows on the CPU, good until the next scatter."""
        rows = self._all[name]
        return rows[which if isinstance(which, slice) else upload(which, rows.device)].cpu()

    def written(self) -> np.ndarray:
        """The clients whose rows were scattered or loaded; those of others are the start's."""
        return np.flatnonzero(self._taken)

    def _index(self, members: np.ndarray) -> Tensor:
        # A round gathers and scatters the same cohort: its numbers go to the device once.
        if members is not self._members and not np.array_equal(members, self._members):
            device = next(iter(self._all.values())).device
            self._members, self._at = members, upload(members, device)
        return self._at


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


def _writable(v: Tensor) -> Tensor:
    """A copy; on a CPU, zeros common to all clients take no room until they differ."""
    if v.device.type == "cpu" and len(v) and v.stride(0) == 0 and not v[0].any():
        return torch.frombuffer(zeros(v.numel() * v.element_size()), dtype=v.dtype).view(v.shape)
    return v.clone()


class CohortRows(NamedTuple):
    """The rows of a cohort on the device, or on their way there."""

    members: np.ndarray
    rows: dict[str, Tensor]
    arrival: torch.cuda.Event | None = None
    """Recorded after the last copy, where copies run beside the work."""


class OutsideStore(Store):
    """Client vectors in one buffer; rows are created on first write.

    A client that never took part has no row: its vectors are the start's.
    """

    def __init__(self, start: dict[str, Tensor], clients: int, buffer: mmap.mmap):
        row = next(iter(start.values()))
        self._block = torch.frombuffer(buffer, dtype=row.dtype).view(len(start), clients, -1)
        self._all = dict(zip(start, self._block, strict=True))
        self.names, self._start, self._device = [*start], start, row.device
        # A phase may renew some vectors of a client and not others, which then have no row yet.
        self._written = {name: np.zeros(clients, dtype=bool) for name in start}
        self._held = CohortRows(np.arange(0), {})
        self._coming: CohortRows | None = None

    def gather(
        self, members: np.ndarray | None, following: Callable[[], np.ndarray] | None = None
    ) -> dict[str, Tensor]:
        members = np.arange(self._block.shape[1]) if members is None else members
        if not np.array_equal(members, self._held.members):
            # What was fetched ahead is good for one cohort: rows that the one before has renewed
            # meanwhile are missing in it, and come from that one's rows when it arrives.
            coming, self._coming = self._coming, None
            if coming is None or not np.array_equal(members, coming.members):
                coming = self._fetch(members)
            self._held = self._arrived(coming)
        if self._coming is None and following is not None:
            upcoming = following()
            if not np.array_equal(upcoming, members):
                self._coming = self._fetch(upcoming)
        return dict(self._held.rows)

    def scatter(self, members: np.ndarray | None, rows: dict[str, Tensor]) -> None:
        members = self._held.members if members is None else members
        with self._beside_the_work():
            for name, new in rows.items():
                self._written[name][members] = True
                for k, i in enumerate(members):
                    self._copy(self._all[name][i], new[k])
                self._used(new)
        if len(members) < len(self._held.members):
            # index_copy, not index_copy_: the rows that were handed out are never written to.
            at = torch.from_numpy(np.searchsorted(self._held.members, members)).to(self._device)
            before = self._held.rows
            rows = {name: before[name].index_copy(0, at, new) for name, new in rows.items()}
        self._held = CohortRows(self._held.members, {**self._held.rows, **rows})

    def load(self, tensors: dict[str, Tensor], written: np.ndarray | None = None) -> None:
        self._settle()
        self._held, self._coming = CohortRows(np.arange(0), {}), None
        clients = np.arange(self._block.shape[1]) if written is None else written
        for name, mine in self._all.items():
            self._written[name] = np.isin(np.arange(len(mine)), clients)
            mine.index_copy_(0, torch.from_numpy(clients), tensors[name].cpu())

    def read(self, name: str, which: slice | np.ndarray) -> Tensor:
        self._settle()
        block = self._all[name][which].clone()
        block[torch.from_numpy(~self._written[name][which])] = self._start[name].cpu()
        return block

    def written(self) -> np.ndarray:
        return np.flatnonzero(np.any([*self._written.values()], axis=0))

    def _fetch(self, members: np.ndarray) -> CohortRows:
        rows = {name: v.new_empty(len(members), len(v)) for name, v in self._start.items()}
        absent = np.flatnonzero(~np.isin(members, self._held.members))
        with self._beside_the_work():
            for name, out in rows.items():
                for k in absent:
                    i = members[k]
                    stored = self._written[name][i]
                    self._copy(out[k], self._all[name][i] if stored else self._start[name])
                self._used(out)
        return CohortRows(members, rows, self._arrival())

    def _arrived(self, coming: CohortRows) -> CohortRows:
        # The device's own stream waits, not this process: work goes on being launched.
        if coming.arrival is not None:
            torch.cuda.current_stream(self._device).wait_event(coming.arrival)
        members, rows = coming.members, coming.rows
        _, new, old = np.intersect1d(
            members, self._held.members, assume_unique=True, return_indices=True
        )
        for name, out in rows.items():
            for k, j in zip(new, old, strict=True):
                out[k].copy_(self._held.rows[name][j])
        return CohortRows(members, rows)

    def _copy(self, to: Tensor, row: Tensor) -> None:
        to.copy_(row)

    def _beside_the_work(self) -> AbstractContextManager[None]:
        """Copies in here may run beside the work."""
        return nullcontext()

    def _used(self, rows: Tensor) -> None:
        """``rows`` take part in copies beside the work."""

    def _arrival(self) -> torch.cuda.Event | None:
        """An event after the copies so far."""
        return None

    def _settle(self) -> None:
        """Wait for all copies."""


class FileStore(OutsideStore):
    """Rows in a file in ``folder``."""

    def __init__(self, start: dict[str, Tensor], clients: int, folder: str):
        size = len(start) * clients * next(iter(start.values())).nbytes
        self._file = tempfile.TemporaryFile(dir=folder)  # noqa: SIM115
        with naming(Path(folder)):
            # Without room on disk a write to mapped memory would end the process by a signal.
            if hasattr(os, "posix_fallocate"):
                os.posix_fallocate(self._file.fileno(), 0, size)
            self._file.truncate(size)
        super().__init__(start, clients, mmap.mmap(self._file.fileno(), size))


class HostStore(OutsideStore):
    """Rows come and go on a CUDA stream of their own: the next cohort's while this one works."""

    def __init__(self, start: dict[str, Tensor], clients: int):
        row = next(iter(start.values()))
        super().__init__(start, clients, zeros(len(start) * clients * row.nbytes))
        self._side = torch.cuda.Stream(row.device, priority=-1)  # type: ignore[no-untyped-call]
        _lock(self._block)
        weakref.finalize(self, _unlock, self._block, self._side)

    @contextmanager
    def _beside_the_work(self) -> Iterator[None]:
        # After everything launched on the device so far, which may still make or read these rows.
        self._side.wait_stream(torch.cuda.current_stream(self._device))
        with torch.cuda.stream(self._side):
            yield

    def _copy(self, to: Tensor, row: Tensor) -> None:
        to.copy_(row, non_blocking=True)

    def _used(self, rows: Tensor) -> None:
        # Or the allocator would give their memory to others while copies are under way.
        rows.record_stream(self._side)

    def _arrival(self) -> torch.cuda.Event:
        return cast(torch.cuda.Event, self._side.record_event())

    def _settle(self) -> None:
        self._side.synchronize()


def _lock(block: Tensor) -> None:
    """Page-lock: PyTorch's own allocator would take the next power of two."""
    if error := int(_cudart().cudaHostRegister(block.data_ptr(), block.nbytes, 1)):
        text = f"{block.nbytes / 1e9:.1f} GB cannot be page-locked (CUDA error {error})"
        raise OSError(errno.ENOMEM, f"{text}: keep the client states in a file")


def _unlock(block: Tensor, side: torch.cuda.Stream) -> None:
    side.synchronize()
    _cudart().cudaHostUnregister(block.data_ptr())


def _cudart() -> Any:
    return torch.cuda.cudart()  # type: ignore[no-untyped-call]


def opened(place: str, start: dict[str, Tensor], clients: int) -> Store:
    """A store at ``place`` whose clients all have the vectors ``start``."""
    if place == "device":
        return Store(start, clients)
    return HostStore(start, clients) if place == "host" else FileStore(start, clients, folder())
