"""Running: one method on one problem, recorded. Names are found on first use: reading a spec needs
no torch.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from undrift.runs.api import Run, run
    from undrift.runs.history import History

__all__ = ["History", "Run", "run"]
_homes = {"History": "history", "Run": "api", "run": "api"}


def __getattr__(name: str) -> Any:
    if name not in _homes:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_homes[name]}"), name)
