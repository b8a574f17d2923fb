"""undrift: federated optimisation without client drift.

>>> import undrift as ud
>>> run = ud.run(ud.FedRecu(lr="theory"), "quadratic", rounds=300, steps=4)
>>> bool(run.history["gap"][-1] < 1e-6)
True
"""

from importlib import import_module
from typing import Any

__version__ = "0.1.0"

_homes = {
    "run": "undrift.runs",
    "Run": "undrift.runs",
    "History": "undrift.runs",
    "Simulate": "undrift.engines",
    "Wire": "undrift.engines",
    "Method": "undrift.core",
    "Local": "undrift.core",
    "Phase": "undrift.core",
    "State": "undrift.core",
    "Message": "undrift.core",
    "Vec": "undrift.core",
    "Scratch": "undrift.core",
    "Sparse": "undrift.core",
    "Problem": "undrift.core",
}
_rooms = (
    "core",
    "data",
    "engines",
    "methods",
    "models",
    "objectives",
    "problems",
    "report",
    "theory",
)


def __getattr__(name: str) -> Any:
    """Names are found on first use, so that importing undrift does not load torch."""
    if name in _rooms:
        return import_module(f"undrift.{name}")
    if name in _homes:
        return getattr(import_module(_homes[name]), name)
    found = None if name.startswith("_") else import_module("undrift.methods").registry.get(name)
    if found is None:
        from undrift.core.params import no_attribute

        raise no_attribute("undrift", name, __dir__())
    return found


def __dir__() -> list[str]:
    return sorted([*_homes, *_rooms, *import_module("undrift.methods").__all__, "__version__"])
