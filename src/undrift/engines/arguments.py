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
    problems = {}
    if not isinstance(method, Method):
        wanted = "first a method, as undrift.FedAvg(lr=0.1), then the problem"
        problems["method"] = f"method = {_shown(method)} is not allowed: {wanted}"
    known = all(hasattr(problem, name) for name in ("clients", "dim", "at", "metrics"))
    if isinstance(problem, type) or not (known or isinstance(problem, str)):
        wanted = "the name of a problem, or a Problem"
        problems["problem"] = f"problem = {_shown(problem)} is not allowed: {wanted}"
    return problems


def _shown(given: object) -> str:
    return repr(given) if isinstance(given, str | type) else f"<{type(given).__name__}>"


def first_point(x0: object, problem: Problem | Facts) -> Tensor:
    """Where a run starts, in the problem's own type and place. Raises :class:`BadParameters`."""
    if x0 is None:
        x0 = problem.start()
    try:
        point = torch.as_tensor(x0)
        sound = tuple(point.shape) == (problem.dim,) and bool(point.isfinite().all())
    except (TypeError, ValueError, RuntimeError):
        sound = False
    if not sound or point.is_complex():
        text = f"x0 is not a vector of {problem.dim} finite numbers, as problem.start() is"
        raise BadParameters("run", {"x0": text})
    return point.to(problem.dtype).to(problem.device)
