"""Functions and classes of the user's that a spec calls, with the parameters they declare."""

from __future__ import annotations

import dataclasses
import inspect
import typing
from collections.abc import Callable, Collection, Mapping
from typing import Annotated, Literal

from undrift.core.params import alternatives, describe, fits, values

Maker = Callable[..., object]
NAMES = ("name", "file")
"""Keys of a table that calls a function; no parameter can have these names."""


class Unfit(ValueError):
    """A function that no spec can call; the message says why."""


def parameters(maker: Maker, offered: Collection[str] = ()) -> type:
    """A dataclass of what a spec may set of a function, or of the constructor of a class.

    Parameters called as something that is ``offered`` are left out. Raises :class:`Unfit`.
    """
    name = getattr(maker, "__name__", type(maker).__name__)
    try:
        found = inspect.signature(maker).parameters
        function: object = maker
        if isinstance(maker, type):
            function = next(vars(c)["__init__"] for c in maker.__mro__ if "__init__" in vars(c))
        declared = typing.get_type_hints(function, include_extras=True)
    except (TypeError, ValueError, NameError) as error:
        raise Unfit(f"{name} has parameters that cannot be read: {error}") from None
    made: list[tuple[str, object, object]] = []
    for parameter in found.values():
        own = f"the parameter {parameter.name} of {name}"
        if parameter.name in offered:
            continue
        if parameter.kind not in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY):
            raise Unfit(f"{own} has no name that a spec could give: write out every parameter")
        if parameter.name in NAMES:
            raise Unfit(f"{own} is called as a key that every table has: choose another name")
        if parameter.name not in declared:
            raise Unfit(f"{own} has no type: write {parameter.name}: int, or what it is")
        hint = declared[parameter.name]
        if not _in_toml(hint):
            raise Unfit(f"{own} is {describe(hint)}, which no spec can hold: numbers, texts, lists")
        if parameter.default is parameter.empty:
            made.append((parameter.name, hint, dataclasses.field()))
        elif fits(parameter.default, hint):
            made.append((parameter.name, hint, _default(parameter.default)))
        else:
            raise Unfit(f"{own} is {describe(hint)}, but its default is {parameter.default!r}")
    fields = typing.cast("list[tuple[str, type, typing.Any]]", made)
    cls = dataclasses.make_dataclass(name, fields, frozen=True, kw_only=True)
    cls.__doc__ = inspect.getdoc(maker) or ""
    return cls


def takes(maker: Maker, offered: Collection[str]) -> list[str]:
    """Which of the things that are offered a function takes."""
    return [name for name in offered if name in inspect.signature(maker).parameters]


@dataclasses.dataclass(frozen=True)
class UserCall:
    """A function of the user's, and the values that it is called with."""

    file: str
    """Relative to the spec."""
    name: str
    maker: Maker = dataclasses.field(compare=False)
    values: object
    """The parameters that the spec sets."""

    def table(self) -> Mapping[str, object]:
        """What the spec has of it."""
        return {"file": self.file, "name": self.name, **values(self.values)}

    def __call__(self, **offered: object) -> object:
        given = {name: offered[name] for name in takes(self.maker, offered)}
        return self.maker(**given, **values(self.values))


def _default(value: object) -> object:
    if isinstance(value, list):
        return dataclasses.field(default_factory=lambda: list(value))
    return value


def _in_toml(hint: object) -> bool:
    """Whether TOML has values of a type."""
    if choices := alternatives(hint):
        return all(choice is type(None) or _in_toml(choice) for choice in choices)
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin is Annotated:
        return _in_toml(arguments[0])
    if origin is list:
        return _in_toml(arguments[0])
    return origin is Literal or hint in (int, float, str, bool)
