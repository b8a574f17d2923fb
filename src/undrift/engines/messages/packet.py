"""The one form of a message between a server and its clients, whatever carries it.

Processes that only carry messages load this file, which loads no torch.
"""

from __future__ import annotations

import struct
from typing import Any, NamedTuple

DIGEST = 32
"""Bytes of the digest that a frame begins with."""
ABOUT = struct.Struct("<16sQQQB")
"""The address in a frame: run, round, phase, client, way."""
BODY = DIGEST + ABOUT.size
"""Where the vectors of a frame begin, which are the same for all clients of a cohort."""


class Packet(NamedTuple):
    """A table of JSON, and bytes beside it: tensors, which JSON would only make longer."""

    table: dict[str, Any]
    content: bytes = b""


class Tag(NamedTuple):
    """One work of a client."""

    round: int
    place: int
    """Of the phase in its round."""
    attempt: int
    """A round may begin again, and is then another one."""
