"""Every local loss, one file each. A new file here is found by itself."""

from importlib import import_module
from pkgutil import iter_modules
from typing import Any

from undrift.core.params import fold
from undrift.objectives.base import Batch, Objective, Others, registry

for _module in iter_modules(__path__):
    import_module(f"{__name__}.{_module.name}")

__all__ = ["Batch", "Objective", "Others", *sorted(registry)]


def __getattr__(name: str) -> Any:
    if name in registry:
        return registry[name]
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def find(name: str) -> type[Objective] | None:
    """The objective called ``name``, however it is written."""
    return {fold(known): objective for known, objective in registry.items()}.get(fold(name))
