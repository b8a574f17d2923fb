"""Messages of a ServerApp of the user's own, and what is wrong with a reply."""

from __future__ import annotations

import dataclasses
import hashlib
import logging
from collections.abc import Mapping, Sequence
from typing import Any, NoReturn

import numpy as np
from flwr.app import Array, ArrayRecord, ConfigRecord, Message, RecordDict
from flwr.serverapp import Grid

from undrift.flower.client_training import PROBE
from undrift.flower.exchange import NoFederation, Reply
from undrift.flower.wire import CONTENT, packed, unpacked

LOG = logging.getLogger("flwr")
APP_FAILED = {1: "cannot be loaded", 2: "failed outside undrift.flower.train", 7: "is not valid"}
"""Flower's codes of errors that come again, however often a message is sent."""
MOD_FAILED = 6
MODS = (
    "mods and wrappers that change what is uploaded (secaggplus_mod, LocalDpMod, fixedclipping_mod,"
    " adaptiveclipping_mod, DifferentialPrivacy...) cannot be used with these methods: what a "
    "client remembers would no longer fit what the server has received. Leave them out"
)


@dataclasses.dataclass
class Post:
    """Carries messages by a grid of Flower's. A reply that was changed on its way is refused."""

    grid: Grid
    config: ConfigRecord
    round: int = 0
    keys: Mapping[str, str] = dataclasses.field(default_factory=dict)

    def nodes(self) -> list[str]:
        return [str(node) for node in self.grid.get_node_ids()]

    def push(
        self, node: str, kind: str, table: Mapping[str, Any], content: bytes, ttl: float, group: str
    ) -> str | None:
        records = packed(dict(table), content)
        records["config"] = ConfigRecord({**self.config, "server-round": self.round})
        if table["do"] == "hello":
            records[CONTENT] = ArrayRecord({CONTENT: Array(np.zeros_like(PROBE))})
        # exactly "train": secure aggregation would let any other type pass unmasked
        message = Message(records, int(node), "train", ttl=ttl, group_id=group)
        return next(iter(self.grid.push_messages([message])), None)

    def pull(self, ids: Sequence[str]) -> list[Reply]:
        return [_reply(one) for one in self.grid.pull_messages(ids)] if ids else []

    def renew(self) -> NoReturn:
        raise NoFederation("the Flower run is over")


def _reply(message: Message) -> Reply:
    """A reply as it was sent, or what is wrong with it."""
    id, node = message.metadata.reply_to_message_id, message.metadata.src_node_id
    if message.has_error():
        code, reason = message.error.code, message.error.reason
        if code == MOD_FAILED:
            return _lasting(id, f"its ClientApp has a mod ({reason}): {MODS}")
        if code in APP_FAILED:
            return _lasting(
                id, f"its ClientApp {APP_FAILED[code]}: {reason}. If it has mods: {MODS}"
            )
        LOG.warning("node %d: [%d] %s; it is asked again", node, code, reason)
        return Reply(id, {}, error=f"[{code}] {reason}")
    try:
        table, content = unpacked(message.content)
        changed = _changed(table, content, message.content)
    except (ValueError, KeyError, TypeError) as error:
        return _lasting(id, f"its ClientApp does not reply with what train returned: {error}")
    if changed:
        return _lasting(id, f"its reply was changed after train returned it: {MODS}")
    if "error" in table and not table.get("lasting"):
        LOG.warning("node %d: %s; it is asked again", node, table["error"])
    return Reply(id, table, content)


def _changed(table: Mapping[str, Any], content: bytes, records: RecordDict) -> bool:
    if "name" in table:  # a greeting
        return not np.array_equal(records.array_records[CONTENT][CONTENT].numpy(), PROBE)
    return "error" not in table and hashlib.sha256(content).hexdigest() != table["digest"]


def _lasting(id: str, why: str) -> Reply:
    return Reply(id, {"error": why, "lasting": True})
