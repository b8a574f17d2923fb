"""One TOML file says what to run. It is read whole: either it is right, or everything wrong with it is listed."""

from __future__ import annotations

import dataclasses
import difflib
import re
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path as File
from typing import Any, Literal

from undrift import methods
from undrift.core.cohort import Sampling
from undrift.core.costs import placeholder
from undrift.core.method import Method
from undrift.core.params import THEORY, BadParameters, Count, Natural, Positive, check, hints, unknown
from undrift.problems import catalog
from undrift.runs.locate import Path, line_of, locate
from undrift.theory.rules import has_rule

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
DEVICE = re.compile(r"cpu|mps|cuda(:\d+)?")
LABEL = re.compile(r"[^<>&]{1,40}")
WORD = re.compile(r"[A-Za-z][\w.+-]*")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Settings:
    """The top of a spec: what all its methods share."""

    name: str
    rounds: Count
    steps: Count | list[Count] = 1
    cohort: Count | None = None
    batch: Count | None = None
    seeds: list[Natural] = dataclasses.field(default_factory=lambda: [0])
    every: Count = 1
    engine: Literal["simulate", "wire"] = "simulate"
    dtype: Literal["float64", "float32"] = "float64"
    device: str = "cpu"
    target: Positive | None = None


@dataclasses.dataclass(frozen=True, kw_only=True)
class Own:
    """What a [[method]] may say besides its hyper-parameters."""

    label: str | None = None
    rounds: Count | None = None
    steps: Count | list[Count] | None = None


@dataclasses.dataclass(frozen=True)
class Entry:
    """One [[method]], with what it takes from the top of the spec."""

    method: Method
    label: str
    rounds: int
    steps: int | list[int]
    given: Mapping[str, Any]
    """The table as it stands in the spec."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Spec(Settings):
    """A checked spec."""

    problem: Any
    """The parameters of a problem: a dataclass of ``undrift.problems.catalog``."""
    problem_name: str
    entries: tuple[Entry, ...]
    origin: Origin = dataclasses.field(compare=False, repr=False)

    def document(self) -> dict[str, Any]:
        """The spec with every default written out, as TOML holds it."""
        settings = {f.name: getattr(self, f.name) for f in dataclasses.fields(Settings)}
        problem = {"name": self.problem_name, **dataclasses.asdict(self.problem)}
        return _plain(settings | {"problem": problem, "method": [self._table(e) for e in self.entries]})

    def toml(self) -> str:
        """The document as a file."""
        document = self.document()
        problem, tables = document.pop("problem"), document.pop("method")
        parts = [("", document), ("\n[problem]\n", problem), *(("\n[[method]]\n", table) for table in tables)]
        return "".join(head + "".join(_pair(key, value) for key, value in table.items()) for head, table in parts)

    def _table(self, entry: Entry) -> dict[str, Any]:
        own = {key: value for key, value in entry.given.items() if key in ("rounds", "steps")}
        return {"name": type(entry.method).__name__, "label": entry.label, **own, **values(entry.method)}


@dataclasses.dataclass(frozen=True)
class Complaint:
    """One thing that is wrong, and where."""

    where: str
    text: str
    line: int = 0

    def __str__(self) -> str:
        return f"{self.where}: {self.text}"


class BadSpec(ValueError):
    """A spec that cannot be run; ``complaints`` says everything that is wrong with it."""

    def __init__(self, complaints: Sequence[Complaint]):
        self.complaints = sorted(dict.fromkeys(complaints), key=lambda c: c.line)
        super().__init__("\n".join(map(str, self.complaints)))


class Origin:
    """Where each part of a spec was written: a line of a file, or a flag of the command line."""

    def __init__(self, source: str, lines: dict[Path, int]):
        self.source, self.lines = source, lines
        self.flags: dict[Path, str] = {}

    def complaint(self, path: Path, text: str) -> Complaint:
        if path in self.flags:
            return Complaint(f"-s {self.flags[path]}", text)
        line = line_of(self.lines, path)
        return Complaint(f"{self.source}:{line}", text, line)


def load(source: str | File, flags: Sequence[str] = ()) -> Spec:
    """Read a spec file; each flag ``KEY=VALUE`` overrides one of its values. Raises :class:`BadSpec`."""
    file = File(source)
    try:
        text = file.read_bytes().decode()
    except FileNotFoundError:
        near = difflib.get_close_matches(file.name, [f.name for f in file.parent.glob("*.toml")], n=1, cutoff=0.5)
        hint = f"; did you mean {file.parent / near[0]}?" if near else ""
        raise BadSpec([Complaint(str(source), f"there is no such file{hint}")]) from None
    except UnicodeDecodeError as error:
        raise BadSpec([Complaint(str(source), f"not UTF-8 text (byte {error.start})")]) from None
    except OSError as error:
        raise BadSpec([Complaint(str(source), (error.strerror or "cannot be read").lower())]) from None
    return parse(text, str(source), flags)


def parse(text: str, source: str = "spec", flags: Sequence[str] = ()) -> Spec:
    """A spec from its text."""
    try:
        document = tomllib.loads(text)
        lines = locate(text)
    except tomllib.TOMLDecodeError as error:
        place = re.search(r" \(at line (\d+), column (\d+)\)$| \(at end of document\)$", str(error))
        line = place[1] if place and place[1] else str(len(text.splitlines()) or 1)
        message = str(error)[: place.start()] if place else str(error)
        raise BadSpec([Complaint(f"{source}:{line}", f"not TOML: {message}")]) from None
    except RecursionError:
        raise BadSpec([Complaint(source, "not a spec: nested too deeply")]) from None
    return Draft(document, Origin(source, lines)).finish(flags)


def values(method: Method) -> dict[str, Any]:
    """The hyper-parameters of a method."""
    return {name: getattr(method, name) for name in hints(type(method))}


class Draft:
    """A parsed document on its way to a spec; complaints gather until ``finish``."""

    def __init__(self, document: dict[str, Any], origin: Origin):
        self.document, self.origin = document, origin
        self.complaints: list[Complaint] = []
        self.clients: int | None = None

    def finish(self, flags: Sequence[str]) -> Spec:
        for flag in flags:
            self.override(flag)
        settings = self.settings()
        problem_name, problem = self.problem()
        entries = self.entries(settings)
        if self.complaints:
            raise BadSpec(self.complaints)
        return Spec(**settings, problem=problem, problem_name=problem_name, entries=entries, origin=self.origin)

    def complain(self, path: Path, text: str) -> None:
        self.complaints.append(self.origin.complaint(path, text))

    def override(self, flag: str) -> None:
        key, equals, value = flag.partition("=")
        path = tuple(part.strip() for part in key.split("."))
        value = value.strip()
        try:
            parsed = tomllib.loads(f"value = {value}")
            if not equals or len(parsed) != 1:
                raise ValueError
        except ValueError:
            parsed = {"value": value}
            if not WORD.fullmatch(value):
                text = f"not KEY=VALUE with a TOML value, such as {key.strip() or 'rounds'}=50"
                self.complaints.append(Complaint(f"-s {flag}", text))
                return
        for target in self.targets(path, flag):
            table: Any = self.document
            for part in target[:-1]:
                table = table.setdefault(part, {}) if isinstance(table, dict) else table[part]
            table[target[-1]] = parsed["value"]
            self.origin.flags[target] = flag

    def targets(self, path: tuple[str, ...], flag: str) -> list[Path]:
        """The places a flag speaks of: one, or a field of every method that has it."""
        if path[0] == "problem" and len(path) == 2 and isinstance(self.document.get("problem", {}), dict):
            return [path]
        if path[0] == "method" and len(path) == 2:
            fields = {i: [*hints(cls), "rounds", "steps"] for i, cls in enumerate(self.classes()) if cls}
            if found := [i for i, names in fields.items() if path[1] in names]:
                return [("method", i, path[1]) for i in found]
            known = dict.fromkeys(name for names in fields.values() for name in names)
            self.complaints.append(Complaint(f"-s {flag}", unknown("parameter of the methods", path[1], known)))
            return []
        if len(path) == 1 and path[0] not in ("problem", "method"):
            return [path]
        allowed = ["method.FIELD", "problem.PARAMETER", *hints(Settings)]
        self.complaints.append(Complaint(f"-s {flag}", unknown("key", ".".join(path), allowed)))
        return []

    def classes(self) -> list[type[Method] | None]:
        tables = self.document.get("method", [])
        tables = tables if isinstance(tables, list) else []
        names = [table.get("name") if isinstance(table, dict) else None for table in tables]
        return [methods.find(name) if isinstance(name, str) else None for name in names]

    def settings(self) -> dict[str, Any]:
        """The values that are right, and the defaults of the others."""
        given = {key: value for key, value in self.document.items() if key not in ("problem", "method")}
        wrong = check("spec", Settings, given)
        for key in given.keys() - hints(Settings).keys():
            wrong[key] = unknown("key", key, [*hints(Settings), "problem", "method"])
        good = {key: value for key, value in given.items() if key not in wrong}
        name, device, seeds = good.get("name"), good.get("device"), good.get("seeds", [0])
        if name is not None and not NAME.fullmatch(name):
            wrong["name"] = (
                f"name = {name!r} is not allowed: letters, digits, . _ and -, starting with a letter or digit"
            )
        if device is not None and not DEVICE.fullmatch(device):
            wrong["device"] = f"device = {device!r} is not allowed: cpu, cuda, cuda:0 (or another number) or mps"
        if not seeds or len(set(seeds)) < len(seeds):
            wrong["seeds"] = f"seeds = {seeds!r} is not allowed: one or more different whole numbers"
        for key, text in wrong.items():
            self.complain((key,), text)
        return good

    def problem(self) -> tuple[str, Any]:
        table = self.document.get("problem")
        if not isinstance(table, dict):
            self.complain(("problem",), f"[problem] is missing; its name is one of {', '.join(catalog.registry)}")
            return "", None
        name = table.get("name")
        if not isinstance(name, str):
            self.complain(("problem", "name"), f"name is missing: one of {', '.join(catalog.registry)}")
            return "", None
        try:
            cls, preset = catalog.find(name)
        except ValueError as error:
            self.complain(("problem", "name"), str(error))
            return "", None
        values = preset | {key: value for key, value in table.items() if key != "name"}
        wrong = check(name, cls, values)
        for key in values.keys() - hints(cls).keys():
            wrong[key] = unknown(f"parameter of {cls.name}", key, hints(cls))
        if "clients" in hints(cls) and "clients" not in wrong:
            self.clients = values.get("clients", getattr(cls, "clients", None))
        if not wrong:
            try:
                return name, cls(**values)
            except BadParameters as error:
                wrong = error.problems
        for key, text in wrong.items():
            self.complain(("problem", key), text)
        return "", None

    def entries(self, settings: dict[str, Any]) -> tuple[Entry, ...]:
        tables = self.document.get("method")
        if not tables or not isinstance(tables, list) or not all(isinstance(t, dict) for t in tables):
            text = "write [[method]], with two brackets" if tables else "no methods: add a [[method]] with its name"
            self.complain(("method",), text)
            return ()
        made = [self.entry(i, cls, settings) for i, cls in enumerate(self.classes())]
        labels: dict[str, int] = {}
        for i, entry in enumerate(made):
            if entry and labels.setdefault(entry.label, i) != i:
                self.complain(("method", i), f"two methods are called {entry.label!r}: give one another label")
        return tuple(entry for entry in made if entry)

    def entry(self, i: int, cls: type[Method] | None, settings: dict[str, Any]) -> Entry | None:
        table = self.document["method"][i]
        if cls is None:
            name, known = table.get("name"), methods.__all__
            missing = f"name is missing: one of {', '.join(known)}"
            self.complain(("method", i, "name"), missing if name is None else unknown("method", str(name), known))
            return None
        own = {key: value for key, value in table.items() if key in hints(Own)}
        values = {key: value for key, value in table.items() if key != "name" and key not in own}
        wrong = self.wrong(cls, own, values)
        try:
            method = placeholder(cls) if wrong else cls(**values)
        except BadParameters as error:
            method, wrong = placeholder(cls), error.problems
        for key, text in wrong.items():
            self.complain(("method", i, key), text)
        good = settings | {key: value for key, value in own.items() if key not in wrong}
        steps = good.get("steps", 1)
        self.refusals(i, method, steps, good)
        if wrong:
            return None
        return Entry(method, good.get("label", cls.__name__), good.get("rounds", 1), steps, table)

    def wrong(self, cls: type[Method], own: dict[str, Any], values: dict[str, Any]) -> dict[str, str]:
        """Key -> what is wrong with it, in one [[method]]."""
        wrong = check("method", Own, own) | check(cls.__name__, cls, values, theory=True)
        for key in values.keys() - hints(cls).keys():
            wrong[key] = unknown(f"parameter of {cls.__name__}", key, [*hints(cls), *hints(Own)])
        for key, value in values.items():
            if value == THEORY and key not in wrong and not has_rule(cls.__name__, key):
                wrong[key] = f"no theory prescribes {key} of {cls.__name__}: give it as a number"
        label = own.get("label", cls.__name__)
        if "label" not in wrong and not (label.isprintable() and LABEL.fullmatch(label)):
            wrong["label"] = f"label = {label!r} is not allowed: 1 to 40 printable characters, none of < > &"
        return wrong

    def refusals(self, i: int, method: Method, steps: int | list[int], settings: dict[str, Any]) -> None:
        """What the method itself refuses, where the number of clients is known."""
        if self.clients is None:
            return
        each = [steps] * self.clients if isinstance(steps, int) else steps
        own = ("method", i, "steps")
        at: Path = own if "steps" in self.document["method"][i] else ("steps",)
        for reason in method.refuse(self.clients, Sampling(settings.get("cohort", self.clients)), each):
            self.complain(("cohort",) if "cohort" in reason else at, reason)


def _plain(value: Any) -> Any:
    """Only what TOML holds: no tuples, and nothing for None."""
    if isinstance(value, Mapping):
        return {key: _plain(inner) for key, inner in value.items() if inner is not None}
    if isinstance(value, (list, tuple)):
        return [_plain(inner) for inner in value]
    return value


def _pair(key: str, value: Any) -> str:
    import tomli_w

    if isinstance(value, list):
        items = (tomli_w.dumps({"item": item}).removeprefix("item = ").strip() for item in value)
        return f"{key} = [{', '.join(items)}]\n"
    return tomli_w.dumps({key: value})
