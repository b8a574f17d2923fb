"""The engines by name, with the options each of them takes. Listing them loads no torch."""

from __future__ import annotations

import dataclasses
from importlib import import_module
from typing import TYPE_CHECKING, cast

from undrift.engines.options import (
    DistributedOptions,
    FederatedOptions,
    NoOptions,
    StoreOptions,
)

if TYPE_CHECKING:
    from undrift.engines.engine import Engine


@dataclasses.dataclass(frozen=True)
class NamedEngine:
    """An engine that a spec can name."""

    name: str
    title: str
    options: type
    """A frozen dataclass of the options that only this engine takes."""
    home: str
    """``module:class`` inside ``undrift.engines``."""
    same_as: str = ""
    """The engine whose runs it continues, and that continues its runs."""
    run_by: str = ""
    """The command that runs it, where that is not ``undrift run``."""
    shared: bool = False
    """Whether several processes, of which one leads, share a run."""

    def load(self) -> type[Engine]:
        module, _, name = self.home.partition(":")
        found = getattr(import_module(f"undrift.engines.{module}"), name)
        return cast("type[Engine]", found)


registry: dict[str, NamedEngine] = {
    engine.name: engine
    for engine in (
        NamedEngine("simulate", "the cohort side by side", StoreOptions, "engine:Simulate"),
        NamedEngine("wire", "one client after another, by messages", NoOptions, "wire:Wire"),
        NamedEngine(
            "distributed",
            "the cohort dealt among processes",
            DistributedOptions,
            "distributed:Distributed",
            same_as="simulate",
            shared=True,
        ),
        NamedEngine(
            "flower",
            "clients on machines of their own",
            FederatedOptions,
            "federated:Federated",
            run_by="undrift federate",
        ),
    )
}
"""Every engine by name."""
