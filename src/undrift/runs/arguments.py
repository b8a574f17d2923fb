"""The arguments of ``undrift.run``, checked like the settings of a spec and in the same words."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, Self

import numpy as np
import torch

from undrift.core.method import Method
from undrift.core.options import RunOptions, conflicts
from undrift.core.params import (
    BadParameters,
    NonNegative,
    Record,
    check,
    hints,
    made,
    not_allowed,
    plain,
    read,
    unknown,
)
from undrift.core.problem import Problem
from undrift.core.schedules import Computed
from undrift.engines.engine import first_point, not_methods
from undrift.problems import named as catalog
from undrift.runs.callbacks import Observers
from undrift.runs.loggers import missing
from undrift.runs.prepare import Setup
from undrift.spec.schema import Settings, Values, absent, changed, readable

Methods = Method | Sequence[Method] | Mapping[str, Method]


def labelled(methods: Methods) -> dict[str, Method]:
    """Label -> method; a method without a label has that of its class."""
    if isinstance(methods, Mapping):
        labels = [str(label) for label in methods]
        for label in labels:
            if not readable(label):
                text = not_allowed("label", label, "printable characters, not only spaces")
                raise BadParameters("run", {"method": text})
            if labels.count(label) > 1:
                text = f"two methods are called {label!r}: give one another label"
                raise BadParameters("run", {"method": text})
        found = dict(zip(labels, methods.values(), strict=True))
    elif isinstance(methods, (list, tuple)):
        found = {type(method).__name__: method for method in methods}
        if len(found) < len(methods):
            text = "two methods have the same name: give a mapping from labels to methods"
            raise BadParameters("run", {"method": text})
    else:
        found = {type(methods).__name__: methods}  # type: ignore[dict-item]  # refused later
    if not found:
        raise BadParameters("run", {"method": "no methods: give one, or several"})
    return found


@dataclasses.dataclass(frozen=True)
class Save(Record):
    """The folder of a run, and how it is kept.

    Args:
        folder: its path; the same call continues the run in it.
        overwrite: replace an earlier run there.
        checkpoint: seconds between checkpoints, 0: after every round; left out: 10.
        loggers: also log every row: "tensorboard".
    """

    owner = "save"

    folder: str | Path
    overwrite: bool = False
    checkpoint: NonNegative | None = None
    loggers: list[str] = dataclasses.field(default_factory=list)

    @classmethod
    def read(cls, given: object) -> Self:
        """From the path of a folder too."""
        return made(cls, {"folder": given} if isinstance(given, str | Path) else given)

    def conditions(self) -> dict[str, str]:
        wrong = {f"loggers.{name}": text for name, text in missing(self.loggers).items()}
        if Path(self.folder).name in ("", ".."):
            text = not_allowed("save", self.folder, 'the path of a folder, as "runs/mine"')
            wrong["folder"] = text
        return wrong


NEEDED = ("rounds", "engine", "device", "seed")
"""What cannot be left out by giving ``None``."""


class Call(NamedTuple):
    """The arguments of ``undrift.run``, as they are declared."""

    methods: dict[str, Method]
    problem: Problem | str
    parameters: Values
    """Of a named problem."""
    settings: Values
    """Those of :class:`Settings` that the call may give."""
    observers: Observers
    x0: object
    save: Save | None


def settle(
    method: Methods,
    problem: Problem | str | Mapping[str, object],
    given: Mapping[str, object],
    parameters: Mapping[str, object],
) -> Call:
    """What a call asks for. Raises :class:`BadParameters` with everything that is wrong with it."""
    methods, named = labelled(method), dict[str, Any](plain(parameters))
    if isinstance(problem, Mapping):
        named = {**plain(problem), **named}
        problem = str(named.pop("name", "")) or "a table without its name"
    asked = {name: _name(v) for name, v in given.items() if v is not None or name in NEEDED}
    mine = {name: value for name, value in asked.items() if name in hints(Settings)}
    settings, wrong = read(Settings, mine, kind="setting", partial=True)
    wrong |= conflicts(mine, mine.get("batch"))
    for one in methods.values():
        wrong |= not_methods(one, problem)
    if "device" in settings and (text := absent(settings["device"])):
        wrong["device"] = text
    observers, save = Observers(), None
    try:
        observers = Observers.read(asked.get("callbacks", ()))
    except BadParameters as error:
        wrong |= error.problems
    try:
        save = None if given.get("save") is None else Save.read(given["save"])
    except BadParameters as error:
        wrong |= {f"save.{name}".rstrip("."): text for name, text in error.problems.items()}
    if "problem" not in wrong and not isinstance(problem, Method):
        wrong |= _about(problem, named, [*given])
    if wrong:
        raise BadParameters("run", wrong)
    schedule = settings.get("schedule")
    if isinstance(schedule, Computed):  # by its factors, which folders and other processes can have
        settings["schedule"] = schedule.listed(settings["rounds"])
    settings |= {"stop": observers.stop, "best": observers.best}
    settings["per_client"] = observers.per_client is not None
    settings = vars(Settings(**{"name": "run", **settings}))
    return Call(methods, problem, named, settings, observers, given["x0"], save)


def setup(call: Call, problem: Problem) -> Setup:
    """How a call runs its methods."""
    own, engine = {name: call.settings[name] for name in hints(RunOptions)}, call.settings["engine"]
    x0 = None if call.x0 is None else first_point(call.x0, problem)
    return Setup(**own, x0=x0, engine=engine.name, own=changed(engine))


def _about(
    problem: object, parameters: Mapping[str, object], settings: list[str]
) -> dict[str, str]:
    """What is wrong with the parameters of a problem; a misspelt setting is among them."""
    if isinstance(problem, str):
        wrong = _of_named(problem, parameters, settings)
    else:
        known = {name for kind in catalog.registry.values() for name in hints(kind)}
        ready = "goes with the name of a problem, not with a ready one"
        wrong = {
            n: f"{n} {ready}" if n in known else unknown("setting", n, settings) for n in parameters
        }
    return wrong


def _of_named(
    problem: str, parameters: Mapping[str, object], settings: list[str]
) -> dict[str, str]:
    try:
        kind, preset = catalog.find(problem)
    except ValueError as error:
        return {"problem": str(error)}
    values: Values = {**preset, **parameters}
    wrong = check(kind, values)
    for name in parameters.keys() - hints(kind).keys():
        own = [name for name in hints(kind) if name != "seed"]
        wrong[name] = unknown(f"setting or parameter of {problem}", name, [*own, *settings])
    if not wrong:
        try:
            kind(**values)
        except BadParameters as error:
            wrong = error.problems
    return wrong


def _name(value: object) -> object:
    """Types and devices of torch, and types of NumPy, by their names."""
    if isinstance(value, type) and issubclass(value, np.generic):
        return np.dtype(value).name
    if isinstance(value, torch.dtype | torch.device):
        return str(value).removeprefix("torch.")
    return value
