"""Packets as records of Flower's messages, and the grid that carries them. Loads no torch."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence

from flwr.app import Array, ArrayRecord, ConfigRecord, Message, RecordDict
from flwr.serverapp import Grid

from undrift.engines.messages.packet import BODY, Packet

TABLE, CONTENT = "table", "content"
CHANGED = 0
"""The code of a reply that is not what was sent; Flower's own codes begin at 1."""


def packed(packet: Packet) -> RecordDict:
    """The records of a message."""
    text, content = json.dumps(packet.table), packet.content
    table = ConfigRecord({"json": text, "digest": _digest(text, content)})
    # A frame begins with whose it is. That travels with the table, so that the tensors of a model
    # are the same object for all clients of a cohort: Flower sends and stores that once.
    if content:  # Flower cannot count empty bytes
        table["head"] = content[:BODY]
    records = RecordDict({TABLE: table})
    if numbers := content[BODY:]:
        whole = Array(dtype="uint8", shape=(len(numbers),), stype="undrift", data=numbers)
        records[CONTENT] = ArrayRecord({CONTENT: whole})
    return records


def unpacked(records: RecordDict) -> Packet:
    """The inverse; raises ``ValueError`` for any other message, and for one that was changed."""
    try:
        record = records.config_records[TABLE]
        text, content = str(record["json"]), record.get("head", b"")
        if not isinstance(content, bytes):
            raise TypeError("its head is not bytes")
        if (found := records.array_records.get(CONTENT)) is not None:
            content += found[CONTENT].data
        table, digest = json.loads(text), record["digest"]
    except (KeyError, TypeError, ValueError) as error:
        raise ValueError(
            f"not a message of undrift federate or undrift.flower.strategy ({error!r})"
        ) from None
    if not isinstance(table, dict) or digest != _digest(text, content):
        raise ValueError("not the message of undrift that was sent: it was changed on its way")
    return Packet(table, content)


def _digest(text: str, content: bytes) -> str:
    return hashlib.sha256(text.encode() + content).hexdigest()


class GridCarrier:
    """Carries packets by a grid of Flower's."""

    def __init__(self, grid: Grid):
        self.grid = grid

    def nodes(self) -> list[str]:
        return [str(node) for node in self.grid.get_node_ids()]

    def push(self, node: str, packet: Packet, ttl: float) -> str | None:
        # Exactly "train": secure aggregation would let any other type pass unmasked.
        message = Message(self.records(packet), int(node), "train", ttl=ttl)
        return next(iter(self.grid.push_messages([message])), None)

    def records(self, packet: Packet) -> RecordDict:
        return packed(packet)

    def pull(self, ids: Sequence[str]) -> dict[str, Packet]:
        found = self.grid.pull_messages(ids) if ids else ()
        return {one.metadata.reply_to_message_id: self.received(one) for one in found}

    def received(self, message: Message) -> Packet:
        """A reply as it was sent; one that Flower made itself, or that was changed, has a code."""
        if message.has_error():
            code, reason = message.error.code, message.error.reason
            return Packet({"error": f"[{code}] {reason}", "code": code})
        try:
            return unpacked(message.content)
        except ValueError as error:
            return Packet({"error": str(error), "code": CHANGED})
