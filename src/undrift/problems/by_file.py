"""Problems, networks and data of the user's: by their file in a spec, or one client's own data."""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, ClassVar, Literal

from undrift.core.params import BadParameters, fields, hints, values
from undrift.problems.named import Images, Named, registry

if TYPE_CHECKING:
    from undrift.core.problem import Problem
    from undrift.objectives import Objective

OBJECTIVE = "objective"
"""The parameter of a problem that takes the local loss a spec chose."""
OF_IMAGES = ("channels", "size", "shape", "classes")
"""What a network is told of the data it is for."""


class OwnProblem(Named, register=False):
    """A problem that a function of the user's makes."""

    maker: ClassVar[Callable[..., object]]

    def build(self, objective: Objective | None = None) -> Problem:
        from undrift.core.problem import Problem
        from undrift.models.net import seeded

        if objective is not None and not self.objectives:
            text = f"{self.name} takes no objective: leave it out, or give it such a parameter"
            raise BadParameters(self.name, {"objective": text})
        given: dict[str, object] = {OBJECTIVE: objective} if self.objectives else {}
        own = values(self)
        with seeded(own.get("seed", 0)):  # weights that the function does not seed itself
            problem = type(self).maker(**own, **given)
        if not isinstance(problem, Problem):
            kind = type(problem).__name__
            raise TypeError(f"{self.name} gives a {kind}, not a Problem such as undrift.Neural")
        return problem


TAKEN = {*dir(OwnProblem), *Named.__annotations__, "maker"} - {
    "clients",
    "seed",
    "precision",
}
"""What all problems have; no parameter can have these names."""


def own_problem(maker: Callable[..., object], declared: type) -> type[OwnProblem]:
    """The kind of problem that a function makes, whose parameters are ``declared``.

    Raises ``ValueError`` if one of them has the name of something that all problems have.
    """
    name = declared.__name__
    if taken := [p for p in hints(declared) if p in TAKEN]:
        raise ValueError(
            f"the parameter {taken[0]} of {name} is a word of undrift's own: choose another name"
        )
    seeded = "seed" in hints(declared)
    body: dict[str, object] = {
        "__doc__": declared.__doc__ or f"The problem of {name}.",
        "__annotations__": dict(hints(declared)),
        "name": name,
        "title": (declared.__doc__ or name).strip().partition("\n")[0],
        "maker": staticmethod(maker),
        "objectives": OBJECTIVE in inspect.signature(maker).parameters,
        "judged": None,
        "chance": {"split": "data"} if seeded else {},
    }
    for field in fields(declared):
        usual = {"default": field.default, "default_factory": field.default_factory}
        body[field.name] = dataclasses.field(**usual)  # type: ignore[call-overload]
    return type(name, (OwnProblem,), body, register=False)


def own_images(
    network: Callable[..., object] | None,
    data: Callable[..., object] | None,
    names: Mapping[str, str],
) -> type[Images]:
    """``images`` with a network or data of the user's; ``names`` are what they are called."""
    body: dict[str, object] = {
        "__doc__": Images.__doc__,
        "__annotations__": {field: Literal[name] for field, name in names.items()},
        "name": Images.name,
        "own_network": None if network is None else staticmethod(network),
        "own_data": None if data is None else staticmethod(data),
        **names,
    }
    return type("Images", (Images,), body, register=False)


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
