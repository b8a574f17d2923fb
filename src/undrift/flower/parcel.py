"""What travels: a table of JSON, and bytes beside it."""

from __future__ import annotations

from typing import Any, NamedTuple


class Parcel(NamedTuple):
    """One message."""

    table: dict[str, Any]
    content: bytes = b""
