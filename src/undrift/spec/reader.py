"""Reads a spec whole: either it is right, or everything that is wrong with it is listed."""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from copy import deepcopy
from pathlib import Path
from typing import Any

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
from undrift.spec.errors import BadFile, BadSpec, Complaint, Keys, Origin, keys_of
from undrift.spec.schema import (
    PER_METHOD,
    SETTINGS,
    TUNED,
    Entry,
    Label,
    Settings,
    Spec,
    Values,
    path_of,
)
from undrift.spec.space import (
    Several,
    Space,
    Tuning,
    TuningNote,
    called,
    settings,
    spaces,
    whole,
)
from undrift.spec.user_files import NAMES, Code, UserCall, UserFiles, parameters

ITEM = "item"
"""The table that tells what a paper shows with the spec; ``undrift reproduce`` reads it."""
CALLS: Sequence[str] = ("network", "data")
"""Tables that call a function of the user's, for the problem images."""
TABLES = ("problem", *CALLS, "method", "tune")
"""Keys of the top besides the settings."""
SHORT = {"cohort": "size", "best": "metric"}
"""The key of a table that a value alone stands for; of other tables it is their name."""


def load(
    source: str | Path, flags: Iterable[str] = (), code: Code | None = None, tune: bool = False
) -> Spec:
    """Read a spec file; each flag ``KEY=VALUE`` overrides one of its values.

    A method with several values of a hyper-parameter is several methods, or one with spaces where
    it is read to ``tune`` it. The Python files that a spec names are executed; ``code`` is called
    before that, and may raise. Raises :class:`BadSpec`.
    """
    return parse(text_of(source), str(source), flags, code, tune)


def parse(
    text: str,
    source: str = "spec",
    flags: Iterable[str] = (),
    code: Code | None = None,
    tune: bool = False,
) -> Spec:
    """A spec from its text; files of methods are looked for beside ``source``."""
    return Reader(parsed(text, source), Origin(source, text), code, tune).spec(flags)


class Reader:
    """One reading of a document; complaints are gathered until all of it has been read."""

    def __init__(
        self, document: Values, origin: Origin, code: Code | None = None, tune: bool = False
    ):
        self.document = deepcopy(document)  # flags change it in place
        self.origin, self.tune = origin, tune
        found = self.document.get("method")
        self.methods: list[Any] = found if isinstance(found, list) else []
        self.files = UserFiles(Path(origin.source).parent, code)
        self.complaints: list[Complaint] = []

    def spec(self, flags: Iterable[str] = ()) -> Spec:
        """The spec; raises :class:`BadSpec`."""
        kinds = dict[int, type[Method]]()
        for i, table in enumerate(self.methods):
            with self.complaining(("method", i)):
                kinds[i] = self.find("method", table, methods.find, methods.__all__)
        # A flag is for the methods that have its field, so that their classes are needed first.
        for flag in flags:
            self.override(flag, kinds)
        named_calls = [(key, self.call(key)) for key in CALLS if key in self.document]
        calls = {key: call for key, call in named_calls if call}
        problem = self.problem(calls)
        tuning = Tuning()
        with self.complaining(("tune",)):
            tuning = Tuning.read(self.document.get("tune", tuning))
        given = without(self.document, (*TABLES, ITEM))
        top = self.settings(given, (), given.get("batch"))
        for part in top.get("vary", ()):
            if problem and part not in (known := ("draws", *problem.decided)):
                text = f"of {problem.name} seeds decide {' and '.join(known)}"
                self.complain((), {"vary": text})
        clients = getattr(problem, "clients", None)
        entries = dict[str, Entry]()
        for i, kind in kinds.items():
            for table, space in self.settled(i, kind):
                if entry := self.entry(i, table, space, kind, top, clients):
                    if entry.label in entries:
                        text = f"two methods are called {entry.label!r}: give one another label"
                        self.complain(("method", i), {"label": text})
                    entries[entry.label] = entry
        if not self.methods:
            self.complain((), {"method": "no methods: write [[method]], with two brackets"})
        if self.complaints or problem is None:
            raise BadSpec(self.complaints)
        return Spec(
            **top,
            calls=calls,
            problem=problem,
            problem_name=self.document["problem"]["name"],
            problem_file=self.document["problem"].get("file"),
            entries=tuple(entries.values()),
            tune=tuning,
            sources=dict(sorted(self.files.sources.items())),
            origin=self.origin,
        )

    def complain(self, path: Keys, problems: Mapping[str, str]) -> None:
        """About fields of the table at ``path``, written with dots."""
        for field, text in problems.items():
            self.complaints.append(self.origin.complaint((*path, *keys_of(field)), text))

    @contextmanager
    def complaining(self, path: Keys) -> Iterator[None]:
        """What is refused inside is wrong with the table at ``path``."""
        try:
            yield
        except BadParameters as error:
            self.complain(path, error.problems)
        except BadFile as error:
            self.complain(path, {"file": str(error)})
        except ValueError as error:
            self.complain(path, {"name": str(error)})

    def find(
        self, kind: str, table: object, ours: Callable[[str], object], known: Iterable[str]
    ) -> Any:
        """What a table names: in a file of the user's, or among undrift's own."""
        given = table if isinstance(table, dict) else {}
        name = given.get("name")
        if not isinstance(name, str):
            names = f"of {given['file']}" if "file" in given else f"one of {', '.join(known)}"
            raise ValueError(f"{kind} is a table with a name: {names}")
        found = self.files.find(kind, given["file"], name) if "file" in given else ours(name)
        if found is None:
            raise ValueError(unknown(kind, name, known))
        return found

    def settings(self, given: Values, path: Keys, batch: object, partial: bool = False) -> Values:
        """The settings of the top or of a method that are right; the others have complaints."""
        if "objective" in given:
            given = {**given, "objective": self.objective(given["objective"], path)}
        names = [*SETTINGS, *TABLES]
        values, problems = read(Settings, given, kind="key", names=names, partial=partial)
        if problems := problems | conflicts(values, batch):
            self.complain(path, problems)
        return values

    def objective(self, given: object, path: Keys) -> Objective | None:
        """The local loss: a name, or a table with one."""
        table = given if isinstance(given, dict) else {"name": given}
        path = (*path, "objective")
        with self.complaining(path):
            cls = self.find("objective", table, objectives.find, sorted(losses))
            if "file" in table:
                cls.file = str(table["file"])
            found: Objective = made(cls, without(table, NAMES))
            return found
        return None

    def problem(self, calls: Mapping[str, UserCall]) -> named.Named | None:
        """The parameters of the problem, with a network and data of the user's."""
        table, preset = self.document.get("problem", {}), dict[str, object]()
        with self.complaining(("problem",)):
            kind = self.find("problem", table, named.find, named.registry)
            if "file" in table:
                kind = own_problem(kind, parameters(kind, (OBJECTIVE,)))
            else:
                kind, preset = kind
            if calls and kind is not named.Images:
                raise ValueError("[network] and [data] go with the problem images alone")
            if calls:
                network, data = calls.get("network"), calls.get("data")
                both = (("model", network), ("data", data))
                kind = own_images(network, data, {at: call.name for at, call in both if call})
            values = preset | without(table, NAMES)
            found: named.Named = made(kind, values, kind=f"parameter of {kind.name}")
            return found.beside(self.files.folder)
        return None

    def call(self, key: str) -> UserCall | None:
        """A network or data of the user's with its parameters."""
        table = self.document[key]
        given = {"file": None, **table} if isinstance(table, dict) else table
        with self.complaining((key,)):
            # Undrift has none of its own.
            maker = self.find(key, given, dict[str, object]().get, ["the functions of a file"])
            values: object = made(parameters(maker, OF_IMAGES), without(table, NAMES))
            return UserCall(table["file"], maker.__name__, maker, values)
        return None

    def settled(self, i: int, kind: type[Method]) -> Iterator[tuple[Values, Space]]:
        """The table of the i-th method with one value for each number: one for each setting of its
        grid, or where it is tuned the first one and its spaces.
        """
        table, space = self.methods[i], dict[str, Several]()
        written = spaces(table, kind)
        for name, value in written.items():
            with self.complaining(("method", i, name)):
                found = Several.read(value)
                if not self.tune and found.grid() is None:
                    text = "give n, the number of values; undrift tune draws them"
                    raise BadParameters(name, {"n": f"{name}: {text}"})
                space[name] = found
        if len(space) < len(written):  # and there are complaints
            return
        if self.tune or not space:
            first = {name: whole(name, kind, some.ends[0]) for name, some in space.items()}
            yield table | first, space
        else:
            label = str(table.get("label", kind.__name__))
            for setting in settings(space, kind):
                yield table | setting | {"label": called(label, setting)}, {}

    def entry(
        self,
        i: int,
        table: Values,
        space: Space,
        kind: type[Method],
        top: Values,
        clients: int | None,
    ) -> Entry | None:
        """The i-th method: how it trains is as the top has it, but for what its own table has."""
        given = {key: table[key] for key in PER_METHOD if key in table}
        if isinstance(given.get("training"), dict):
            given["training"] = vars(top.get("training", PLAIN)) | given["training"]
        batch = given.get("batch", top.get("batch"))
        own = self.settings(given, ("method", i), batch, partial=True)
        used = top | ({"steps": 1} if "epochs" in given else {}) | own
        if "steps" in given:
            used["epochs"] = None
        label = table.get("label", kind.__name__)
        if not fits(label, Label):
            self.complain(("method", i), {"label": not_allowed("label", label, describe(Label))})
        with self.complaining(("method", i)):
            names = [*hints(kind), *PER_METHOD, "label"]
            rest = without(table, (*PER_METHOD, *NAMES, "label", TUNED))
            method = made(kind, rest, names=names)
            options = RunOptions(**{name: used[name] for name in hints(RunOptions) if name in used})
            for field, text in refuse(method, options, clients):
                self.complaints.append(self.origin.complaint(path_of(field, i, table), text))
            return Entry(
                label=str(label),
                method=method,
                rounds=used.get("rounds", 0),  # refused if it is missing
                options=options,
                objective=used.get("objective"),
                given=table,
                space=space,
                place=i,
                tuned=TuningNote.read(table[TUNED]) if TUNED in table else None,
            )
        return None

    def override(self, flag: str, kinds: Mapping[int, type[Method]]) -> None:
        """Change the document as a flag ``KEY=VALUE`` says.

        A key that nobody knows is set like any other: it is refused where the document is read, and
        the flag is blamed.
        """
        key, equals, text = flag.partition("=")
        path, written = tuple(part.strip() for part in key.split(".")), f"-s {flag:.300}"
        try:
            if not equals:
                raise ValueError("not KEY=VALUE, as rounds=50")
            where, path = self.targets(path, kinds)
            for i in where:
                table = self.document if i is None else self.methods[i]
                _set(table, path, _value(text))
                self.origin.flags[path if i is None else ("method", i, *path)] = written
        except ValueError as error:
            self.complaints.append(Complaint(path, str(error), written))

    def targets(
        self, path: tuple[str, ...], kinds: Mapping[int, type[Method]]
    ) -> tuple[Sequence[int | None], tuple[str, ...]]:
        """The methods that a flag changes, or only ``None`` for the top; and its path in there."""
        fields = {i: [*hints(kind), *PER_METHOD] for i, kind in kinds.items()}
        names = dict.fromkeys(name for known in fields.values() for name in known)
        if path[0] != "method":
            if len(path) == 1 and path[0] not in SETTINGS and path[0] in names:
                raise ValueError(f"unknown key {path[0]!r}; did you mean method.{path[0]}?")
            return [None], path
        labels = {str(self.methods[i].get("label", k.__name__)): i for i, k in kinds.items()}
        chosen, rest = [*kinds], path[1:]
        if len(rest) > 1 and rest[0] in labels:
            chosen, rest = [labels[rest[0]]], rest[1:]
        found = [i for i in chosen if rest and rest[0] in fields[i]]
        if not found:
            name = ".".join(rest)
            raise ValueError(unknown("parameter of the methods", name, [*names, *labels]))
        return found, rest


def without(table: Values, keys: Collection[str]) -> Values:
    """The other keys of a table."""
    return {key: value for key, value in table.items() if key not in keys}


def _value(text: str) -> object:
    """The value of a flag: TOML, or else text, as a name or a path."""
    try:
        parsed = tomllib.loads(f"value = {text}")
    except (ValueError, RecursionError):
        parsed = {}
    return parsed["value"] if len(parsed) == 1 else text.strip()


def _set(table: Values, path: Sequence[str], value: object) -> None:
    """Set the value at ``path``; a value on the way there becomes the table that it stands for."""
    for key in path[:-1]:
        inner = table.get(key)
        if not isinstance(inner, dict):
            inner = {} if inner is None else {SHORT.get(key, "name"): inner}
        table[key] = inner
        table = inner
    table[path[-1]] = value
