"""What there is to check in a user's file."""

from __future__ import annotations

import inspect
import typing
from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple

from torch import nn

from undrift.check import battery, networks, objectives, problems
from undrift.check.checks import Check, Result, Thing, results
from undrift.core.problem import Problem
from undrift.problems.by_file import OBJECTIVE, OF_IMAGES, own_problem
from undrift.spec.errors import BadFile
from undrift.spec.user_files import Maker, Plugin, UserCall, parameters


class Checked(NamedTuple):
    """Something of a file, with its checks."""

    name: str
    use: str
    """How a spec beside the file names it."""
    results: Callable[[], Iterator[Result]]


def checked(plugin: Plugin) -> list[Checked]:
    """The methods, problems, networks and objectives of a file. Raises :class:`BadFile`."""
    found = [
        _checked(name, "[[method]]", plugin, cls, battery.CHECKS)
        for name, cls in plugin.methods.items()
    ]
    found += [
        _checked(name, "[objective]", plugin, cls, objectives.CHECKS)
        for name, cls in plugin.objectives.items()
    ]
    try:
        for name, maker in _made(plugin, Problem).items():
            kind = own_problem(maker, declared := parameters(maker, (OBJECTIVE,)))
            declared()
            found.append(_checked(name, "[problem]", plugin, kind, problems.CHECKS))
        for name, maker in _made(plugin, nn.Module).items():
            call = UserCall(plugin.file.name, name, maker, parameters(maker, OF_IMAGES)())
            found.append(_checked(name, "[network]", plugin, call, networks.CHECKS))
    except ValueError as error:
        raise BadFile(plugin.file, str(error)) from None
    except TypeError as error:  # a parameter without a default
        raise BadFile(plugin.file, f"{error}: give every parameter a default") from None
    if not found:
        silent = [
            name
            for name, maker in plugin.makers.items()
            if not isinstance(maker, type) and "return" not in maker.__annotations__
        ]
        kinds = "a method, an objective, a function -> undrift.Problem, or one -> nn.Module" + (
            f"; write -> ud.Problem where {' or '.join(silent)} returns one" * bool(silent)
        )
        raise BadFile(plugin.file, f"defines nothing to check: {kinds}")
    return found


def _checked(
    name: str, table: str, plugin: Plugin, thing: Thing, checks: Mapping[str, Check[Thing]]
) -> Checked:
    use = f"{table} file = {plugin.file.name!r}, name = {name!r}"
    return Checked(name, use, lambda: results(thing, checks))


def _made(plugin: Plugin, cls: type) -> dict[str, Maker]:
    """The functions that say they return a ``cls``; without any, classes that a spec can call."""
    functions, classes = dict[str, Maker](), dict[str, Maker]()
    for name, maker in plugin.makers.items():
        if not isinstance(maker, type):
            returned = typing.get_type_hints(maker).get("return")
            if isinstance(returned, type) and issubclass(returned, cls):
                functions[name] = maker
        elif issubclass(maker, cls) and (
            cls is Problem or "classes" in inspect.signature(maker).parameters
        ):
            try:
                parameters(maker, (OBJECTIVE, *OF_IMAGES))()
            except (ValueError, TypeError):
                continue  # a part of something else
            classes[name] = maker
    return functions or classes
