"""What is minimised. Names load their modules when first used: listing problems needs no torch."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from undrift.problems.named import build, find, registry

if TYPE_CHECKING:
    from undrift.problems.least_squares import LeastSquares
    from undrift.problems.logistic import Logistic
    from undrift.problems.neural import Neural
    from undrift.problems.quadratic import Quadratic
    from undrift.problems.softmax import Softmax
    from undrift.problems.synthetic import (
        fedcet_quadratic,
        fedprox_softmax,
        fedred_quadratic,
        random_least_squares,
        random_quadratic,
    )

_HOMES = {
    "LeastSquares": "least_squares",
    "Logistic": "logistic",
    "Neural": "neural",
    "Quadratic": "quadratic",
    "Softmax": "softmax",
    "fedcet_quadratic": "synthetic",
    "fedprox_softmax": "synthetic",
    "fedred_quadratic": "synthetic",
    "random_least_squares": "synthetic",
    "random_quadratic": "synthetic",
}

__all__ = [
    "LeastSquares",
    "Logistic",
    "Neural",
    "Quadratic",
    "Softmax",
    "build",
    "fedcet_quadratic",
    "fedprox_softmax",
    "fedred_quadratic",
    "find",
    "random_least_squares",
    "random_quadratic",
    "registry",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_HOMES[name]}"), name)
