"""What travels in a message of Flower: a table of JSON, and bytes beside it."""

from __future__ import annotations

import json
from typing import Any

from flwr.app import Array, ArrayRecord, ConfigRecord, RecordDict

from undrift.flower.pipe import Parcel

TABLE, CONTENT = "table", "content"


def packed(table: dict[str, Any], content: bytes) -> RecordDict:
    """The records of a message."""
    records = RecordDict({TABLE: ConfigRecord({"json": json.dumps(table)})})
    if content:
        whole = Array(dtype="uint8", shape=(len(content),), stype="undrift", data=content)
        records[CONTENT] = ArrayRecord({CONTENT: whole})
    return records


def unpacked(records: RecordDict) -> Parcel:
    """The inverse; raises ``ValueError`` for any other message."""
    try:
        table = json.loads(str(records.config_records[TABLE]["json"]))
        found = records.array_records.get(CONTENT)
        content = b"" if found is None else bytes(found[CONTENT].data)
    except (KeyError, TypeError, ValueError) as error:
        raise ValueError(f"not a message of undrift ({error!r})") from None
    if not isinstance(table, dict):
        raise ValueError("not a message of undrift (its table is none)")
    return Parcel(table, content)
