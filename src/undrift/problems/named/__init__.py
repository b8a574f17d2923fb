"""Problems by name: the parameters of each and what it is made of. Imports no torch, no NumPy."""

from __future__ import annotations

from typing import TYPE_CHECKING

from undrift.core.params import hints, unknown
from undrift.core.params import made as checked
from undrift.problems.named.base import Named, registry
from undrift.problems.named.quadratics import (
    FedCETQuadratic,
    FedRedQuadratic,
    RandomLeastSquares,
    RandomQuadratic,
)
from undrift.problems.named.regressions import (
    LogisticRegression,
    RidgeRegression,
    SoftmaxRegression,
    SyntheticSoftmax,
)

# isort: split
# Problems are listed in this order, images last.
from undrift.problems.named.images import Images

if TYPE_CHECKING:
    from undrift.core.problem import Problem

__all__ = [
    "FedCETQuadratic",
    "FedRedQuadratic",
    "Images",
    "LogisticRegression",
    "Named",
    "RandomLeastSquares",
    "RandomQuadratic",
    "RidgeRegression",
    "SoftmaxRegression",
    "SyntheticSoftmax",
    "build",
    "find",
    "made",
    "registry",
]


def find(name: str) -> tuple[type[Named], dict[str, object]]:
    """The problem of a name and the parameters that the name sets.

    ``logistic-a9a`` is ``logistic`` with ``data = "a9a"``.

    >>> find("images-cifar10")[1]
    {'data': 'cifar10'}
    """
    if name in registry:
        return registry[name], {}
    kind, _, data = name.partition("-")
    of_sets = [name for name, kind in registry.items() if "data" in hints(kind)]
    if data and kind in of_sets:
        return registry[kind], {"data": data}
    raise ValueError(
        unknown("problem", name, [*registry, *(f"{name}-DATASET" for name in of_sets)])
    )


def build(name: str, **parameters: object) -> Problem:
    """A problem by name, with the parameters that differ from its defaults."""
    return made(name, **parameters).build()


def made(name: str, **parameters: object) -> Named:
    """The parameters of a problem by name, checked."""
    kind, preset = find(name)
    return checked(kind, preset | parameters, kind="parameter")
