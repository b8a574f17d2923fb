"""Problems by name. Importing it costs nothing: no torch, no NumPy."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from undrift.core.params import BadParameters, Count, Fraction, Natural, NonNegative, Positive, check, unknown

if TYPE_CHECKING:
    from undrift.core.problem import Problem


class Named:
    """The parameters of a named problem."""

    name: ClassVar[str]
    title: ClassVar[str]

    def __post_init__(self) -> None:
        if problems := check(self.name, type(self), self._values()):
            raise BadParameters(self.name, problems)

    def build(self) -> Problem:
        """The problem itself."""
        raise NotImplementedError

    def _values(self) -> dict[str, Any]:
        return {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}  # type: ignore[arg-type]


@dataclasses.dataclass(frozen=True)
class RandomQuadratic(Named):
    name = "quadratic"
    title = "random quadratics with different dense Hessians and centres"

    clients: Count = 20
    dim: Count = 10
    mu: NonNegative = 1.0
    L: Positive = 10.0
    heterogeneity: Fraction = 1.0
    spread: NonNegative = 1.0
    seed: Natural = 0

    def build(self) -> Problem:
        from undrift.problems.synthetic import random_quadratic

        return random_quadratic(**self._values())


@dataclasses.dataclass(frozen=True)
class FedRedQuadratic(Named):
    name = "fedred"
    title = "the synthetic instance of DANE+ and FedRed: similar diagonal Hessians"

    kind: Literal["strong", "convex", "nonconvex"] = "strong"
    clients: Count = 5
    components: Count = 10
    dim: Count = 1000
    seed: Natural = 0

    def build(self) -> Problem:
        from undrift.problems.synthetic import fedred_quadratic

        return fedred_quadratic(**self._values())


@dataclasses.dataclass(frozen=True)
class FedCETQuadratic(Named):
    name = "fedcet"
    title = "FedCET's estimation problem, with equal or different Hessians"

    hessians: Literal["equal", "different"] = "equal"
    clients: Count = 10
    samples: Count = 10
    dim: Count = 60
    seed: Natural = 0

    def build(self) -> Problem:
        from undrift.problems.synthetic import fedcet_quadratic

        return fedcet_quadratic(**self._values())


@dataclasses.dataclass(frozen=True)
class RandomLeastSquares(Named):
    name = "least-squares"
    title = "FedRecu's least squares with uniform random entries"

    clients: Count = 20
    rows: Count = 50
    dim: Count = 10
    seed: Natural = 0

    def build(self) -> Problem:
        from undrift.problems.synthetic import random_least_squares

        return random_least_squares(**self._values())


@dataclasses.dataclass(frozen=True)
class LogisticRegression(Named):
    """``beta`` is the concentration of the Dirichlet partitions, ``shards`` those per client of ``by-label``."""

    name = "logistic"
    title = "regularised logistic regression on a binary data set"

    data: str = "breast-cancer"
    folder: str | None = None
    clients: Count = 10
    partition: Literal["iid", "dirichlet", "dirichlet-balanced", "by-label"] = "dirichlet"
    beta: Positive = 1.0
    shards: Count = 2
    l2: NonNegative | None = None
    seed: Natural = 0

    def build(self) -> Problem:
        from undrift.core.streams import Streams
        from undrift.data import partition
        from undrift.data.datasets import load
        from undrift.problems.logistic import Logistic

        table = load(self.data, self.folder)
        among = (table.labels, self.clients, Streams(self.seed).at("data"))
        match self.partition:
            case "iid":
                parts = partition.iid(*among)
            case "dirichlet":
                parts = partition.dirichlet(*among, beta=self.beta)
            case "dirichlet-balanced":
                parts = partition.dirichlet_balanced(*among, beta=self.beta)
            case "by-label":
                parts = partition.by_label(*among, shards=self.shards)
        return Logistic(table.features, table.labels, parts, self.l2)


_ALL = (RandomQuadratic, FedRedQuadratic, FedCETQuadratic, RandomLeastSquares, LogisticRegression)
registry: dict[str, type[Named]] = {kind.name: kind for kind in _ALL}
"""Every named problem."""


def find(name: str) -> tuple[type[Named], dict[str, Any]]:
    """The parameters a name stands for and those it sets: ``logistic-a9a`` is ``logistic`` with ``data = "a9a"``.

    >>> find("logistic-a9a")[1]
    {'data': 'a9a'}
    """
    if name in registry:
        return registry[name], {}
    kind, _, data = name.partition("-")
    if kind == LogisticRegression.name and data:
        return LogisticRegression, {"data": data}
    raise ValueError(unknown("problem", name, [*registry, "logistic-DATASET"]))


def build(name: str, **parameters: Any) -> Problem:
    """A problem by name, with the parameters that differ from its defaults."""
    kind, preset = find(name)
    values = preset | parameters
    if problems := check(name, kind, values):
        raise BadParameters(name, problems)
    return kind(**values).build()
