"""The battery: what every method must pass, with no code of its own. Names are found on first use,
as in ``runs``.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from undrift.check.battery import CHECKS, Failure, battery

__all__ = ["CHECKS", "Failure", "battery"]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.battery"), name)
