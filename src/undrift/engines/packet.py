"""The one form of a message between a server and its clients, whatever carries it."""

from __future__ import annotations

from typing import Any, NamedTuple


class Packet(NamedTuple):
    """A table of JSON, and bytes beside it: tensors, which JSON would only make longer."""

    table: dict[str, Any]
    content: bytes = b""
