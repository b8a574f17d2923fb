"""The engines by name, with the options each of them takes. Listing them loads no torch."""

from __future__ import annotations

import dataclasses
from importlib import import_module
from typing import TYPE_CHECKING, cast

from undrift.engines.options import FederatedOptions, NoOptions, StoreOptions

if TYPE_CHECKING:
    from undrift.engines.engine import Engine


@dataclasses.dataclass(frozen=True)
class Named:
    """An engine that a spec can name."""

    name: str
    title: str
    options: type
    """A frozen dataclass of the options that only this engine takes."""
    home: str
    """``module:class`` inside ``undrift.engines``."""

    def load(self) -> type[Engine]:
        module, _, name = self.home.partition(":")
        found = getattr(import_module(f"undrift.engines.{module}"), name)
        return cast("type[Engine]", found)


registry: dict[str, Named] = {
    engine.name: engine
    for engine in (
        Named("simulate", "the cohort side by side", StoreOptions, "simulate:Simulate"),
        Named("wire", "one client after another, by messages", NoOptions, "wire:Wire"),
        Named(
            "flower",
            "clients on machines of their own: undrift federate",
            FederatedOptions,
            "federated:Federated",
        ),
    )
}
"""Every engine by name."""
