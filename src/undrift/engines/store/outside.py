"""What stores outside the device's memory share."""

from __future__ import annotations

import mmap
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from undrift.engines.store.base import Store


class Held(NamedTuple):
    """The rows of the last cohort, which stay on the device."""

    members: np.ndarray
    rows: dict[str, Tensor]


class Coming(NamedTuple):
    """Rows on their way to the device, all but those that are there already."""

    members: np.ndarray
    rows: dict[str, Tensor]
    arrival: torch.cuda.Event | None
    """Recorded after the last copy, where copies run beside the work."""


class OutsideStore(Store):
    """Client vectors in one buffer; rows are created on first write.

    A client that never took part has no row: its vectors are the start's.
    """

    def __init__(self, start: dict[str, Tensor], clients: int, buffer: mmap.mmap):
        row = next(iter(start.values()))
        self._block = torch.frombuffer(buffer, dtype=row.dtype).view(len(start), clients, -1)
        self._all = dict(zip(start, self._block, strict=True))
        self._start, self._device = start, row.device
        self._written = {name: np.zeros(clients, dtype=bool) for name in start}
        self._held = Held(np.arange(0), {})
        self._coming: Coming | None = None

    def gather(self, members: np.ndarray | None) -> dict[str, Tensor]:
        members = np.arange(self._block.shape[1]) if members is None else members
        if not np.array_equal(members, self._held.members):
            coming, self._coming = self._coming, None
            if coming is None or not np.array_equal(members, coming.members):
                coming = self._fetch(members)
            self._held = self._arrived(coming)
        return dict(self._held.rows)

    def scatter(self, members: np.ndarray | None, rows: dict[str, Tensor]) -> None:
        members = self._held.members if members is None else members
        with self._beside_the_work():
            for name, new in rows.items():
                for k, i in enumerate(members):
                    self._claim(name, i)
                    self._copy(self._all[name][i], new[k])
                self._used(new)
        if len(members) < len(self._held.members):
            at = torch.from_numpy(np.searchsorted(self._held.members, members)).to(self._device)
            before = self._held.rows
            rows = {name: before[name].index_copy(0, at, new) for name, new in rows.items()}
        self._held = Held(self._held.members, {**self._held.rows, **rows})

    def expect(self, who: Callable[[], np.ndarray]) -> None:
        if self._coming is None and not np.array_equal(members := who(), self._held.members):
            self._prepare(members)

    def tensors(self) -> dict[str, Tensor]:
        return {name: self.read(name, slice(None)) for name in self._all}

    def load(self, tensors: dict[str, Tensor], written: np.ndarray | None = None) -> None:
        self._settle()
        self._held, self._coming = Held(np.arange(0), {}), None
        clients = np.arange(self._block.shape[1]) if written is None else written
        for name, mine in self._all.items():
            self._written[name][:] = False
            for k, i in enumerate(clients):
                self._claim(name, i)
                mine[i].copy_(tensors[name][k])

    def read(self, name: str, which: slice | np.ndarray) -> Tensor:
        self._settle()
        at = which if isinstance(which, slice) else torch.from_numpy(which)
        block = self._all[name][at].clone()
        block[torch.from_numpy(~self._written[name][which])] = self._start[name].cpu()
        return block

    def written(self) -> np.ndarray:
        return np.flatnonzero(np.any([*self._written.values()], axis=0))

    def _fetch(self, members: np.ndarray) -> Coming:
        rows = {name: v.new_empty(len(members), len(v)) for name, v in self._start.items()}
        absent = np.flatnonzero(~np.isin(members, self._held.members))
        with self._beside_the_work():
            for name, out in rows.items():
                for k in absent:
                    i = members[k]
                    stored = self._written[name][i]
                    self._copy(out[k], self._all[name][i] if stored else self._start[name])
                self._used(out)
        return Coming(members, rows, self._arrival())

    def _arrived(self, coming: Coming) -> Held:
        if coming.arrival is not None:
            torch.cuda.current_stream(self._device).wait_event(coming.arrival)
        members, rows = coming.members, coming.rows
        _, new, old = np.intersect1d(
            members, self._held.members, assume_unique=True, return_indices=True
        )
        for name, out in rows.items():
            for k, j in zip(new, old, strict=True):
                out[k].copy_(self._held.rows[name][j])
        return Held(members, rows)

    def _prepare(self, members: np.ndarray) -> None:
        """Fetch the rows of the next cohort ahead."""
        self._coming = self._fetch(members)

    def _claim(self, name: str, client: int) -> None:
        """Note that a row is about to be written."""
        self._written[name][client] = True

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
