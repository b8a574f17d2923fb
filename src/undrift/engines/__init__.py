"""Engines: the same method, run in different ways. Names load their modules when first used."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from undrift.engines.engine import Engine
    from undrift.engines.ledger import Ledger
    from undrift.engines.simulate import Simulate
    from undrift.engines.wire import Wire

_HOMES = {"Engine": "engine", "Ledger": "ledger", "Simulate": "simulate", "Wire": "wire"}

__all__ = ["Engine", "Ledger", "Simulate", "Wire"]


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
