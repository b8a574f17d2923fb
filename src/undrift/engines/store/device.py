"""Client vectors on the device of the run."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from undrift._device import upload
from undrift.engines.store.base import Store, zeros


class DeviceStore(Store):
    """Vectors on the device. A full cohort is handed out, and taken back, without a copy."""

    def __init__(self, start: dict[str, Tensor], clients: int):
        self._all = {name: row.expand(clients, -1) for name, row in start.items()}
        self._own: set[str] = set()  # names of tensors that nobody else has seen
        self._start, self._written = start, np.zeros(clients, dtype=bool)
        self._members, self._at = np.arange(0), torch.arange(0)

    def gather(self, members: np.ndarray | None) -> dict[str, Tensor]:
        if members is None or not self._all:
            self._own.clear()
            return dict(self._all)
        at = self._index(members)
        return {name: v.index_select(0, at) for name, v in self._all.items()}

    def scatter(self, members: np.ndarray | None, rows: dict[str, Tensor]) -> None:
        self._written[slice(None) if members is None else members] = True
        if members is None:
            self._all.update(rows)
            return
        at = self._index(members)
        for name, new in rows.items():
            if name not in self._own:
                self._all[name] = _writable(self._all[name])
                self._own.add(name)
            self._all[name].index_copy_(0, at, new)

    def tensors(self) -> dict[str, Tensor]:
        self._own.clear()
        return dict(self._all)

    def load(self, tensors: dict[str, Tensor], written: np.ndarray | None = None) -> None:
        rows = {name: tensors[name].to(v.device, copy=True) for name, v in self._all.items()}
        self._written[:] = written is None
        if written is None:
            self._all, self._own = rows, set(rows)
        else:
            shape = len(self._written), -1
            self._all = {name: row.expand(*shape) for name, row in self._start.items()}
            self._own.clear()
            self.scatter(written, rows)

    def read(self, name: str, which: slice | np.ndarray) -> Tensor:
        rows = self._all[name]
        return rows[which if isinstance(which, slice) else upload(which, rows.device)].cpu()

    def written(self) -> np.ndarray:
        return np.flatnonzero(self._written)

    def _index(self, members: np.ndarray) -> Tensor:
        if members is not self._members and not np.array_equal(members, self._members):
            device = next(iter(self._all.values())).device
            self._members, self._at = members, upload(members, device)
        return self._at


def _writable(v: Tensor) -> Tensor:
    """A copy; on a CPU, zeros common to all clients take no room until they differ."""
    if v.device.type == "cpu" and len(v) and v.stride(0) == 0 and not v[0].any():
        return torch.frombuffer(zeros(v.numel() * v.element_size()), dtype=v.dtype).view(v.shape)
    return v.clone()
