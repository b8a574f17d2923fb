"""What an engine is told besides a method and a problem: declared, and checked before anything
runs.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from undrift.core.cohort import sampling
from undrift.core.method import Method
from undrift.core.options import pace
from undrift.core.params import BadParameters, Count, Natural, check
from undrift.core.problem import Problem
from undrift.engines.options import Options

ORDER = "the arguments are the other way round: first the method, then the problem"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Setting(Options):
    """The arguments of an engine, and of ``undrift.run``."""

    steps: Count | list[Count] = 1
    epochs: Count | None = None
    cohort: Any = None
    batch: Count | None = None
    seed: Natural = 0
    x0: Any = None


def refusals(method: Any, problem: Any, given: Mapping[str, Any]) -> dict[str, str]:
    """Argument -> what is wrong with it, as far as that can be said before a problem that is named
    is built.
    """
    problems = not_methods(method, problem) | check("engine", Setting, given)
    if given.get("steps") == []:
        problems["steps"] = "steps = [] is not allowed: one number for all clients, or one for each"
    try:
        sampling(given.get("cohort"))
    except BadParameters as error:
        problems["cohort"] = error.problems.get("cohort") or "; ".join(
            f"cohort: {t}" for t in error.problems.values()
        )
    text = pace(given.get("steps", 1) != 1, given.get("epochs") is not None, given.get("batch"))
    return problems | ({"epochs": text} if text and "epochs" not in problems else {})


def not_methods(method: Any, problem: Any) -> dict[str, str]:
    """What is wrong with the kind of a method and of a problem, which may be a name."""
    if isinstance(problem, Method) and not isinstance(method, Method):
        return {"method": ORDER}
    problems = {}
    if isinstance(method, type) and issubclass(method, Method):
        needed = [
            f"{f.name}=..." for f in dataclasses.fields(method) if f.default is dataclasses.MISSING
        ]
        problems["method"] = (
            f"method is a class: give its hyper-parameters, {method.__name__}({', '.join(needed)})"
        )
    elif not isinstance(method, Method):
        shown = repr(method) if isinstance(method, str) else f"<{type(method).__name__}>"
        problems["method"] = (
            f"method = {shown} is not allowed: a method itself, as undrift.FedAvg(lr=0.1)"
        )
    whole = all(hasattr(problem, name) for name in ("clients", "dim", "at", "metrics"))
    if isinstance(problem, type) or not (isinstance(problem, str) or whole):
        shown = (
            f"the class {problem.__name__}"
            if isinstance(problem, type)
            else f"<{type(problem).__name__}>"
        )
        problems["problem"] = (
            f"problem = {shown} is not allowed: the name of a problem, or a Problem"
        )
    return problems


def first_point(x0: Any, problem: Problem) -> Tensor:
    """Where a run starts, in the problem's own type and place. Raises :class:`ValueError`."""
    if x0 is None:
        x0 = problem.start()
    try:
        point = torch.as_tensor(x0)
    except (TypeError, ValueError, RuntimeError):
        raise ValueError(
            f"x0 is a {type(x0).__name__}, not a vector of {problem.dim} numbers"
        ) from None
    if tuple(point.shape) != (problem.dim,) or point.is_complex():
        raise ValueError(
            f"x0 is {point.dtype} {list(point.shape)}, not a vector of {problem.dim} numbers"
        )
    if not bool(point.isfinite().all()):
        raise ValueError("x0 has entries that are not finite")
    return point.to(problem.dtype).to(problem.device)
