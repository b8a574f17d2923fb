"""What a method costs, read off its declared messages and states."""

from __future__ import annotations

import dataclasses
from typing import Any

from undrift.core.method import Method, Round
from undrift.core.params import THEORY


@dataclasses.dataclass(frozen=True)
class Costs:
    """Vectors of model size: sent per participant and round, and stored from round to round."""

    down: int
    up: int
    syncs: int
    server: int
    client: int


def costs(method: Method, steps: int = 2) -> Costs:
    """The declared costs of ``method`` with ``steps`` local steps."""
    phases = method.phases(Round(0, [steps]))
    return Costs(
        down=sum(len(p.Down.vectors) for p in phases),
        up=sum(len(p.Up.vectors) for p in phases),
        syncs=len(phases),
        server=len(method.Server.vectors),
        client=len(method.Client.vectors),
    )


def placeholder(cls: type[Method]) -> Method:
    """An instance to read declarations from, its required hyper-parameters left to theory."""
    required: dict[str, Any] = {
        f.name: THEORY for f in dataclasses.fields(cls) if f.default is dataclasses.MISSING
    }
    return cls(**required)
