"""Hyper-parameters: their declared ranges, and one shape of complaint for all of them."""

from __future__ import annotations

import dataclasses
import difflib
import inspect
import math
import textwrap
import types
import typing
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache
from itertools import takewhile
from typing import (
    Annotated,
    Any,
    ClassVar,
    Generic,
    Literal,
    NamedTuple,
    Self,
    TypeVar,
    Union,
    overload,
)

LARGEST = 2**63 - 1
"""No whole number is larger: TOML, Parquet and arrays have 64 bits."""
THEORY = "theory"
"""Stands for a number that theory prescribes; the run replaces it."""
AUTO = "auto"
"""Stands for the step that short runs find; the run replaces it."""


@dataclasses.dataclass(frozen=True)
class Range:
    """Numbers between ``low`` and ``high``; an end marked open is excluded."""

    low: float = -math.inf
    high: float = math.inf
    open_low: bool = False
    open_high: bool = False

    def __contains__(self, value: object) -> bool:
        if not isinstance(value, (int, float)):
            return False
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


@dataclasses.dataclass(frozen=True)
class Rule:
    """Values that ``holds`` accepts; ``words`` tell a user which these are."""

    words: str
    holds: Callable[[Any], object]

    def __contains__(self, value: object) -> bool:
        return bool(self.holds(value))

    def __str__(self) -> str:
        return self.words


T = TypeVar("T")

if typing.TYPE_CHECKING:

    class OrAuto(Generic[T]):
        """A step that short runs may find: a number or a word is taken, and read as a number."""

        @overload
        def __get__(self, owner: None, cls: type) -> Self: ...
        @overload
        def __get__(self, owner: object, cls: type) -> T: ...
        def __get__(self, owner: object, cls: type) -> T | Self: ...
        def __set__(self, owner: object, value: T | Literal["auto"]) -> None: ...

    class OrTheory(OrAuto[T]):
        """A number that theory may prescribe."""

        def __set__(self, owner: object, value: T | Literal["theory", "auto"]) -> None: ...

    Positive = float
    NonNegative = float
    Fraction = float
    Probability = float
    BelowOne = float
    Count = int
    Natural = int
else:

    class OrTheory:
        """``OrTheory[Positive]`` is ``Positive``; type checkers also accept "theory" for it.

        Every numeric field takes the word; what has no rule is refused by the run. The mark says
        which fields have one, so that ``Scaffold(lr="theory")`` is checked like any other call.
        """

        def __class_getitem__(cls, kind: object) -> object:
            return kind

    class OrAuto(OrTheory):
        """The same for "auto", which the step of any method may be."""

    Positive = Annotated[float, Range(0, open_low=True)]
    NonNegative = Annotated[float, Range(0)]
    Fraction = Annotated[float, Range(0, 1)]
    Probability = Annotated[float, Range(0, 1, open_low=True)]
    BelowOne = Annotated[float, Range(0, 1, open_high=True)]
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

    def under(self, name: str | int) -> dict[str, str]:
        """The problems as those of a field that holds ``owner``: ``cohort.size``, ``faults.0``."""
        return {f"{name}.{at}".rstrip("."): text for at, text in self.problems.items()}


@contextmanager
def about(owner: str, field: str, before: str = "") -> Iterator[None]:
    """What is refused inside is wrong with ``field``; ``before`` comes before each reason."""
    try:
        yield
    except BadParameters as error:
        if before:
            reasons = {field: before + "; ".join(error.problems.values())}
            raise BadParameters(owner, reasons) from error.__cause__
        raise
    except (ValueError, TypeError) as error:
        raise BadParameters(owner, {field: f"{before}{error}"}) from error.__cause__


def fields(cls: type) -> tuple[dataclasses.Field[object], ...]:
    """The fields of a dataclass."""
    return dataclasses.fields(typing.cast(Any, cls))


_declared: dict[type, Mapping[str, object]] = {}


def hints(cls: type) -> Mapping[str, object]:
    """Field name -> declared type, with its range."""
    if cls not in _declared:
        resolved = typing.get_type_hints(cls, include_extras=True)
        _declared[cls] = types.MappingProxyType({f.name: resolved[f.name] for f in fields(cls)})
    return _declared[cls]


def values(record: object) -> dict[str, Any]:
    """The fields of a record: hyper-parameters of a method, parameters of a problem."""
    return {name: getattr(record, name) for name in hints(type(record))}


def describe(hint: object) -> str:
    """What a field takes, in words."""
    base, allowed, choices = _parts(hint)
    if isinstance(allowed, Rule):
        return allowed.words
    if isinstance(base, type) and issubclass(base, Record):
        names = " or ".join(map(repr, getattr(base, "kinds", ())))
        return " or ".join(filter(None, [base.short, names, "table"]))
    if choices:
        text = " or ".join(describe(choice) for choice in choices if choice is not type(None))
        return f"{text}, or left out" if type(None) in choices else text
    if typing.get_origin(base) is Literal:
        return " or ".join(repr(v) for v in typing.get_args(base))
    if typing.get_origin(base) is list:
        return f"list of {describe(typing.get_args(base)[0])}"
    text = _WORDS.get(base, getattr(base, "__name__", str(base)))
    return f"{text} {allowed}" if allowed else text


def meanings(cls: type) -> dict[str, str]:
    """Field name -> its meaning, from ``Args:`` in the docstrings of ``cls`` and its bases."""
    declared, found = hints(cls), dict[str, str]()
    for part in reversed(cls.__mro__):
        name = ""
        for line in section(part, "Args"):
            if line.startswith(" "):
                found[name] += " " + line.strip()
            else:
                name, _, found[name] = line.partition(": ")
    return {name: text for name, text in found.items() if name in declared}


def section(cls: type, title: str) -> list[str]:
    """The lines of a docstring's section, as ``Args:`` or ``References:``, without their indent."""
    lines = inspect.cleandoc(vars(cls).get("__doc__") or "").splitlines()
    if f"{title}:" not in lines:
        return []
    start = lines.index(f"{title}:") + 1
    inside = takewhile(lambda line: not line or line.startswith(" "), lines[start:])
    return textwrap.dedent("\n".join(inside)).strip().splitlines()


def fits(value: object, hint: object) -> bool:
    """Whether ``value`` is what ``hint`` declares."""
    return _as_declared(value, hint) is not _MISFIT


def alternatives(hint: object) -> tuple[object, ...]:
    """The members of a union; empty for any other type."""
    union = isinstance(hint, types.UnionType) or typing.get_origin(hint) is Union
    return typing.get_args(hint) if union else ()


def numeric(hint: object, *kinds: type) -> bool:
    """Whether the field holds a number (and so may be left to theory), or one of these kinds."""
    base, _, choices = _parts(hint)
    return base in (kinds or (float, int)) or any(numeric(choice, *kinds) for choice in choices)


@cache
def needed(cls: type) -> list[str]:
    """The fields without a default."""
    # A field has one of both at most, so they are the same where both are missing.
    return [field.name for field in fields(cls) if field.default is field.default_factory]


def read(
    cls: type,
    given: Mapping[str, object],
    *,
    kind: str = "parameter",
    names: Iterable[str] | None = None,
    partial: bool = False,
) -> tuple[dict[str, Any], dict[str, str]]:
    """The fields of ``cls`` in a table, as they are declared, and what is wrong with the others.

    The only reader of settings: keywords of Python and tables of TOML both come here, and records
    read their own fields by it. A field of a record inside is named with dots, as ``cohort.size``
    or ``faults.0.rate``. An unknown one is called a ``kind``, and ``names`` are listed instead of
    it, or all fields. With ``partial`` a field may be missing.
    """
    declared, found, problems = hints(cls), dict[str, object](), dict[str, str]()
    theory, step = getattr(cls, "by_theory", False), getattr(cls, "step_field", "")
    for name, value in given.items():
        if name not in declared:
            problems[name] = unknown(kind, name, names or declared)
            continue
        hint = declared[name]
        words = [THEORY] * theory + [AUTO] * (name == step)
        left_open = isinstance(value, str) and value in words and numeric(hint)
        try:
            fitting = value if left_open else _as_declared(value, hint)
        except BadParameters as error:
            problems |= error.under(name)
            continue
        if fitting is _MISFIT:
            most = f", at most {LARGEST}" if _huge(value) else ""
            problems[name] = not_allowed(name, plain(value), _allowed(cls, name) + most)
        else:
            found[name] = fitting
    for name in (name for name in needed(cls) if name not in given and not partial):
        problems[name] = f"{name} is missing: {_allowed(cls, name)}"
        if issubclass(cls, Variant):
            problems[name] += f', as {cls.owner} = {{name = "{cls.name}", {name} = ...}}'
    return found, problems


def _allowed(cls: type, name: str) -> str:
    by_rule, auto = name in vars(cls).get("prescribed", ()), name == getattr(cls, "step_field", "")
    return describe(hints(cls)[name]) + f', or "{THEORY}"' * by_rule + f', or "{AUTO}"' * auto


def made(cls: type[T], given: object, *, kind: str = "", names: Iterable[str] | None = None) -> T:
    """A dataclass from a table of its fields, or itself.

    Raises :class:`BadParameters` with everything that is wrong: by fields, or under "" if all is.
    """
    if isinstance(given, cls):
        return given
    owner = getattr(cls, "owner", "") or cls.__name__
    if not isinstance(given, Mapping):
        text = not_allowed(owner, given, f"{describe(cls)} of {', '.join(hints(cls))}")
        raise BadParameters(owner, {"": text})
    values, problems = read(cls, given, kind=kind or f"parameter of {owner}", names=names)
    if problems:
        raise BadParameters(owner, problems)
    return cls(**values)


_MISFIT = object()
"""Stands for a value that is not what its field declares."""


def _as_declared(value: object, hint: object) -> Any:
    """``value`` as ``hint`` declares it: tables as records, numbers of NumPy's as Python's.

    Raises :class:`BadParameters` about what is inside a record.
    """
    value, (base, allowed, choices) = plain(value), _parts(hint)
    if value is None:
        return None if base is Any or type(None) in choices else _MISFIT
    for choice in choices:
        found = _as_declared(value, choice)
        if found is not _MISFIT:
            return found
    # Numbers first: where lr follows a schedule, a method is made in every round.
    if base is float or base is int:
        good = isinstance(value, int) or (base is float and isinstance(value, float))
        good = good and not isinstance(value, bool) and not _huge(value)
    elif isinstance(base, type) and not isinstance(base, types.GenericAlias):
        if issubclass(base, Record) and not isinstance(value, base):
            return base.read(value)
        if dataclasses.is_dataclass(base) and isinstance(value, Mapping):
            return made(base, value)
        good = isinstance(value, base)
    else:
        value = _as_composed(value, base)
        good = value is not _MISFIT
    return value if good and (allowed is None or value in allowed) else _MISFIT


def _as_composed(value: object, base: object) -> Any:
    """The same for lists, tables, literals and what may be anything."""
    origin, inner = typing.get_origin(base), typing.get_args(base)
    if origin is list and isinstance(value, list | tuple):
        return _all_as_declared(value, inner[0])
    good = base is Any
    if origin is dict and isinstance(value, dict):
        good = all(fits(one, inner[1]) for one in value.values())
    elif origin is Literal:
        good = value in inner and type(value) in map(type, inner)
    return value if good else _MISFIT


def _all_as_declared(values: Sequence[object], hint: object) -> Any:
    found, problems = list[object](), dict[str, str]()
    for i, value in enumerate(values):
        try:
            found.append(_as_declared(value, hint))
        except BadParameters as error:
            problems |= error.under(i)
    if problems:
        raise BadParameters("", problems)
    return _MISFIT if _MISFIT in found else found


def _huge(value: object) -> bool:
    return isinstance(value, int) and abs(value) > LARGEST


class Record:
    """A frozen dataclass that reads and checks its fields when it is made.

    ``owner`` is its name in a spec and in complaints; left out, it is that of its class.
    """

    owner: ClassVar[str] = ""
    short: ClassVar[str] = ""
    """What it can be read from besides a table, in words."""
    by_theory: ClassVar[bool] = False
    """Whether the word "theory" may stand for its numbers."""
    step_field: ClassVar[str] = ""
    """The number that "auto" may stand for; empty where it has none."""

    def __new__(cls, *given: object, **named: object) -> Self:
        # Before the constructor of the dataclass, which would say no more than "unexpected".
        if wrong := named.keys() - hints(cls).keys():
            owner = cls.owner or cls.__name__
            texts = {name: unknown("parameter", name, hints(cls)) for name in sorted(wrong)}
            raise BadParameters(owner, texts)
        return super().__new__(cls)

    def __post_init__(self) -> None:
        found, problems = read(type(self), vars(self), partial=True)
        vars(self).update(found)
        # What theory or short runs have still to set cannot be compared with other fields.
        left = (v for v in found.values() if isinstance(v, str) and v in (THEORY, AUTO))
        if not problems and not (self.by_theory and any(left)):
            problems = self.conditions()
        if problems:
            raise BadParameters(self.owner or type(self).__name__, problems)

    def conditions(self) -> dict[str, str]:
        """Field -> what is wrong with it, given the others."""
        return {}

    @classmethod
    def read(cls, given: object) -> Self:
        """What a setting stands for: itself, a table of its fields, or a short form of that."""
        return made(cls, given)


class Variant(Record):
    """A record of one of several kinds: given by its name, or a table with a name and fields."""

    name: ClassVar[str] = ""
    title: ClassVar[str] = ""
    kinds: ClassVar[Mapping[str, type]]
    """Every kind by name."""

    @classmethod
    def read(cls, given: object) -> Self:
        if isinstance(given, cls):
            return given
        table = dict(given) if isinstance(given, Mapping) else {"name": given}
        name = table.pop("name", None)
        if isinstance(name, str) and name in cls.kinds:
            found: Self = made(cls.kinds[name], table, kind=f"parameter of {name}")
            return found
        text = not_allowed(cls.owner, given, f"{describe(cls)} with a name")
        if isinstance(name, str):
            text = unknown(cls.owner, name, cls.kinds)
        raise BadParameters(cls.owner, {"name" if isinstance(given, Mapping) else "": text})


def not_allowed(name: str, value: object, allowed: str) -> str:
    """The complaint about a value that is out of its range, or of another kind."""
    return f"{name} = {shown(value)} is not allowed: {allowed}"


def shown(value: object) -> str:
    """``repr(value)``, shortened to 80 characters."""
    try:
        text = repr(value)
    except ValueError:  # Python prints no number of thousands of digits
        return "a number of thousands of digits"
    return text if len(text) <= 80 else f"{text[:77]}..."


def unknown(kind: str, name: str, allowed: Iterable[str], most: int | None = None) -> str:
    """The complaint about a name that does not exist, with the nearest one that does.

    Of the names that are allowed it lists ``most``, and how many more there are.
    """
    names = list(allowed)
    near = nearest(name, names)
    hint = f"did you mean {near}? " if near else ""
    listed = ", ".join(names[:most]) or "none"
    more = f" and {len(names[most:])} more" if most is not None and names[most:] else ""
    return f"unknown {kind} {shown(name)}; {hint}allowed: {listed}{more}"


ALSO_CALLED = {
    **dict.fromkeys(("learningrate", "stepsize", "eta", "alpha", "gamma"), "lr"),
    **dict.fromkeys(("optimizer", "optimiser", "local"), "training"),
}
"""Names that others have for a parameter, and ours."""


def nearest(name: str, names: Iterable[str]) -> str | None:
    """The name most like ``name``, if one is close, or the one that it means."""
    folded = {n.casefold(): n for n in names}
    if (ours := ALSO_CALLED.get(fold(name), "")) in folded:
        return ours
    cutoff = 0.6 if len(name) > 2 else 0.5  # of two letters one may be wrong
    near = difflib.get_close_matches(name[:80].casefold(), folded, n=1, cutoff=cutoff)
    return folded[near[0]] if near else None


def no_attribute(module: str, name: str, names: Iterable[str]) -> AttributeError:
    """The error of a module that lacks ``name``."""
    near = nearest(name, names)
    hint = f"; did you mean {near}?" if near else ""
    return AttributeError(f"module {module!r} has no attribute {name!r}{hint}")


def plain(value: object) -> Any:
    """A number or an array of NumPy or torch as Python's own; anything else as it is."""
    return value.tolist() if hasattr(value, "tolist") and not isinstance(value, type) else value


def fold(name: str) -> str:
    """A name without its capitals, dashes and underscores; DANE+ is daneplus."""
    return name.casefold().replace("+", "plus").replace("-", "").replace("_", "")


@cache
def _parts(hint: object) -> tuple[object, Range | Rule | None, tuple[object, ...]]:
    """The type of a field, which of its values are allowed, and the members of a union."""
    if typing.get_origin(hint) is Annotated:
        base, *notes = typing.get_args(hint)
        allowed = notes[0] if isinstance(notes[0], Range | Rule) else None
        return base, allowed, alternatives(base)
    return hint, None, alternatives(hint)


_WORDS: dict[object, str] = {
    float: "number",
    int: "whole number",
    bool: "true or false",
    str: "text",
}
