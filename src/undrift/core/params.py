"""Hyper-parameters: their declared ranges, and one shape of complaint for all of them."""

from __future__ import annotations

import dataclasses
import difflib
import inspect
import math
import types
import typing
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from typing import Annotated, Any, Generic, Literal, NamedTuple, Self, TypeVar, Union, overload

LARGEST = 2**63 - 1
"""No whole number is larger: TOML, Parquet and arrays have 64 bits."""
THEORY = "theory"
"""A numeric hyper-parameter may be given as this word; the run replaces it by the prescribed value.
"""


@dataclasses.dataclass(frozen=True)
class Range:
    """Numbers between ``low`` and ``high``; an end marked open is excluded."""

    low: float = -math.inf
    high: float = math.inf
    open_low: bool = False
    open_high: bool = False

    def __contains__(self, value: float) -> bool:
        above = value > self.low if self.open_low else value >= self.low
        below = value < self.high if self.open_high else value <= self.high
        return above and below and math.isfinite(value)

    def __str__(self) -> str:
        low = f"{'>' if self.open_low else '>='} {self.low:g}"
        high = f"{'<' if self.open_high else '<='} {self.high:g}"
        return (
            " and ".join(s for s, end in ((low, self.low), (high, self.high)) if math.isfinite(end))
            or "finite"
        )


T = TypeVar("T")

if typing.TYPE_CHECKING:

    class OrTheory(Generic[T]):
        """A field that takes a number or the word "theory", and is read as a number."""

        @overload
        def __get__(self, owner: None, cls: type) -> Self: ...
        @overload
        def __get__(self, owner: object, cls: type) -> T: ...
        def __get__(self, owner: object, cls: type) -> T | Self: ...
        def __set__(self, owner: object, value: T | Literal["theory"]) -> None: ...

    Positive = float
    NonNegative = float
    Fraction = float
    Probability = float
    Count = int
    Natural = int
else:

    class OrTheory:
        """``OrTheory[Positive]`` is ``Positive``; type checkers also accept "theory" for it.

        Every numeric field takes the word; what has no rule is refused by the run. The mark says
        which fields have one, so that ``Scaffold(lr="theory")`` is checked like any other call.
        """

        def __class_getitem__(cls, kind: Any) -> Any:
            return kind

    Positive = Annotated[float, Range(0, open_low=True)]
    NonNegative = Annotated[float, Range(0)]
    Fraction = Annotated[float, Range(0, 1)]
    Probability = Annotated[float, Range(0, 1, open_low=True)]
    Count = Annotated[int, Range(1)]
    Natural = Annotated[int, Range(0)]


class Refusal(NamedTuple):
    """Why a method, an engine or a problem cannot run, and the setting that must change.

    ``field`` is the name of the setting: ``steps``, ``weights``, ``decay``, ``cohort``, or, for one
    value inside a table, its dotted name, such as ``cohort.pool``.
    """

    field: str
    text: str


class BadParameters(ValueError):
    """One or more parameters of ``owner`` are wrong; ``problems`` maps each name to its problem."""

    def __init__(self, owner: str, problems: Mapping[str, str]):
        self.owner, self.problems = owner, dict(problems)
        super().__init__("\n".join(f"{owner}: {text}" for text in problems.values()))


def hints(cls: type) -> Mapping[str, Any]:
    """Field name -> declared type, with its range."""
    return _hints(cls)


@cache
def _hints(cls: Any) -> Mapping[str, Any]:
    resolved = typing.get_type_hints(cls, include_extras=True)
    return types.MappingProxyType({f.name: resolved[f.name] for f in dataclasses.fields(cls)})


def describe(hint: Any) -> str:
    """What a field takes, in words."""
    base, allowed = _parts(hint)
    if isinstance(base, types.UnionType) or typing.get_origin(base) is Union:
        return " or ".join(describe(h) for h in typing.get_args(base))
    if typing.get_origin(base) is Literal:
        return " or ".join(repr(v) for v in typing.get_args(base))
    if typing.get_origin(base) is list:
        return f"list of {describe(typing.get_args(base)[0])}"
    word = {
        float: "number",
        int: "whole number",
        bool: "true or false",
        str: "text",
        type(None): "nothing",
    }
    text = word.get(base, getattr(base, "__name__", str(base)))
    return f"{text} {allowed}" if allowed else text


def meanings(cls: type) -> dict[str, str]:
    """What docstrings, also those of bases, say of fields: lines ``name  meaning`` that may go on
    further in.
    """
    fields, found = hints(cls), dict[str, str]()
    for part in reversed(cls.__mro__):
        name = ""
        for line in inspect.cleandoc(part.__doc__ or "").splitlines():
            word, _, rest = line.partition("  ")
            if word in fields and rest:
                name, found[word] = word, rest.strip()
            elif name and line.startswith("  "):
                found[name] += " " + line.strip()
            else:
                name = ""
    return found


def fits(value: Any, hint: Any) -> bool:
    """Whether ``value`` is what ``hint`` declares. Nothing is coerced but int to float."""
    base, allowed = _parts(hint)
    origin = typing.get_origin(base)
    if isinstance(base, types.UnionType) or origin is Union:
        return any(fits(value, h) for h in typing.get_args(base))
    if base is Any:
        return True
    if origin is Literal:
        return any(type(value) is type(v) and value == v for v in typing.get_args(base))
    if origin is list:
        return isinstance(value, (list, tuple)) and all(
            fits(v, typing.get_args(base)[0]) for v in value
        )
    if base is float:
        ok = isinstance(value, (int, float)) and not isinstance(value, bool)
    elif base is int:
        ok = isinstance(value, int) and not isinstance(value, bool)
    else:
        ok = isinstance(value, base)
    return ok and not _huge(value) and (allowed is None or value in allowed)


def numeric(hint: Any) -> bool:
    """Whether the field holds a number (and so may be left to theory)."""
    base, _ = _parts(hint)
    if isinstance(base, types.UnionType) or typing.get_origin(base) is Union:
        return any(numeric(h) for h in typing.get_args(base))
    return base in (float, int)


def check(
    owner: str, cls: type, values: Mapping[str, Any], *, theory: bool = False
) -> dict[str, str]:
    """Problems of ``values`` as arguments of the dataclass ``cls``: unknown, missing and
    out-of-range ones.
    """
    declared = hints(cls)
    problems = {
        name: unknown("parameter", name, declared) for name in values if name not in declared
    }
    for field in dataclasses.fields(cls):
        if field.name not in values:
            if (
                field.default is dataclasses.MISSING
                and field.default_factory is dataclasses.MISSING
            ):
                problems[field.name] = f"{field.name} is missing: {describe(declared[field.name])}"
            continue
        value, hint = values[field.name], declared[field.name]
        if theory and value == THEORY and numeric(hint):
            continue
        if not fits(value, hint):
            most = f", at most {LARGEST}" * _huge(value)
            problems[field.name] = not_allowed(field.name, value, describe(hint) + most)
    return problems


def not_allowed(name: str, value: Any, allowed: str) -> str:
    """The complaint about a value that is out of its range, or of another kind."""
    return f"{name} = {shown(value)} is not allowed: {allowed}"


def shown(value: Any) -> str:
    """A value as it is written, cut short where that is long."""
    try:
        text = repr(value)
    except ValueError:  # Python prints no number of thousands of digits
        return "a number of thousands of digits"
    return text if len(text) <= 80 else f"{text[:77]}..."


def unknown(kind: str, name: str, allowed: Iterable[str]) -> str:
    """The complaint about a name that does not exist, with the nearest one that does."""
    names = list(allowed)
    near = nearest(name, names)
    hint = f"did you mean {near}? " if near else ""
    return f"unknown {kind} {shown(name)}; {hint}allowed: {', '.join(names) or 'none'}"


def nearest(name: str, names: Iterable[str]) -> str | None:
    """Which of ``names`` was meant, if one is close."""
    folded = {n.casefold(): n for n in names}
    near = difflib.get_close_matches(name[:80].casefold(), folded, n=1, cutoff=0.5)
    return folded[near[0]] if near else None


def no_attribute(module: str, name: str, names: Iterable[str]) -> AttributeError:
    """What a module without that name raises."""
    near = nearest(name, names)
    return AttributeError(
        f"module {module!r} has no attribute {name!r}" + f"; did you mean {near}?" * bool(near)
    )


def plain(value: Any) -> Any:
    """NumPy's and torch's numbers and arrays as Python's own, also inside lists and tables; all
    else as it is.
    """
    if isinstance(value, Mapping):
        return {name: plain(inner) for name, inner in value.items()}
    if isinstance(value, Sequence) and not isinstance(value, str):
        return [plain(inner) for inner in value]
    return value.tolist() if hasattr(value, "tolist") and not isinstance(value, type) else value


def fold(name: str) -> str:
    """A name without its capitals, dashes and underscores; DANE+ is daneplus."""
    return name.casefold().replace("+", "plus").replace("-", "").replace("_", "")


def _huge(value: Any) -> bool:
    """Whether a whole number has more than 64 bits, or one of a list."""
    if isinstance(value, (list, tuple)):
        return any(map(_huge, value))
    return isinstance(value, int) and abs(value) > LARGEST


def _parts(hint: Any) -> tuple[Any, Range | None]:
    if typing.get_origin(hint) is Annotated:
        base, *notes = typing.get_args(hint)
        return base, next((n for n in notes if isinstance(n, Range)), None)
    return hint, None
