"""The problem of one client from data of its own, for a federation whose clients keep theirs."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from undrift.core.params import hints
from undrift.core.problem import Problem
from undrift.objectives import Objective
from undrift.problems.named import Named, registry


def own(kind: Named, objective: Objective | None, among: Sequence[int]) -> Problem:
    """A problem of one client: all the data that ``kind`` names are its own.

    ``among`` are the samples of every client, once they are known.
    """
    if "data" not in hints(type(kind)):
        known = " or ".join(name for name, other in registry.items() if "data" in hints(other))
        raise ValueError(
            f"{kind.name} is drawn from a seed and has no data of a client's own: use the problem "
            f"{known}, or join with --part K as client K of what everybody can draw"
        )
    changes: dict[str, object] = {"clients": 1, "partition": "iid"}
    if among and getattr(kind, "l2", 0.0) is None:
        changes["l2"] = 1 / sum(among)
    problem = dataclasses.replace(kind, **changes).build(objective)  # type: ignore[type-var]
    return problem.among(len(among), sum(among)) if among else problem
