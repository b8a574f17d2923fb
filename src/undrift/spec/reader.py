"""Reads a spec whole: either it is right, or everything that is wrong with it is listed."""

from __future__ import annotations

import tomllib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import cast

from undrift import methods, objectives
from undrift.core.method import Method
from undrift.core.options import PLAIN, RunOptions, conflicts, refuse
from undrift.core.params import (
    BadParameters,
    describe,
    fits,
    hints,
    made,
    not_allowed,
    read,
    unknown,
)
from undrift.objectives import Objective
from undrift.objectives.base import registry as losses
from undrift.problems import named
from undrift.problems.by_file import OBJECTIVE, OF_IMAGES, own_images, own_problem
from undrift.spec.document import parsed
from undrift.spec.document import read as text_of
from undrift.spec.errors import BadFile, BadSpec, Complaint, Keys, Origin
from undrift.spec.schema import PER_METHOD, SETTINGS, Entry, Label, Settings, Spec, Values, path_of
from undrift.spec.user_files import NAMES, Code, UserCall, UserFiles, parameters

ITEM = "item"
"""The table that tells what a paper shows with the spec; ``undrift reproduce`` reads it."""
CALLS: Sequence[str] = ("network", "data")
"""Tables that call a function of the user's, for the problem images."""
TABLES = ("problem", *CALLS, "method")
"""Keys of the top besides the settings."""
SHORT = {"cohort": "size", "best": "metric"}
"""The key of a table that a value alone stands for; of other tables it is their name."""


def load(source: str | Path, flags: Iterable[str] = (), code: Code | None = None) -> Spec:
    """Read a spec file; each flag ``KEY=VALUE`` overrides one of its values.

    The Python files that a spec names are executed; ``code`` is called before that, and may raise.
    Raises :class:`BadSpec`.
    """
    return parse(text_of(source), str(source), flags, code)


def parse(
    text: str, source: str = "spec", flags: Iterable[str] = (), code: Code | None = None
) -> Spec:
    """A spec from its text; files of methods are looked for beside ``source``."""
    return interpret(parsed(text, source), Origin(source, text), flags, code)


def interpret(
    document: Values, origin: Origin, flags: Iterable[str] = (), code: Code | None = None
) -> Spec:
    """A spec from its document, which is not changed."""
    return Reader(document, origin, code).spec(flags)


class Reader:
    """One reading of a document; complaints are gathered until all of it has been read."""

    def __init__(self, document: Values, origin: Origin, code: Code | None):
        self.document, self.origin = document, origin
        self.files = UserFiles(Path(origin.source).parent, code)
        self.complaints: list[Complaint] = []

    def spec(self, flags: Iterable[str]) -> Spec:
        """The spec; raises :class:`BadSpec`."""
        kinds = [self.method_kind(i, table) for i, table in enumerate(tables(self.document))]
        # A flag is for the methods that have its field, so that their classes are needed first.
        fields = [[*hints(kind), *PER_METHOD] if kind else [] for kind in kinds]
        self.document, wrong = override(self.document, flags, fields, self.origin)
        self.complaints += wrong
        calls = {key: self.call(key) for key in CALLS if key in self.document}
        problem = self.problem(calls)
        others = (*TABLES, ITEM)
        given = {key: value for key, value in self.document.items() if key not in others}
        top = self.settings(given, (), given.get("batch"))
        for part in top.get("vary", ()):
            if problem and part not in (known := ("draws", *problem.decided)):
                self.complain(("vary",), f"of {problem.name} seeds decide {' and '.join(known)}")
        clients = getattr(problem, "clients", None)
        entries = [
            self.entry(i, kind, table, top, clients) if kind else None
            for i, (kind, table) in enumerate(zip(kinds, tables(self.document), strict=False))
        ]
        labels = [entry and entry.label for entry in entries]
        for i, label in enumerate(labels):
            if label and label in labels[:i]:
                text = f"two methods are called {label!r}: give one another label"
                self.complain(("method", i, "label"), text)
        if not kinds:
            self.complain(("method",), "no methods: write [[method]], with two brackets")
        if self.complaints or problem is None:
            raise BadSpec(self.complaints)
        sources = {file: plugin.source for file, plugin in self.files.executed.items()}
        return Spec(
            **top,
            calls={key: call for key, call in calls.items() if call},
            problem=problem,
            problem_name=self.document["problem"]["name"],
            problem_file=self.document["problem"].get("file"),
            entries=tuple(entry for entry in entries if entry),
            sources=dict(sorted(sources.items())),
            origin=self.origin,
        )

    def complain(self, path: Keys, text: str) -> None:
        self.complaints.append(self.origin.complaint(path, text))

    @contextmanager
    def complaining(self, path: Keys) -> Iterator[None]:
        """What is refused inside is wrong with the table at ``path``."""
        try:
            yield
        except BadParameters as error:
            self.complaints += self.origin.complaints(path, error.problems)
        except BadFile as error:
            self.complain((*path, "file"), str(error))
        except ValueError as error:
            self.complain((*path, "name"), str(error))

    def settings(self, given: Values, path: Keys, batch: object, partial: bool = False) -> Values:
        """The settings of the top or of a method that are right; the others have complaints."""
        if "objective" in given:
            at = (*path, "objective")
            given = {**given, "objective": self.objective(given["objective"], at)}
        names = [*SETTINGS, *TABLES]
        values, problems = read(Settings, given, kind="key", names=names, partial=partial)
        problems |= conflicts(given, batch)
        self.complaints += self.origin.complaints(path, problems)
        return values

    def objective(self, given: object, path: Keys) -> Objective | None:
        """The local loss: a name, or a table with one."""
        table = dict(given) if isinstance(given, dict) else {"name": given}
        with self.complaining(path):
            name, file = _name("objective", table, losses), table.pop("file", None)
            if file is None:
                cls = objectives.find(name)
            else:
                cls = cast("type[Objective]", self.files.find("objective", file, name))
                cls.file = str(file)
            if cls is None:
                raise ValueError(unknown("objective", name, sorted(losses)))
            del table["name"]
            return made(cls, table)
        return None

    def problem(self, calls: Mapping[str, UserCall | None]) -> named.Named | None:
        """The parameters of the problem, with a network and data of the user's."""
        table, preset = self.document.get("problem"), dict[str, object]()
        with self.complaining(("problem",)):
            name = _name("[problem]", table, named.registry)
            assert isinstance(table, dict)
            if "file" in table:
                maker = self.files.find("problem", table["file"], name)
                kind: type[named.Named] = own_problem(maker, parameters(maker, (OBJECTIVE,)))
            else:
                kind, preset = named.find(name)
            if calls and kind is not named.Images:
                raise ValueError("[network] and [data] go with the problem images alone")
            network, data = calls.get("network"), calls.get("data")
            names = {"model": network.name} if network else {}
            names |= {"data": data.name} if data else {}
            if calls:
                kind = own_images(network, data, names)
            values = preset | {key: value for key, value in table.items() if key not in NAMES}
            return made(kind, values, kind=f"parameter of {kind.name}")
        return None

    def call(self, key: str) -> UserCall | None:
        """A network or data of the user's with its parameters."""
        table = self.document[key]
        with self.complaining((key,)):
            name = _name(f"[{key}]", table, ["the functions of a file"])
            maker = self.files.find(key, table.get("file"), name)
            given = {name: value for name, value in table.items() if name not in NAMES}
            values: object = made(parameters(maker, OF_IMAGES), given)
            return UserCall(table["file"], maker.__name__, maker, values)
        return None

    def method_kind(self, i: int, table: Values) -> type[Method] | None:
        """The class of the i-th method."""
        with self.complaining(("method", i)):
            name = _name("[[method]]", table, methods.__all__)
            if "file" in table:
                return cast("type[Method]", self.files.find("method", table["file"], name))
            if found := methods.find(name):
                return found
            raise ValueError(unknown("method", name, methods.__all__))
        return None

    def entry(
        self, i: int, kind: type[Method], table: Values, top: Values, clients: int | None
    ) -> Entry | None:
        """The i-th method: how it trains is as the top has it, but for what its own table has."""
        path = ("method", i)
        given = {key: table[key] for key in PER_METHOD if key in table}
        if isinstance(given.get("training"), dict):
            given["training"] = vars(top.get("training", PLAIN)) | given["training"]
        own = self.settings(given, path, top.get("batch"), partial=True)
        used = top | ({"steps": 1} if "epochs" in given else {}) | own
        if "steps" in given:
            used["epochs"] = None
        label = table.get("label", kind.__name__)
        if not fits(label, Label):
            self.complain((*path, "label"), not_allowed("label", label, describe(Label)))
        with self.complaining(path):
            others = {k: v for k, v in table.items() if k not in (*PER_METHOD, *NAMES, "label")}
            names = [*hints(kind), *PER_METHOD, "label"]
            method = made(kind, others, names=names, theory=True)
            options = RunOptions(**{name: used[name] for name in hints(RunOptions) if name in used})
            for field, text in refuse(method, options, clients):
                self.complain(path_of(field, i, table), text)
            return Entry(
                label=label,
                method=method,
                rounds=used.get("rounds", 0),  # refused if it is missing
                options=options,
                objective=used.get("objective"),
                given=table,
                file=table.get("file"),
            )
        return None


def _name(what: str, table: object, known: Iterable[str]) -> str:
    """The name that a table has."""
    given = table if isinstance(table, dict) else {}
    if not isinstance(given.get("name"), str):
        names = f"of {given['file']}" if "file" in given else f"one of {', '.join(known)}"
        raise ValueError(f"{what} is a table with a name: {names}")
    return str(given["name"])


def override(
    document: Values,
    flags: Iterable[str],
    fields: Sequence[Sequence[str]],
    origin: Origin,
) -> tuple[Values, list[Complaint]]:
    """``document`` with the changes ``KEY=VALUE`` of ``flags``.

    ``fields`` are what can be set of each method. A key that nobody knows is set like any other: it
    is refused where the document is read, and ``origin`` blames the flag.
    """
    complaints = []
    for flag in flags:
        key, equals, text = flag.partition("=")
        path, written = tuple(part.strip() for part in key.split(".")), f"-s {flag:.300}"
        try:
            if not equals:
                raise ValueError("not KEY=VALUE, as rounds=50")
            for target in _targets(document, path, fields):
                document = _changed(document, target, _value(text))
                origin.flags[target] = written
        except ValueError as error:
            complaints.append(Complaint(path, str(error), written))
    return document, complaints


def tables(document: Values) -> list[Values]:
    """The [[method]]s of a document, if that is what it has under this name."""
    found = document.get("method")
    good = isinstance(found, list) and all(isinstance(table, dict) for table in found)
    return found if isinstance(found, list) and good else []


def _value(text: str) -> object:
    """The value of a flag: TOML, or else text, as a name or a path."""
    try:
        parsed = tomllib.loads(f"value = {text}")
    except (ValueError, RecursionError):
        parsed = {}
    return parsed["value"] if len(parsed) == 1 else text.strip()


def _targets(
    document: Values, path: tuple[str, ...], fields: Sequence[Sequence[str]]
) -> list[Keys]:
    """The places a flag changes: one, or a field of every method that has it."""
    top, *rest = path
    if top != "method" or not rest:
        if len(path) == 1 and top not in SETTINGS and any(top in names for names in fields):
            raise ValueError(f"unknown key {top!r}; did you mean method.{top}?")
        return [path]
    labels = [str(table.get("label", table.get("name"))) for table in tables(document)]
    chosen = [*range(len(labels))]
    if rest[0] in labels and rest[1:]:
        chosen, rest = [labels.index(rest[0])], rest[1:]
    found: list[Keys] = [("method", i, *rest) for i in chosen if rest[0] in fields[i]]
    if not found:
        known = dict.fromkeys([*(name for i in chosen for name in fields[i]), *labels])
        raise ValueError(unknown("parameter of the methods", rest[0], known))
    return found


def _changed(old: object, path: Keys, value: object) -> Values:
    """The table ``old`` with ``value`` at ``path``; nothing is changed in place."""
    key, *rest = path
    table = dict(old) if isinstance(old, dict) else {}
    inner = table.get(str(key))
    if not rest:
        table[str(key)] = value
    elif isinstance(inner, list) and isinstance(rest[0], int):
        changed = _changed(inner[rest[0]], tuple(rest[1:]), value)
        table[str(key)] = [*inner[: rest[0]], changed, *inner[rest[0] + 1 :]]
    else:
        if inner is not None and not isinstance(inner, dict):
            inner = {SHORT.get(str(key), "name"): inner}
        table[str(key)] = _changed(inner, tuple(rest), value)
    return table
