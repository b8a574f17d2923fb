"""The options that only one engine takes. Reading them loads no torch."""

from __future__ import annotations

import dataclasses
from typing import Literal

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
