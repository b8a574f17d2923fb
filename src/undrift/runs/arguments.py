"""What ``undrift.run`` is given, held to the declarations of specs and in their words."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch

from undrift.core.method import Method
from undrift.core.params import BadParameters, check, hints, plain, unknown
from undrift.engines.arguments import Setting, refusals
from undrift.problems import named as catalog
from undrift.spec.device import absent
from undrift.spec.schema import Settings


def settle(
    method: Any, problem: Any, given: Mapping[str, Any], parameters: Mapping[str, Any]
) -> dict[str, Any]:
    """``given`` as Python's own numbers and names; :class:`BadParameters` with all that is wrong
    with a call.

    ``parameters`` are those of a problem that is named.
    """
    parameters = named(parameters, given["problem_seed"])
    values = {name: value if name == "x0" else _name(plain(value)) for name, value in given.items()}
    engine = {name: value for name, value in values.items() if name in hints(Setting)}
    other = {
        name: value
        for name, value in values.items()
        if name in hints(Settings) and name not in engine
    }
    wrong = refusals(method, problem, engine)
    wrong |= {name: text for name, text in check("run", Settings, other).items() if name in other}
    if "device" not in wrong and (text := absent(values["device"])):
        wrong["device"] = text
    for name in ("until", "watch"):
        if values.get(name) is not None and not callable(values[name]):
            wrong[name] = f"{name} = {values[name]!r} is not allowed: a function of a row"
    if "problem" not in wrong and not isinstance(problem, Method):
        wrong |= _about(problem, parameters, [*given])
    if wrong:
        raise BadParameters("run", wrong)
    return values


def named(parameters: Mapping[str, Any], seed: Any) -> dict[str, Any]:
    """The parameters of a problem, with the ``seed`` that has another name among the settings."""
    own = parameters if seed is None else {**parameters, "seed": seed}
    return {name: plain(value) for name, value in own.items()}


def _about(problem: Any, parameters: dict[str, Any], settings: list[str]) -> dict[str, str]:
    """What is wrong with the parameters of a problem; a misspelt setting is among them."""
    if isinstance(problem, str):
        wrong = _named(problem, parameters, settings)
    else:
        known = {name for kind in catalog.registry.values() for name in hints(kind)}
        ready = "goes with the name of a problem, not with a ready one"
        wrong = {
            n: f"{n} {ready}" if n in known else unknown("setting", n, settings) for n in parameters
        }
    if "seed" in wrong:
        wrong["problem_seed"] = f"problem_{wrong.pop('seed')}"
    return wrong


def _named(problem: str, parameters: dict[str, Any], settings: list[str]) -> dict[str, str]:
    try:
        kind, preset = catalog.find(problem)
    except ValueError as error:
        return {"problem": str(error)}
    wrong = check(problem, kind, preset | parameters)
    for name in parameters.keys() - hints(kind).keys():
        own = [name for name in hints(kind) if name != "seed"]
        wrong[name] = unknown(f"setting or parameter of {problem}", name, [*own, *settings])
    if not wrong:
        try:
            kind(**preset | parameters)
        except BadParameters as error:
            wrong = error.problems
    return wrong


def _name(value: Any) -> Any:
    """torch's types and devices, and NumPy's types, by their names."""
    if isinstance(value, type) and issubclass(value, np.generic):
        return np.dtype(value).name
    return (
        str(value).removeprefix("torch.")
        if isinstance(value, torch.dtype | torch.device)
        else value
    )
