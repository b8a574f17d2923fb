"""The options that only one engine takes. Reading them loads no torch."""

from __future__ import annotations

import dataclasses
from typing import Literal

from undrift.core.params import Positive

Place = Literal["auto", "device", "host", "file"]


@dataclasses.dataclass(frozen=True, kw_only=True)
class NoOptions:
    """The options of an engine that takes none."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class StoreOptions:
    """Where client states are kept. The numbers do not depend on it.

    Args:
        store: device, host (memory beside a GPU), file, or auto: the first of them with room.
    """

    store: Place = "auto"


@dataclasses.dataclass(frozen=True, kw_only=True)
class FederatedOptions:
    """How long a federation waits for its clients.

    Args:
        deadline: seconds after which a client that has not answered is absent from the phase.
        absent: wait: such a client is asked again until it answers; drop: the round goes on without
            it, and it returns to its last state that counted.
    """

    deadline: Positive = 60.0
    absent: Literal["wait", "drop"] = "wait"
