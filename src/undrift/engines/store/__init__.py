"""Where the clients' vectors are between rounds: on the device, in host memory, or in a file."""

from __future__ import annotations

from torch import Tensor

from undrift.engines.store.base import Store, StoredRows
from undrift.engines.store.device import DeviceStore
from undrift.engines.store.file import FileStore
from undrift.engines.store.host import HostStore

__all__ = ["DeviceStore", "FileStore", "HostStore", "Store", "StoredRows", "opened"]


def opened(place: str, start: dict[str, Tensor], clients: int, folder: str) -> Store:
    """A store at ``place`` whose clients all have the vectors ``start``; files go to ``folder``."""
    if place == "device":
        return DeviceStore(start, clients)
    return HostStore(start, clients) if place == "host" else FileStore(start, clients, folder)
