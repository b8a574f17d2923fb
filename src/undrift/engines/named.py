"""The class of an engine, by its name."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, cast

from undrift.engines.options import registry

if TYPE_CHECKING:
    from undrift.engines.engine import Engine


def load(name: str) -> type[Engine]:
    module, _, cls = registry[name].home.partition(":")
    return cast("type[Engine]", getattr(import_module(f"undrift.engines.{module}"), cls))
