"""Which uploads of a phase count, and why the others do not.

A check looks at the work of one site and returns client -> reason for those it refuses. By default
there are no checks: looking whether numbers are finite makes a GPU wait in every round. Whatever
makes clients fail on purpose (fault plans, drop-outs) is one more check.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from undrift.engines.order import Order
from undrift.engines.work import Work

Check = Callable[[Order, Work], Mapping[int, str]]


class Rejection(NamedTuple):
    """One refused client of one phase."""

    round: int
    phase: int
    client: int
    reason: str


class Judge:
    """Applies checks; the first reason found for a client stands."""

    def __init__(self, *checks: Check):
        self.checks = checks

    def __call__(self, order: Order, works: Sequence[Work]) -> Mapping[int, str]:
        """Client -> why its work does not count."""
        refused: dict[int, str] = {}
        for check in self.checks:
            for work in works:
                refused = {**check(order, work), **refused}
        return refused


def shapes(dim: int, dtype: torch.dtype) -> Check:
    """Every vector of an upload has ``dim`` numbers of type ``dtype``; all clients of a site share
    one stack, so all of them are refused or none.
    """

    def check(order: Order, work: Work) -> dict[int, str]:
        for name, v in work.vectors():
            if tuple(v.shape) != (len(work.senders), dim) or v.dtype != dtype:
                found = f"{v.dtype} {list(v.shape)}"
                wanted = f"{dtype} {[len(work.senders), dim]}"
                return dict.fromkeys(work.senders.tolist(), f"{name} is {found}, not {wanted}")
        return {}

    return check


def finite(order: Order, work: Work) -> dict[int, str]:
    """Every number of an upload is finite."""
    return _rows(work, lambda v: ~v.isfinite().all(-1), "{} has entries that are not finite")


def bounded(norm: float) -> Check:
    """No vector of an upload is longer than ``norm``."""

    def check(order: Order, work: Work) -> dict[int, str]:
        return _rows(work, lambda v: ~(v.norm(dim=-1) <= norm), f"{{}} is longer than {norm:g}")

    return check


def _rows(work: Work, wrong: Callable[[Tensor], Tensor], text: str) -> dict[int, str]:
    """Reasons for the clients whose row of some vector is ``wrong``."""
    reasons: dict[int, str] = {}
    for name, v in work.vectors():
        at = wrong(v).nonzero().squeeze(-1).cpu().numpy()
        for client in work.senders[at].tolist():
            reasons.setdefault(client, text.format(name))
    return reasons
