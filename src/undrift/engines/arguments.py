"""The arguments of an engine besides method and problem: declared, and checked before a run."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

import torch
from torch import Tensor

from undrift.core.method import Method
from undrift.core.options import RunOptions, conflicts
from undrift.core.params import BadParameters, Natural, read
from undrift.core.problem import Facts, Problem

SWAPPED = "the arguments are the other way round: first the method, then the problem"


@dataclasses.dataclass(frozen=True)
class Seeded:
    """What a run takes besides its options."""

    seed: Natural = 0


def options_of(
    method: object, problem: object, given: Mapping[str, object]
) -> tuple[RunOptions | None, dict[str, str]]:
    """The options in ``given``, or everything that is wrong with the arguments of an engine."""
    given = {name: value for name, value in given.items() if value is not None}
    values, problems = read(RunOptions, given, kind="setting")
    problems |= not_methods(method, problem)
    clashes = conflicts(given, given.get("batch"))
    problems |= {name: text for name, text in clashes.items() if name not in problems}
    return None if problems else RunOptions(**values), problems


def not_methods(method: object, problem: object) -> dict[str, str]:
    """What is wrong with the kind of a method and of a problem, which may be a name."""
    if isinstance(problem, Method) and not isinstance(method, Method):
        return {"method": SWAPPED}
    problems = {}
    if isinstance(method, type) and issubclass(method, Method):
        fields = dataclasses.fields(method)
        needed = ", ".join(f"{f.name}=..." for f in fields if f.default is dataclasses.MISSING)
        text = f"method is a class: give its hyper-parameters, {method.__name__}({needed})"
        problems["method"] = text
    elif not isinstance(method, Method):
        shown = repr(method) if isinstance(method, str) else f"<{type(method).__name__}>"
        text = f"method = {shown} is not allowed: a method itself, as undrift.FedAvg(lr=0.1)"
        problems["method"] = text
    if isinstance(problem, type) or not (isinstance(problem, str) or _like_a_problem(problem)):
        kind = problem if isinstance(problem, type) else type(problem)
        shown = f"the class {kind.__name__}" if kind is problem else f"<{kind.__name__}>"
        text = f"problem = {shown} is not allowed: the name of a problem, or a Problem"
        problems["problem"] = text
    return problems


def _like_a_problem(given: object) -> bool:
    return all(hasattr(given, name) for name in ("clients", "dim", "at", "metrics"))


def first_point(x0: object, problem: Problem | Facts) -> Tensor:
    """Where a run starts, in the problem's own type and place. Raises :class:`BadParameters`."""
    if x0 is None:
        x0 = problem.start()
    wanted = f"not a vector of {problem.dim} numbers, as problem.start() is"
    try:
        point = torch.as_tensor(x0)
    except (TypeError, ValueError, RuntimeError):
        text = f"x0 is a {type(x0).__name__}, {wanted}"
        raise BadParameters("run", {"x0": text}) from None
    if tuple(point.shape) != (problem.dim,) or point.is_complex():
        text = f"x0 is {point.dtype} {list(point.shape)}, {wanted}"
        raise BadParameters("run", {"x0": text})
    if not bool(point.isfinite().all()):
        raise BadParameters("run", {"x0": "x0 has entries that are not finite; replace them"})
    return point.to(problem.dtype).to(problem.device)
