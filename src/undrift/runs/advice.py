"""What to try when a method does not work out, and where in a user's file it failed."""

from __future__ import annotations

import dataclasses
import math
from pathlib import Path
from typing import Literal

from undrift.core.method import Method
from undrift.core.params import THEORY, values
from undrift.core.problem import Unsupported
from undrift.engines.judge import Diverged, Stuck
from undrift.runs.prepare import Task, resolved
from undrift.spec.user_files import line_in
from undrift.theory import has_rule

TOO_LARGE = (
    "its loss was not finite before the first step: bring inputs and targets to a scale near 1, or "
    'compute with dtype = "float64"'
)

FIRST = 2
"""A run that ends with so many rounds may never have had a sound gradient."""
NOT_ITS_OWN = (
    "its first round is sound where nothing is captured or compiled, so the fault is undrift's, or "
    "torch's: please report it with the network"
)

Values = dict[str, float]
Way = Literal["smaller", "larger"]


def advise(task: Task, draws: int, round: int, began_finite: bool) -> str:
    """What happened to a run that diverged and what to try, with numbers where theory has some."""
    happened = f"diverged in round {round}"
    if not began_finite:
        return f"{happened}: {TOO_LARGE}"
    if round <= FIRST and _sound_if_plain(task, draws):
        return f"{happened}: {NOT_ITS_OWN}"
    found = prescribed(task)
    text = remedy(task)
    if found is not None:
        numbers = " and ".join(f"{field} = {value:g}" for field, value in found.items())
        text = f"try {numbers}, about what theory gives"
    return f"{happened}, likely because of its step: {text}"


def _sound_if_plain(task: Task, draws: int) -> bool:
    """Whether the first round is sound with nothing recorded or compiled."""
    if (problem := task.problem.plain()) is None:
        return False
    engine = dataclasses.replace(task, problem=problem).engine(draws)
    try:
        engine.run_round()
    except (Diverged, Stuck):
        return False
    return math.isfinite(engine.metrics()["loss"]) and not engine.ledger.left_out


def remedy(task: Task) -> str:
    """What to try when a method diverges, in words."""
    tries = [f"a {way} {field}" for field, way in tamer(task.written).items()]
    return f"try {', or '.join(tries)}" if tries else "try fewer local steps"


def prescribed(task: Task) -> Values | None:
    """What theory prescribes for the step; ``None`` where it does not, or nothing tamer."""
    ways = tamer(task.method)
    fields = [field for field in ways if has_rule(type(task.method), field)]
    left_open = dataclasses.replace(task.method, **dict.fromkeys(fields, THEORY))
    try:
        extent = task.rounds, task.every
        found = resolved(task.label, left_open, task.problem, task.setup, *extent, estimating=False)
    except (ValueError, Unsupported):  # a constant is not known, or the local steps do not fit
        return None
    given, theirs = values(task.method), values(found.method)
    signs = {"smaller": -1, "larger": 1}
    if not any(signs[ways[field]] * (theirs[field] - given[field]) > 0 for field in fields):
        return None
    return {field: float(f"{theirs[field]:.3g}") for field in fields}


def tamer(method: Method) -> dict[str, Way]:
    """The hyper-parameters that decide how far a method steps, and which way is tamer."""
    ways: dict[str, Way] = dict.fromkeys(method.step_sizes, "smaller")
    ways |= dict.fromkeys(method.proximal_weights, "larger")
    return {field: way for field, way in ways.items() if field in values(method)}


def way_on(method: Method) -> str:
    """What to try when rounds cannot be counted."""
    if method.participation == "full":
        return "try a method that does not need every client in every round"
    return "try other clients, or a larger patience in [judge]"


def failure(error: BaseException, file: str) -> str:
    """An error of a user's method, with the line of the file it is from."""
    line = line_in(error, Path(file))
    where = f" ({file}:{line})" if line else ""
    return f"failed: {type(error).__name__}{where}: {error}"
