"""The arguments of ``undrift.run``, checked like the settings of a spec and in the same words."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import numpy as np
import torch

from undrift.core.method import Method
from undrift.core.options import RunOptions, conflicts
from undrift.core.params import (
    BadParameters,
    Natural,
    NonNegative,
    check,
    describe,
    fits,
    hints,
    not_allowed,
    plain,
    read,
    unknown,
)
from undrift.core.problem import Problem
from undrift.core.schedules import Computed
from undrift.engines.arguments import first_point, not_methods
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
    """``given`` as the settings of a spec declare it, with the ``parameters`` of a problem.

    Raises :class:`BadParameters` with everything that is wrong with a call.
    """
    seed, seeds = plain(given["seed"]), given.get("seeds")
    asked = {name: _name(value) for name, value in given.items() if name in hints(Settings)}
    asked["seeds"] = [seed] if seeds is None else seeds
    settings, wrong = read(Settings, asked, kind="setting", partial=True)
    wrong |= conflicts(asked, asked["batch"]) | keeping(given)
    for method in methods:
        wrong |= not_methods(method, problem)
    if seeds is None and "seeds" in wrong:
        wrong["seed"] = not_allowed("seed", seed, describe(Natural))
        del wrong["seeds"]
    elif seeds is not None and seed != 0:
        wrong["seeds"] = "give seed or seeds, not both"
    if "device" in settings and (text := absent(settings["device"])):
        wrong["device"] = text
    for name in ("until", "watch", "on_event"):
        if given.get(name) is not None and not callable(given[name]):
            wrong[name] = not_allowed(name, given[name], "a function")
    callbacks = given.get("callbacks", ())
    several = isinstance(callbacks, list | tuple)
    settings["callbacks"] = callbacks if several else [callbacks]
    if not all(map(_is_function, settings["callbacks"])):
        wrong["callbacks"] = not_allowed("callbacks", callbacks, "a function, or a list of them")
    own = {} if given["problem_seed"] is None else {"seed": given["problem_seed"]}
    settings["parameters"] = plain({**parameters, **own})
    if "problem" not in wrong and not isinstance(problem, Method):
        wrong |= _about(problem, settings["parameters"], [*given])
    if wrong:
        raise BadParameters("run", wrong)
    schedule = settings["schedule"]
    if isinstance(schedule, Computed):  # by its factors, which folders and other processes can have
        settings["schedule"] = schedule.listed(settings["rounds"])
    others = {name: given.get(name) for name in ("x0", "until", "store")}
    return {"stop": None, "best": None, **settings, **others}


def _is_function(value: object) -> bool:
    return callable(value) and not isinstance(value, type)


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
    own = {name: values[name] for name in (*hints(RunOptions), "engine")}
    x0 = None if values["x0"] is None else first_point(values["x0"], problem)
    return Setup(**own, x0=x0, own=engine_options(values))


def engine_options(values: Table) -> Values:
    """The options of a call that its engine alone takes."""
    return {} if values["store"] == "auto" else {"store": values["store"]}


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
    """Types and devices of torch, and types of NumPy, by their names."""
    if isinstance(value, type) and issubclass(value, np.generic):
        return np.dtype(value).name
    if isinstance(value, torch.dtype | torch.device):
        return str(value).removeprefix("torch.")
    return value
