"""Every method, one file each. A new file here is found by itself."""

from importlib import import_module
from pkgutil import iter_modules
from typing import Any

from undrift.core import Method, registry
from undrift.core.params import fold, no_attribute

for _module in iter_modules(__path__):
    import_module(f"{__name__}.{_module.name}")

__all__ = sorted(registry)


def __getattr__(name: str) -> Any:
    if name in registry:
        return registry[name]
    raise no_attribute(__name__, name, __all__)


def find(name: str) -> type[Method] | None:
    """The method called ``name``, however it is written."""
    return {fold(known): method for known, method in registry.items()}.get(fold(name))
