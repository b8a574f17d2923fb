"""The engines by name, with the options each of them takes. Listing them loads no torch."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import ClassVar, Literal, Self

from undrift.core.aggregation import Aggregation, Robust
from undrift.core.params import Count, Positive, Variant

RENDEZVOUS = "UNDRIFT_RENDEZVOUS"
"""The environment variable with the file by which processes on one machine find each other."""
PATIENCE = 1800.0
"""Seconds that a process of a run waits for another one that is alive."""
StatePlace = Literal["auto", "device", "host", "file"]


class EngineOptions(Variant):
    """The engine of a run: its name, or a table with the options that only this one takes."""

    owner = "engine"
    home: ClassVar[str]
    """``module:class`` inside ``undrift.engines``."""
    same_as: ClassVar[str] = ""
    """The engine whose runs it continues, and that continues its runs."""
    run_by: ClassVar[str] = ""
    """The command that runs it, where that is not ``undrift run``."""
    shared: ClassVar[bool] = False
    """Whether several processes, of which one leads, share a run."""

    @classmethod
    def read(cls, given: object) -> Self:
        """A table without a name is about ``simulate``."""
        return super().read({"name": "simulate", **given} if isinstance(given, Mapping) else given)


@dataclasses.dataclass(frozen=True, kw_only=True)
class NoOptions(EngineOptions):
    """The options of an engine that takes none."""

    name, title = "wire", "one client after another, by messages"
    home = "wire:Wire"


@dataclasses.dataclass(frozen=True, kw_only=True)
class StoreOptions(EngineOptions):
    """Where client states are kept. The numbers do not depend on it.

    Args:
        store: device, host (memory beside a GPU), file, or auto: the first of them with room.
    """

    name, title = "simulate", "the cohort side by side"
    home = "engine:Simulate"

    store: StatePlace = "auto"


@dataclasses.dataclass(frozen=True, kw_only=True)
class DistributedOptions(StoreOptions):
    """How several processes share a run.

    Args:
        store: device, host (memory beside a GPU), file, or auto: the first of them with room.
        workers: processes to start on this machine; left out: those that torchrun has started.
        collect: rows: every upload goes to every process, and numbers are those of simulate, bit
            for bit; sums: only sums travel, which is faster for large models and rounds otherwise;
            auto: rows up to 64 MiB in a phase.
        patience: seconds that a process waits for another one, which it names after a minute.
    """

    name, title = "distributed", "the cohort dealt among processes"
    home = "distributed:Distributed"
    same_as, shared = "simulate", True

    workers: Count | None = None
    collect: Literal["auto", "rows", "sums"] = "auto"
    patience: Positive = PATIENCE

    def refuse(
        self, processes: int, clients: int, aggregation: Aggregation, faults: object
    ) -> dict[str, str]:
        """Setting -> why so many processes cannot run with it."""
        wrong = {}
        if processes > clients:
            wrong["engine.workers"] = f"{processes} processes for {clients} clients: use fewer"
        if self.collect == "sums" and (faults or isinstance(aggregation, Robust)):
            text = "sums have no single uploads, which robust aggregation and faults need"
            wrong["engine.collect"] = f"{text}: use rows, or auto"
        return wrong


@dataclasses.dataclass(frozen=True, kw_only=True)
class FederatedOptions(EngineOptions):
    """How long a federation waits for its clients.

    Args:
        joining: seconds in which all clients have to join.
        deadline: seconds after which a client that has not answered is absent from the phase.
        absent: wait: such a client is asked again until it answers; drop: the round goes on without
            it, and it returns to its last state that counted.
    """

    name, title = "flower", "clients on machines of their own"
    home = "federated:Federated"
    run_by = "undrift federate"

    joining: Positive = 600.0
    deadline: Positive = 60.0
    absent: Literal["wait", "drop"] = "wait"


registry: dict[str, type[EngineOptions]] = {
    options.name: options
    for options in (StoreOptions, NoOptions, DistributedOptions, FederatedOptions)
}
"""Every engine by name."""
EngineOptions.kinds = registry
