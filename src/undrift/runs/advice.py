"""What to try when a method does not work out, and where in a user's file it failed."""

from __future__ import annotations

import dataclasses
import decimal
import traceback
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Literal, NamedTuple

from undrift.core.faults import Rejection
from undrift.core.method import Method
from undrift.core.params import THEORY, values
from undrift.core.problem import Unsupported
from undrift.engines.faults import AWAY
from undrift.runs.prepare import Task, resolved
from undrift.runs.trial import Trial
from undrift.theory import has_rule

REPEATED = 3
"""A client that did not count in so many rounds is named."""
DIGITS = 3
"""Of a number that is suggested."""

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


class Advice(NamedTuple):
    """What to say of a run that diverged."""

    note: str
    suggested: Values | None


def advise(task: Task, draws: int, trial: Trial) -> Advice:
    """The likely cause, and what theory prescribes where it does, for a run that diverged."""
    engine = trial.engine
    if trial.alarm and not trial.alarm.began_finite:
        return Advice(f"diverged in round {engine.round}: {TOO_LARGE}", None)
    if engine.round <= FIRST and _sound_if_plain(task, draws):
        return Advice(f"diverged in round {engine.round}: {NOT_ITS_OWN}", None)
    blamed = suspects(trial.rejections, engine.problem.clients)
    cause = "its step"
    if blamed:
        names = ", ".join(map(str, blamed))
        reason = next(iter(blamed.values()))
        cause = f"client{'s' if len(blamed) > 1 else ''} {names} (refused: {reason})"
    tries = remedy(task)
    if found := prescribed(task):
        numbers = " and ".join(f"{field} = {value:g}" for field, value in found.items())
        theory = " and ".join(f'{field} = "{THEORY}"' for field in found)
        tries = f"try {numbers}, about what {theory} gives"
    return Advice(f"diverged in round {engine.round}, likely because of {cause}: {tries}", found)


def _sound_if_plain(task: Task, draws: int) -> bool:
    """Whether the first round is sound with nothing recorded or compiled."""
    if (problem := task.problem.plain()) is None:
        return False
    engine = dataclasses.replace(task, problem=problem).engine(draws)
    trial = Trial(engine, 1, 1, lambda row: None)
    return trial.run() == "done" and not trial.rejections


def remedy(task: Task) -> str:
    """What to try when a method diverges, in words."""
    tries = [f"a {way} {field}" for field, way in tamer(task.written).items()]
    return f"try {', or '.join(tries)}" if tries else "try fewer local steps"


def suspects(rejections: Iterable[Rejection], clients: int) -> dict[int, str]:
    """Those of ``clients`` whose work was refused again and again, with the last reason.

    If half of them are refused, it is not their fault.
    """
    refused = [one for one in rejections if one.reason not in AWAY]
    rounds = Counter(client for _, client in {(one.round, one.client) for one in refused})
    often = sorted(client for client, count in rounds.items() if count >= REPEATED)
    if 2 * len(often) >= clients:
        return {}
    reasons = {one.client: one.reason for one in refused}
    return {client: reasons[client] for client in often}


def prescribed(task: Task) -> Values | None:
    """What theory prescribes for the step; ``None`` where it does not, or nothing tamer."""
    method = task.method
    ways = tamer(method)
    fields = [field for field in ways if has_rule(type(method), field)]
    if not fields:
        return None
    found = by_theory(task, fields)
    if found is None:
        return None
    given, theirs = values(method), values(found)
    lower = [field for field in fields if theirs[field] < given[field]]
    higher = [field for field in fields if theirs[field] > given[field]]
    if "smaller" not in map(ways.get, lower) and "larger" not in map(ways.get, higher):
        return None
    return {field: shortened(theirs[field], ways[field]) for field in fields}


def by_theory(task: Task, fields: Iterable[str]) -> Method | None:
    """The method with some fields as theory sets them; ``None`` where it cannot."""
    left_open = dataclasses.replace(task.method, **dict.fromkeys(fields, THEORY))
    try:
        found = resolved(task.label, left_open, task.problem, task.setup, task.rounds, task.every)
    except (ValueError, Unsupported):  # a constant is not known, or the local steps do not fit
        return None
    return found.method


def tamer(method: Method) -> dict[str, Way]:
    """The hyper-parameters that decide how far a method steps, and which way is tamer."""
    ways: dict[str, Way] = dict.fromkeys(method.step_sizes, "smaller")
    ways |= dict.fromkeys(method.proximal_weights, "larger")
    return {field: way for field, way in ways.items() if field in values(method)}


def shortened(value: float, way: Way) -> float:
    """A number of a few digits, rounded the way that is tamer.

    >>> shortened(0.0123456, "smaller"), shortened(0.0123456, "larger")
    (0.0123, 0.0124)
    """
    rounding = decimal.ROUND_DOWN if way == "smaller" else decimal.ROUND_UP
    return float(decimal.Context(prec=DIGITS, rounding=rounding).create_decimal_from_float(value))


def way_on(method: Method) -> str:
    """What to try when rounds cannot be counted."""
    if method.participation == "full":
        return "try a method that does not need every client in every round"
    return "try other clients, or a larger patience in [judge]"


def failure(error: BaseException, file: str) -> str:
    """An error of a user's method, with the line of the file it is from."""
    name, frames = Path(file).name, traceback.walk_tb(error.__traceback__)
    lines = [line for frame, line in frames if Path(frame.f_code.co_filename).name == name]
    where = f" ({file}:{lines[-1]})" if lines else ""
    return f"failed: {type(error).__name__}{where}: {error}"
