"""The arguments of an engine besides method and problem: declared, and checked before a run."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping

import torch
from torch import Tensor

from undrift.core.cohort import sampling
from undrift.core.faults import faults, judging
from undrift.core.method import Method
from undrift.core.optimisers import optimiser
from undrift.core.options import RunOptions, pace, unsplit
from undrift.core.params import BadParameters, Natural, check, hints
from undrift.core.problem import Facts, Problem
from undrift.core.robust import robust
from undrift.core.schedules import schedule
from undrift.engines.options import NoOptions

TABLES: Mapping[str, Callable[[object], object]] = {
    "cohort": sampling,
    "reduction": robust,
    "schedule": schedule,
    "local": optimiser,
}
"""Arguments that may be tables, and what reads them."""
PLANS: Mapping[str, Callable[[object], object]] = {"faults": faults, "judge": judging}
"""Those whose fields are told by their places in a spec."""
SWAPPED = "the arguments are the other way round: first the method, then the problem"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Setting(RunOptions):
    """The arguments that every engine takes, and ``undrift.run``."""

    seed: Natural = 0
    x0: object = None


def refusals(
    method: object, problem: object, given: Mapping[str, object], own: type = NoOptions
) -> dict[str, str]:
    """Argument -> what is wrong with it, as far as that is known before a named problem is built.

    ``own`` declares the options that only this engine takes.
    """
    mine = {name: value for name, value in given.items() if name in hints(own)}
    others = {n: v for n, v in given.items() if n not in {*mine, *TABLES, *PLANS}}
    problems = not_methods(method, problem) | check(Setting, others)
    problems |= check(own, mine)
    if given.get("steps") == []:
        problems["steps"] = "steps = [] is not allowed: one number for all clients, or one for each"
    for name, read in TABLES.items():
        try:
            read(given.get(name))
        except BadParameters as error:
            problems[name] = error.problems.get(name) or "; ".join(
                f"{name}: {text}" for text in error.problems.values()
            )
    for name, read in PLANS.items():
        try:
            read(given.get(name))
        except BadParameters as error:
            for field, why in error.problems.items():
                problems[field] = why if field == name else f"{name}: {why}"
    text = pace(given.get("steps", 1) != 1, given.get("epochs") is not None, given.get("batch"))
    if text and "epochs" not in problems:
        problems["epochs"] = text
    text = unsplit(given.get("accumulate"), given.get("batch"))
    if text and "accumulate" not in problems:
        problems["accumulate"] = text
    return problems


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
