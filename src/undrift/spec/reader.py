"""Reads a spec whole: either it is right, or everything that is wrong with it is listed."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence
from pathlib import Path

from undrift import methods, objectives
from undrift.core.costs import placeholder
from undrift.core.method import Method
from undrift.core.options import RunOptions, conflicts, refuse
from undrift.core.params import THEORY, check, hints, numeric, unknown
from undrift.engines.named import registry as engines
from undrift.objectives import Objective
from undrift.objectives.base import registry as losses
from undrift.problems.named import Named, registry
from undrift.spec.document import parsed, read
from undrift.spec.errors import BadSpec, Complaints, Origin
from undrift.spec.lines import Keys
from undrift.spec.overrides import Flag, override, tables
from undrift.spec.problem_table import ProblemReader
from undrift.spec.schema import (
    SETTINGS,
    TRAINING,
    Entry,
    MethodSettings,
    Settings,
    Spec,
    Values,
    path_of,
)
from undrift.spec.structure import fields, structure
from undrift.spec.user_files import Code, Own, judge_file, labels_by_file, load_files, own_tables
from undrift.theory import has_rule

ITEM = "item"
"""The table that tells what a paper shows with the spec; ``undrift reproduce`` reads it."""
OWN = ("name", "label", "file")
"""Keys of a [[method]] besides its training and its hyper-parameters."""


def load(source: str | Path, flags: Iterable[str | Flag] = (), code: Code | None = None) -> Spec:
    """Read a spec file; each flag ``KEY=VALUE`` overrides one of its values.

    The Python files that a spec names are executed; ``code`` is called before that, and may raise.
    Raises :class:`BadSpec`.
    """
    return parse(read(source), str(source), flags, code)


def parse(
    text: str, source: str = "spec", flags: Iterable[str | Flag] = (), code: Code | None = None
) -> Spec:
    """A spec from its text; files of methods are looked for beside ``source``."""
    return interpret(parsed(text, source), Origin(source, text), flags, code)


def interpret(
    document: Values, origin: Origin, flags: Iterable[str | Flag] = (), code: Code | None = None
) -> Spec:
    """A spec from its document, which is not changed.

    It is read without the users' files first: no file of a wrong spec is executed.
    """
    flags, folder = list(flags), Path(origin.source).parent
    first = Reader(document, origin, folder)
    spec, calls = first.spec(flags), own_tables(first.document)
    if spec is not None and not calls:
        return spec
    if code:
        code(labels_by_file(calls))
    spec = Reader(document, origin, folder, load_files(calls, origin, folder)).spec(flags)
    assert spec is not None  # everything is loaded
    return spec


@dataclasses.dataclass
class Reader:
    """One reading of a document.

    ``folder`` is where the files that it names must be, ``own`` what is from these files; without
    it that is only checked as far as it is known.
    """

    document: Values
    origin: Origin
    folder: Path
    own: Own | None = None
    kind: type[Named] | None = None
    """The kind of the problem, as soon as that is known."""
    clients: int | None = None

    def __post_init__(self) -> None:
        self.complaints = Complaints(self.origin)
        self.complain = self.complaints.add

    def spec(self, flags: Sequence[str | Flag]) -> Spec | None:
        """The spec, without the methods that are not loaded; raises :class:`BadSpec`.

        ``None`` if the problem, its network or its data are not loaded.
        """
        more = self.own is None and any("file" in table for table in tables(self.document))
        self.document = override(self.document, flags, self.settable, self.complaints, more=more)
        methods = tables(self.document)
        settings = self.settings()
        reader = ProblemReader(self.document, self.folder, self.own, self.complaints)
        given = reader.values()
        self.kind, self.clients = reader.kind, reader.clients
        problem: Named | None = given["problem"]
        settings["objective"] = self.objective(self.document, ())
        for part in settings.get("vary", ()):
            if problem and part != "draws" and (reason := problem.fixed(part)):
                self.complain(("vary",), f"vary = {part!r} is not possible here: {reason}")
        found = [self.entry(i, table, settings) for i, table in enumerate(methods)]
        self.judge_labels(found)
        if not methods and self.document.get("method"):
            self.complain(("method",), "write [[method]], with two brackets")
        elif not methods:
            self.complain(("method",), "no methods: add a [[method]] with its name")
        if self.complaints.found:
            raise BadSpec(self.complaints.found)
        if problem is None:
            return None
        entries = tuple(entry for entry in found if entry)
        own = own_tables(self.document) if self.own else {}
        files = sorted({table["file"] for table in own.values()})
        given["problem_file"] = own.get(("problem",), {}).get("file")
        code = {file: (self.folder / file).read_bytes() for file in files}
        return Spec(**settings, **given, entries=entries, sources=code, origin=self.origin)

    # The top.

    def settings(self) -> Values:
        """The values that are right; the others have complaints."""
        others = {"problem", "network", "data", "method", "objective", ITEM}
        given = {"engine": "simulate"} | self.document
        given = {key: value for key, value in given.items() if key not in others}
        options: Values = {}
        if isinstance(given["engine"], dict):
            options = {"name": "simulate"} | given["engine"]
            given["engine"] = options.pop("name")
            if wrong := check(Settings, {"engine": given["engine"]}).get("engine"):
                self.complain(("engine", "name"), wrong)
                del given["engine"]
        names = [*SETTINGS, "problem", "network", "data", "method"]
        good = fields(Settings, given, (), self.complaints, names=names)
        if engine := good.get("engine"):
            cls, kind = engines[engine].options, f"option of the engine {engine}"
            made = structure(cls, options, ("engine",), self.complaints, kind=kind)
            good["engine_options"] = made
        self.complaints.add_fields((), conflicts(given, given.get("batch")))
        return good

    def objective(self, table: Values, path: Keys) -> Objective | None:
        """The local loss in ``table``, which has it as a name or as a table."""
        given, path = table.get("objective"), (*path, "objective")
        if given is None:
            return None
        if self.kind and not self.kind.objectives:
            others = [name for name, kind in registry.items() if kind.objectives]
            use = f"leave out objective, or use the problem {' or '.join(others)}"
            self.complain(path, f"{self.kind.name} has a loss of its own: {use}")
            return None
        values = dict(given) if isinstance(given, dict) else {"name": given}
        name = values.pop("name", None)
        if not isinstance(name, str):
            text = 'a name, as "FedLC", or a table with one, as {name = "MOON", mu = 1.0}'
            self.complain(path, f"objective is {text}")
            return None
        if "file" in values:
            judge_file(values.pop("file"), path, self.folder, self.complaints)
            cls = self.own.objectives.get(path) if self.own else None
            if cls is None:
                return None
        else:
            cls = objectives.find(name)
        if cls is None:
            self.complain((*path, "name"), unknown("objective", name, sorted(losses)))
            return None
        return structure(cls, values, path, self.complaints, kind=f"parameter of {cls.__name__}")

    # The methods.

    def known(self, i: int, table: Values) -> type[Method] | None:
        """The class of the i-th method, unless it has none or is not loaded."""
        if "file" in table:
            return self.own.methods.get(("method", i)) if self.own else None
        name = table.get("name")
        return methods.find(name) if isinstance(name, str) else None

    def settable(self, i: int, table: Values) -> Sequence[str]:
        """The fields of the i-th method that a flag may set, as far as they are known."""
        if cls := self.known(i, table):
            return [*hints(cls), *TRAINING]
        return TRAINING if "file" in table else ()

    def entry(self, i: int, table: Values, settings: Values) -> Entry | None:
        """The i-th method; ``None`` if it is wrong or its file is not loaded."""
        cls, before = self.known(i, table), len(self.complaints.found)
        if cls is None and not self.to_load(i, table):
            return None
        training = self.training(i, table, settings)
        given = {"label": table.get("label", cls.__name__ if cls else table["name"])}
        own = fields(Entry, given, ("method", i), self.complaints, partial=True)
        if cls is None:
            return None
        method = self.method(i, cls, table)
        self.judge_method(i, table, method, settings | training)
        if len(self.complaints.found) > before or "rounds" not in training:
            return None
        return Entry(**training, **own, method=method, given=table, file=table.get("file"))

    def to_load(self, i: int, table: Values) -> bool:
        """Whether the i-th method, which has no class, is to be loaded from a file."""
        name, file = table.get("name"), table.get("file")
        if not isinstance(name, str):
            text = f"name is missing: one of {', '.join(methods.__all__)}"
            self.complain(("method", i, "name"), text)
        elif file is None:
            self.complain(("method", i, "name"), unknown("method", name, methods.__all__))
        else:
            judge_file(file, ("method", i), self.folder, self.complaints)
        return isinstance(name, str) and file is not None

    def training(self, i: int, table: Values, settings: Values) -> Values:
        """How the i-th method trains: as the top has it, but for what its own table has."""
        path = ("method", i)
        given = {k: v for k, v in table.items() if k in TRAINING and k != "objective"}
        top = self.document.get("training", {})
        if isinstance(given.get("training"), dict) and isinstance(top, dict):
            given["training"] = top | given["training"]  # what it leaves out is as the top has it
        own = fields(MethodSettings, given, path, self.complaints, partial=True)
        self.complaints.add_fields(path, conflicts(given, settings.get("batch")))
        if "objective" in table:
            own["objective"] = self.objective(table, path)
        usual = {key: value for key, value in settings.items() if key in TRAINING}
        if "epochs" in given:
            usual["steps"] = 1
        elif "steps" in given:
            usual["epochs"] = None
        return usual | own

    def method(self, i: int, cls: type[Method], table: Values) -> Method:
        """The method itself; where it is wrong, a placeholder that has its declarations."""
        path, name, kind = ("method", i), cls.__name__, f"parameter of {cls.__name__}"
        given = {k: v for k, v in table.items() if k not in TRAINING and k not in OWN}
        for key, value in given.items():
            if value == THEORY and numeric(hints(cls).get(key)) and not has_rule(cls, key):
                text = f"no theory prescribes {key} of {name}: give it as a number"
                self.complain((*path, key), text)
        names = [*hints(cls), *TRAINING, "label"]
        made = structure(cls, given, path, self.complaints, kind=kind, names=names, theory=True)
        return made or placeholder(cls)

    def judge_method(self, i: int, table: Values, method: Method, settings: Values) -> None:
        """Complain about what the method refuses, where the number of clients is known."""
        known = {name: settings[name] for name in hints(RunOptions) if name in settings}
        refusals = refuse(method, RunOptions(**known), self.clients)
        for field, text in refusals:
            self.complain(path_of(field, i, table), text)

    def judge_labels(self, entries: Sequence[Entry | None]) -> None:
        """Refuse two methods of one label."""
        first: dict[str, int] = {}
        for i, entry in enumerate(entries):
            if entry and first.setdefault(entry.label, i) != i:
                text = f"two methods are called {entry.label!r}: give one another label"
                self.complain(("method", i), text)
