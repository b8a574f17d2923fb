"""The fast engine: the cohort side by side, every vector ``[C, d]``."""

from __future__ import annotations

from typing import Any

from undrift.core.method import Method
from undrift.core.problem import Problem
from undrift.core.struct import State
from undrift.engines.engine import Engine
from undrift.engines.options import StoreOptions
from undrift.engines.site import PREVIOUS, Site
from undrift.engines.store import Store


class Simulate(Engine):
    """All clients on one site, in one process, the vectors of a cohort stacked.

    ``store`` says where the vectors of all clients are kept: on the ``device``, in memory beside
    the GPU (``host``), in a ``file``, or in the first of these with room for them (``auto``). The
    numbers are the same.
    """

    Options = StoreOptions
    site: Site

    def __init__(self, method: Method, problem: Problem, **arguments: Any):
        super().__init__(method, problem, **arguments)
        self.site = Site(self.common, place=self.memory.place)

    @property
    def store(self) -> Store:
        """What the clients remember."""
        return self.site.store

    @property
    def clients(self) -> State:
        """What the clients remember: a record of vectors ``[N, d]``."""
        tensors = self.store.tensors()
        return self.method.Client(**{name: v for name, v in tensors.items() if name != PREVIOUS})
