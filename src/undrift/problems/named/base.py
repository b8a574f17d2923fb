"""What every named problem has: parameters that are checked, and how it is built from them; how its
samples are split among the clients.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Collection, Mapping
from typing import TYPE_CHECKING, ClassVar, Literal, Self, dataclass_transform, get_args

from undrift.core.params import BadParameters, Record

if TYPE_CHECKING:
    from pathlib import Path

    import numpy as np
    from numpy.typing import NDArray

    from undrift.core.problem import Problem
    from undrift.data.partition import Parts
    from undrift.objectives import Objective

Split = Literal["iid", "dirichlet", "dirichlet-balanced", "by-label"]
registry: dict[str, type[Named]] = {}
"""Every named problem, in the order of their files."""


@dataclass_transform(frozen_default=True, kw_only_default=True)
class Named(Record):
    """The parameters of a named problem; subclasses become frozen dataclasses and are registered.

    Args:
        clients: the number of clients.
        seed: decides all that is drawn.
    """

    name: ClassVar[str] = ""
    title: ClassVar[str]
    objectives: ClassVar[bool] = False
    """Whether the local loss can be chosen."""
    judged: ClassVar[Literal["gap", "accuracy"] | None] = "gap"
    """The metric that targets are set for, if that is known before the problem is built."""
    chance: ClassVar[Mapping[str, str]] = {"split": "data"}
    """What a seed can decide, in words: the ``split`` (or the data), the ``start``."""
    clients: int
    seed: int
    precision: str | None = None
    """Of matrix products on a GPU, where it can be chosen."""

    def __init_subclass__(cls, *, register: bool = True, **kwargs: object) -> None:
        super().__init_subclass__(**kwargs)
        cls.owner = cls.name
        dataclasses.dataclass(frozen=True, kw_only=True)(cls)
        if register:
            registry[cls.name] = cls

    def build(self, objective: Objective | None = None) -> Problem:
        """The problem itself, with this local loss where :attr:`objectives` is true."""
        if objective is not None:
            raise BadParameters(
                self.name, {"objective": f"{self.name} has a loss of its own: leave out objective"}
            )
        return self.make()

    def make(self) -> Problem:
        """The problem with the loss that it has of its own."""
        raise NotImplementedError

    def beside(self, folder: Path) -> Self:
        """The same for a spec in ``folder``, with its files by their paths from here."""
        return self

    def drawn(self, what: Collection[str], seed: int) -> Self:
        """The same with ``what`` of :attr:`chance` drawn from ``seed``."""
        return dataclasses.replace(self, seed=seed) if "split" in what else self  # type: ignore[type-var]

    @property
    def decided(self) -> list[str]:
        """What of :attr:`chance` a seed decides; a single client holds all samples anyway."""
        alone = self.chance.get("split") == "split" and self.clients == 1
        return [what for what in self.chance if what != "split" or not alone]


def split(
    labels: NDArray[np.generic], clients: int, how: str, beta: float, shards: int, seed: int
) -> Parts:
    """The samples of each client."""
    from undrift.core.streams import Streams
    from undrift.data import paper_partitions, partition

    own = {"iid": {}, "by-label": {"shards": shards}}.get(how, {"beta": beta})
    way: Callable[..., Parts] = getattr(
        partition if how in get_args(Split) else paper_partitions, how.replace("-", "_")
    )
    return way(labels, clients, Streams(seed).at("data"), **own)
