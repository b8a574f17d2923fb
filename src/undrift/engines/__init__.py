"""Engines: the same method, run in different ways."""

from undrift.engines.engine import Engine, Ledger
from undrift.engines.simulate import Simulate
from undrift.engines.wire import Wire

engines: dict[str, type[Engine]] = {"simulate": Simulate, "wire": Wire}

__all__ = ["Engine", "Ledger", "Simulate", "Wire", "engines"]
