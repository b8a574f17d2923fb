"""What travels in a message of Flower: a table of JSON, and bytes beside it.

The bytes are tensors after a head, which says whose they are. It travels with the table, so that
the tensors of a model are the same object for all clients, which Flower sends and stores once.
"""

from __future__ import annotations

import json
from typing import Any

from flwr.app import Array, ArrayRecord, ConfigRecord, RecordDict

from undrift.flower.parcel import Parcel

TABLE, CONTENT = "table", "content"
LENGTH = 8
"""Bytes before a head, which say how long it is."""


def packed(table: dict[str, Any], content: bytes) -> RecordDict:
    """The records of a message."""
    head = LENGTH + int.from_bytes(content[:LENGTH], "little")
    records = RecordDict({TABLE: ConfigRecord({"json": json.dumps(table)})})
    if content:  # Flower cannot count empty bytes
        records.config_records[TABLE]["head"] = content[:head]
    if numbers := content[head:]:
        whole = Array(dtype="uint8", shape=(len(numbers),), stype="undrift", data=numbers)
        records[CONTENT] = ArrayRecord({CONTENT: whole})
    return records


def unpacked(records: RecordDict) -> Parcel:
    """The inverse; raises ``ValueError`` for any other message."""
    try:
        text = records.config_records[TABLE]
        table, content = json.loads(str(text["json"])), text.get("head", b"")
        if not isinstance(content, bytes):
            raise TypeError("its head is not bytes")
        if (found := records.array_records.get(CONTENT)) is not None:
            content += found[CONTENT].data
    except (KeyError, TypeError, ValueError) as error:
        raise ValueError(f"not a message of undrift ({error!r})") from None
    if not isinstance(table, dict):
        raise ValueError("not a message of undrift (its table is none)")
    return Parcel(table, content)
