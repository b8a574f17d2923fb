"""Makes clients fail as a plan says: their uploads spoiled, lost or sent again."""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np
import torch
from torch import Tensor

from undrift._device import upload
from undrift.core.faults import Fault, Faults
from undrift.core.struct import Message
from undrift.engines.order import Order
from undrift.engines.work import Part, Work

Tensors = dict[str, Tensor]
DROPPED, LOST = "it dropped out before the work", "its upload was lost"
LATE = "its upload came late"


class FaultyClients(Part):
    """Spoils the work of a phase, and holds uploads that are sent again."""

    def __init__(self, faults: Faults, device: torch.device):
        self.faults, self._device, self._stale = faults, device, faults.stale()
        self.last: dict[tuple[int, int], dict[str, Tensor]] = {}
        """(phase, client) -> its last upload."""
        self.begin()

    def spoil(self, order: Order, work: Work) -> Work:
        """The work of a phase as the server receives it."""
        present = [client for client in order.cohort.members.tolist() if client not in work.failed]
        struck = self.faults.at(order.round, order.place, present)
        before = self._remember(order, work)
        if not struck:
            return work
        away = {"drop-after": LOST, "late": LATE}
        failed = {who: away[fault.kind] for who, fault in struck.items() if fault.kind in away}
        if work.up is not None:
            work = work._replace(up=_spoiled(work.up, work.senders, struck, before))
        return work._replace(failed={**work.failed, **failed})

    def tensors(self, whole: bool) -> Tensors:
        found: Tensors = {}
        for (phase, client), rows in self.last.items():
            found |= {f"stale.{phase}.{client}.{name}": v for name, v in rows.items()}
        return found

    def load(self, tensors: Mapping[str, Tensor]) -> None:
        self.last = {}
        for key, v in tensors.items():
            if key.startswith("stale."):
                _, phase, client, name = key.split(".", 3)
                rows = self.last.setdefault((int(phase), int(client)), {})
                rows[name] = v.to(self._device)
        self.begin()

    def _remember(self, order: Order, work: Work) -> dict[int, dict[str, Tensor]]:
        """The last uploads of clients that send them again, which these replace."""
        before: dict[int, dict[str, Tensor]] = {}
        for place, client in enumerate(work.senders.tolist() if self._stale else ()):
            if client in self._stale:
                key = order.place, client
                if key in self.last:
                    before[client] = self.last[key]
                self.last[key] = {name: v[place].clone() for name, v in work.vectors()}
        return before


def _spoiled(
    up: Message,
    senders: np.ndarray,
    struck: Mapping[int, Fault],
    before: Mapping[int, Mapping[str, Tensor]],
) -> Message:
    factors, fills = np.ones(len(senders)), np.zeros(len(senders))
    for place, client in enumerate(senders.tolist()):
        fault = struck.get(client)
        if fault is not None:
            factors[place] = {"flip": -1.0, "scale": fault.factor}.get(fault.kind, 1.0)
            fills[place] = {"nan": math.nan, "inf": math.inf}.get(fault.kind, 0.0)

    def changed(v: Tensor) -> Tensor:
        scale, fill = (upload(a, v.device).to(v.dtype).unsqueeze(-1) for a in (factors, fills))
        return torch.where(fill == 0, v * scale, fill)

    vectors = {name: changed(v) for name, v in up.items()}
    for place, client in enumerate(senders.tolist()):
        if client in before and client in struck and struck[client].kind == "stale":
            for name, v in before[client].items():
                vectors[name][place] = v
    return up.replace(**vectors)
