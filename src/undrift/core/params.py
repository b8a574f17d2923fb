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


def hints(cls: type) -> Mapping[str, object]:
    """Field name -> declared type, with its range."""
    return _hints(cls)


@cache
def _hints(cls: type) -> Mapping[str, object]:
    resolved = typing.get_type_hints(cls, include_extras=True)
    return types.MappingProxyType({f.name: resolved[f.name] for f in fields(cls)})


def values(record: object) -> dict[str, Any]:
    """The fields of a record: hyper-parameters of a method, parameters of a problem."""
    return {name: getattr(record, name) for name in hints(type(record))}


def describe(hint: object) -> str:
    """What a field takes, in words."""
    base, allowed, choices = _parts(hint)
    if isinstance(allowed, Rule):
        return allowed.words
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
    """Whether ``value`` is what ``hint`` declares. Only int is converted, to float."""
    base, allowed, choices = _parts(hint)
    if choices:
        return any(fits(value, choice) for choice in choices)
    return _kind(value, base) and not _huge(value) and (allowed is None or value in allowed)


def _kind(value: object, base: object) -> bool:
    """Whether ``value`` is of the kind ``base``, whatever its range."""
    origin, arguments = typing.get_origin(base), typing.get_args(base)
    if origin is Literal:
        return any(type(value) is type(v) and value == v for v in arguments)
    if origin is list:
        return isinstance(value, (list, tuple)) and all(fits(v, arguments[0]) for v in value)
    if origin is dict:
        return isinstance(value, dict) and all(fits(v, arguments[1]) for v in value.values())
    if base is Any or base is object:
        return True
    if base in (float, int):
        numbers = (int, float) if base is float else int
        return isinstance(value, numbers) and not isinstance(value, bool)
    return isinstance(base, type) and isinstance(value, base)


def alternatives(hint: object) -> tuple[object, ...]:
    """The members of a union; empty for any other type."""
    union = isinstance(hint, types.UnionType) or typing.get_origin(hint) is Union
    return typing.get_args(hint) if union else ()


def numeric(hint: object) -> bool:
    """Whether the field holds a number (and so may be left to theory)."""
    base, _, choices = _parts(hint)
    return base in (float, int) or any(map(numeric, choices))


@cache
def needed(cls: type) -> frozenset[str]:
    """The fields without a default."""
    # A field has one of both at most, so they are the same where both are missing.
    return frozenset(field.name for field in fields(cls) if field.default is field.default_factory)


def check(
    cls: type,
    values: Mapping[str, object],
    *,
    theory: bool = False,
    kind: str = "parameter",
    names: Iterable[str] | None = None,
    partial: bool = False,
) -> dict[str, str]:
    """Problems of ``values`` as arguments of the dataclass ``cls``: unknown, missing, out of range.

    An unknown one is called a ``kind``, and ``names`` are listed instead of it, or all fields. With
    ``partial`` a field may be missing.
    """
    declared = hints(cls)
    problems = {
        name: unknown(kind, name, names or declared) for name in values if name not in declared
    }
    for name, hint in declared.items():
        value = values.get(name)
        missing = name not in values
        left_to_theory = theory and value == THEORY and numeric(hint)
        if missing and (partial or name not in needed(cls)):
            continue
        if not missing and (left_to_theory or fits(value, hint)):
            continue
        by_theory = theory and name in vars(cls).get("prescribed", ())
        allowed = describe(hint) + (f', or "{THEORY}"' if by_theory else "")
        if missing:
            problems[name] = f"{name} is missing: {allowed}"
        else:
            counts = numeric(hint) or isinstance(value, list)
            most = f", at most {LARGEST}" if counts and _huge(value) else ""
            problems[name] = not_allowed(name, value, allowed + most)
    return problems


def read(
    cls: type,
    given: Mapping[str, object],
    *,
    theory: bool = False,
    kind: str = "parameter",
    names: Iterable[str] | None = None,
    partial: bool = False,
) -> tuple[dict[str, Any], dict[str, str]]:
    """The fields of ``cls`` in a table, as they are declared, and what is wrong with the others.

    The only reader of settings: keywords of Python and tables of TOML both come here. A field of a
    record inside is named with dots, as ``cohort.size`` or ``faults.0.rate``. The options are those
    of :func:`check`.
    """
    declared, values, problems = hints(cls), dict[str, object](), dict[str, str]()
    for name, value in given.items():
        try:
            values[name] = _as_declared(declared.get(name), plain(value))
        except BadParameters as error:
            problems |= {f"{name}.{at}".rstrip("."): text for at, text in error.problems.items()}
            values[name] = None
    bad = {name.partition(".")[0] for name in problems}
    wrong = check(cls, values, theory=theory, kind=kind, names=names, partial=partial)
    problems |= {name: text for name, text in wrong.items() if name not in bad}
    return {n: v for n, v in values.items() if n not in bad and n not in wrong}, problems


def made(
    cls: type[T],
    given: object,
    *,
    theory: bool = False,
    kind: str = "",
    names: Iterable[str] | None = None,
) -> T:
    """A dataclass from a table of its fields, or itself.

    Raises :class:`BadParameters` with everything that is wrong: by fields, or under "" if all is.
    """
    if isinstance(given, cls):
        return given
    owner = getattr(cls, "owner", "") or cls.__name__
    if not isinstance(given, Mapping):
        text = not_allowed(owner, given, f"a table of {', '.join(hints(cls))}")
        raise BadParameters(owner, {"": text})
    kind = kind or f"parameter of {owner}"
    values, problems = read(cls, given, theory=theory, kind=kind, names=names)
    if not problems:
        try:
            return cls(**values)
        except BadParameters as error:
            problems = error.problems
    raise BadParameters(owner, problems)


def _as_declared(hint: object, value: object) -> object:
    """``value`` with the tables in it turned into the records that ``hint`` declares."""
    if value is None:
        return None
    for choice in _parts(hint)[2] or (hint,):
        if isinstance(choice, type) and issubclass(choice, Record):
            return choice.read(value)
        if isinstance(choice, type) and dataclasses.is_dataclass(choice):
            return made(choice, value) if isinstance(value, Mapping) else value
        if typing.get_origin(choice) is list and isinstance(value, list | tuple):
            return _all_as_declared(typing.get_args(choice)[0], value)
    return value


def _all_as_declared(hint: object, values: Sequence[object]) -> list[object]:
    found, problems = list[object](), dict[str, str]()
    for i, value in enumerate(values):
        try:
            found.append(_as_declared(hint, value))
        except BadParameters as error:
            problems |= {f"{i}.{at}".rstrip("."): text for at, text in error.problems.items()}
    if problems:
        raise BadParameters("", problems)
    return found


class Record:
    """A frozen dataclass that is checked when it is made.

    ``owner`` is its name in a spec and in complaints; left out, it is that of its class.
    """

    owner: ClassVar[str] = ""

    def __post_init__(self) -> None:
        if problems := check(type(self), values(self)) or self.conditions():
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
        example = repr(next(iter(cls.kinds)))
        text = not_allowed(cls.owner, given, f"a name, as {example}, or a table with one")
        if isinstance(name, str):
            text = unknown(cls.owner, name, cls.kinds)
        elif name is None:
            text = f"the name of the {cls.owner} is missing, as {example}"
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


def nearest(name: str, names: Iterable[str]) -> str | None:
    """The name most like ``name``, if one is close."""
    folded = {n.casefold(): n for n in names}
    cutoff = 0.6 if len(name) > 2 else 0.5  # of two letters one may be wrong
    near = difflib.get_close_matches(name[:80].casefold(), folded, n=1, cutoff=cutoff)
    return folded[near[0]] if near else None


def no_attribute(module: str, name: str, names: Iterable[str]) -> AttributeError:
    """The error of a module that lacks ``name``."""
    near = nearest(name, names)
    hint = f"; did you mean {near}?" if near else ""
    return AttributeError(f"module {module!r} has no attribute {name!r}{hint}")


def plain(value: object) -> Any:
    """``value`` with the numbers and arrays of NumPy and torch in it turned into Python's own."""
    if isinstance(value, Mapping):
        return {name: plain(inner) for name, inner in value.items()}
    if isinstance(value, Sequence) and not isinstance(value, str | bytes):
        return [plain(inner) for inner in value]
    return value.tolist() if hasattr(value, "tolist") and not isinstance(value, type) else value


def fold(name: str) -> str:
    """A name without its capitals, dashes and underscores; DANE+ is daneplus."""
    return name.casefold().replace("+", "plus").replace("-", "").replace("_", "")


def _huge(value: object) -> bool:
    """Whether a whole number, or one in a list, has more than 64 bits."""
    if isinstance(value, (list, tuple)):
        return any(map(_huge, value))
    return isinstance(value, int) and abs(value) > LARGEST


@cache
def _parts(hint: object) -> tuple[object, Range | Rule | None, tuple[object, ...]]:
    """The type of a field, which of its values are allowed, and the members of a union."""
    if typing.get_origin(hint) is Annotated:
        base, *notes = typing.get_args(hint)
        allowed = next((n for n in notes if isinstance(n, Range | Rule)), None)
        return base, allowed, alternatives(base)
    return hint, None, alternatives(hint)


_WORDS: dict[object, str] = {
    float: "number",
    int: "whole number",
    bool: "true or false",
    str: "text",
}
