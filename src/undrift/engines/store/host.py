"""Client vectors in page-locked memory beside a GPU."""

from __future__ import annotations

import errno
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor

from undrift.engines.store.base import zeros
from undrift.engines.store.outside import OutsideStore


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
        # after everything launched on the device so far
        self._side.wait_stream(torch.cuda.current_stream(self._device))
        with torch.cuda.stream(self._side):
            yield

    def _copy(self, to: Tensor, row: Tensor) -> None:
        to.copy_(row, non_blocking=True)

    def _used(self, rows: Tensor) -> None:
        rows.record_stream(self._side)

    def _arrival(self) -> torch.cuda.Event:
        event: torch.cuda.Event = self._side.record_event()
        return event

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
