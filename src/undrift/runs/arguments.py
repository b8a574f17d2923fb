"""The arguments of ``undrift.run``, checked like the settings of a spec and in the same words."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import numpy as np
import torch

from undrift.core.cohort import sampling
from undrift.core.faults import Judging, faults, judging
from undrift.core.method import Method
from undrift.core.optimisers import optimiser
from undrift.core.params import (
    BadParameters,
    NonNegative,
    check,
    fits,
    hints,
    not_allowed,
    plain,
    unknown,
)
from undrift.core.problem import Problem
from undrift.core.robust import robust
from undrift.core.schedules import Computed, Schedule, schedule
from undrift.core.stopping import Goal, early_stopping, goal
from undrift.engines.arguments import Setting, first_point, refusals
from undrift.problems import named as catalog
from undrift.runs.prepare import Setup
from undrift.spec.schema import Settings, Table, Values, absent, readable

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


def settle(
    methods: Iterable[object],
    problem: object,
    given: Mapping[str, object],
    parameters: Mapping[str, object],
) -> Values:
    """``given`` as Python's own numbers and names, checked, with the ``parameters`` of a problem.

    Raises :class:`BadParameters` with everything that is wrong with a call.
    """
    values: Values = {
        name: value if name == "x0" else _name(plain(value)) for name, value in given.items()
    }
    values["parameters"] = _named(parameters, given["problem_seed"])
    wrong = _judged(values)
    engine = {name: value for name, value in values.items() if name in hints(Setting)}
    other = {
        name: value
        for name, value in values.items()
        if name in hints(Settings) and name not in engine and (name, value) != ("seeds", None)
    }
    for method in methods:
        wrong |= refusals(method, problem, engine)
    wrong |= {name: text for name, text in check(Settings, other).items() if name in other}
    if "device" not in wrong and (text := absent(values["device"])):
        wrong["device"] = text
    if values.get("seeds") is not None and values["seed"] != 0:
        wrong["seeds"] = "give seed or seeds, not both"
    for name in ("until", "watch", "on_event"):
        if values.get(name) is not None and not callable(values[name]):
            wrong[name] = f"{name} = {values[name]!r} is not allowed: a function"
    wrong |= keeping(given)
    if "problem" not in wrong and not isinstance(problem, Method):
        wrong |= _about(problem, values["parameters"], [*given])
    if wrong:
        raise BadParameters("run", wrong)
    values["faults"] = [*faults(values["faults"])] or None
    judge = judging(values["judge"])
    values["judge"] = None if judge == Judging() else judge
    values["local"] = optimiser(values["local"])
    values["schedule"] = _listed(schedule(values["schedule"]), values["rounds"])
    return values


def _listed(given: Schedule | None, rounds: int) -> Schedule | None:
    """A schedule that is a function by its factors, which folders and other processes can have."""
    return given.listed(rounds) if isinstance(given, Computed) else given


def _judged(values: Values) -> dict[str, str]:
    """What is wrong with ``stop``, ``best`` and ``callbacks``, which are read in place."""
    wrong: dict[str, str] = {}
    for name, read in (("stop", early_stopping), ("best", goal)):
        try:
            values[name] = read(values.get(name))
        except BadParameters as error:
            wrong |= error.problems
            values[name] = None
    given = values.get("callbacks", ())
    values["callbacks"] = [given] if callable(given) else given
    for callback in (
        values["callbacks"] if isinstance(values["callbacks"], list | tuple) else [given]
    ):
        if isinstance(callback, Goal):
            wrong["callbacks"] = "callbacks are functions: give EarlyStopping as stop"
        elif not callable(callback) or isinstance(callback, type):
            wrong["callbacks"] = not_allowed("callbacks", callback, "a function, or a list of them")
    return wrong


def keeping(given: Mapping[str, object]) -> dict[str, str]:
    """What is wrong with the arguments about a run's folder, and who writes to it."""
    wrong = {}
    save, loggers, jobs = given.get("save"), given.get("loggers", ()), given.get("jobs", 1)
    named = isinstance(save, str | Path) and Path(save).name not in ("", "..")
    if save is not None and not named:
        wrong["save"] = not_allowed("save", save, 'the path of a folder, as "runs/mine"')
    if not isinstance(overwrite := given.get("overwrite", False), bool):
        wrong["overwrite"] = not_allowed("overwrite", overwrite, "True or False")
    if not (isinstance(loggers, list | tuple) and all(isinstance(name, str) for name in loggers)):
        wrong["loggers"] = not_allowed("loggers", loggers, 'a list, as ["tensorboard"]')
    if (pause := given.get("checkpoint")) is not None and not fits(pause, NonNegative):
        wrong["checkpoint"] = not_allowed("checkpoint", pause, "number of seconds >= 0")
    if not (isinstance(jobs, int) and jobs >= 1) or jobs is True:
        wrong["jobs"] = not_allowed("jobs", jobs, "whole number >= 1")
    return wrong


def setup(values: Table, problem: Problem) -> Setup:
    """How a call runs its methods."""
    names = {field.name for field in dataclasses.fields(Setup)}
    own = {name: value for name, value in values.items() if name in names}
    own["cohort"], own["reduction"] = sampling(own["cohort"]), robust(own["reduction"])
    own["x0"] = None if own["x0"] is None else first_point(own["x0"], problem)
    return Setup(**own)


def _named(parameters: Mapping[str, object], seed: object) -> dict[str, object]:
    """The parameters of a problem, with the ``seed`` that has another name among the settings."""
    own = parameters if seed is None else {**parameters, "seed": seed}
    return {name: plain(value) for name, value in own.items()}


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
    if "seed" in wrong:
        wrong["problem_seed"] = f"problem_{wrong.pop('seed')}"
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
    """The types and devices of torch, and the types of NumPy, by their names."""
    if isinstance(value, type) and issubclass(value, np.generic):
        return np.dtype(value).name
    if isinstance(value, torch.dtype | torch.device):
        return str(value).removeprefix("torch.")
    return value
