"""What clients did in one phase. Nothing of it is kept until a site commits it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from undrift._device import upload
from undrift.core.struct import Message

NOBODY = np.arange(0)


class Work(NamedTuple):
    """The rows of some clients, in the order of ``members``."""

    members: np.ndarray = NOBODY
    states: Mapping[str, Tensor] = MappingProxyType({})
    """New vectors ``[C, d]`` that clients remember."""
    scratch: Mapping[str, Tensor] = MappingProxyType({})
    """Vectors ``[C, d]`` for the next phases of the round."""
    up: Message | None = None
    """Uploads ``[S, d]`` of ``senders``; ``None`` where nobody sends."""
    senders: np.ndarray = NOBODY
    gradients: int = 0
    ends: Sequence[Tensor] = ()
    """Local models, together ``[C, d]``; empty where none were made."""
    failed: Mapping[int, str] = MappingProxyType({})
    """Members of whom nothing usable came back, and why."""

    def vectors(self) -> list[tuple[str, Tensor]]:
        """(name, rows) of the uploads."""
        return [] if self.up is None else self.up.items()

    def only(self, kept: np.ndarray) -> Work:
        """The same without the clients that are not ``kept``."""
        mine, sent = np.isin(self.members, kept), np.isin(self.senders, kept)
        if mine.all() and sent.all():
            return self
        rows = _chooser(mine)
        return self._replace(
            members=self.members[mine],
            states={name: rows(v) for name, v in self.states.items()},
            scratch={name: rows(v) for name, v in self.scratch.items()},
            up=self.up.map(_chooser(sent)) if self.up is not None and sent.any() else None,
            senders=self.senders[sent],
            ends=[rows(torch.cat([*self.ends]))] if self.ends else (),
        )


def joined(works: Sequence[Work]) -> Work:
    """The work of several groups of clients as one."""
    works = [work for work in works if len(work.members)]
    if len(works) < 2:
        return works[0] if works else Work()
    ups = [work.up for work in works if work.up is not None]
    first = works[0]
    return Work(
        members=np.concatenate([work.members for work in works]),
        states={name: torch.cat([work.states[name] for work in works]) for name in first.states},
        scratch={name: torch.cat([work.scratch[name] for work in works]) for name in first.scratch},
        up=ups[0].map(lambda *rows: torch.cat(rows), *ups[1:]) if ups else None,
        senders=np.concatenate([work.senders for work in works]),
        gradients=sum(work.gradients for work in works),
        ends=[rows for work in works for rows in work.ends],
        failed={client: why for work in works for client, why in work.failed.items()},
    )


def _chooser(mask: np.ndarray) -> Callable[[Tensor], Tensor]:
    at = np.flatnonzero(mask)
    return lambda v: v.index_select(0, upload(at, v.device))
