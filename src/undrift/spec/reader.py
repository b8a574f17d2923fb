"""Reads a spec whole: either it is right, or everything that is wrong with it is listed."""

from __future__ import annotations

import difflib
import inspect
import re
import tomllib
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

from undrift import methods, objectives
from undrift.core.cohort import Sampling, sampling
from undrift.core.costs import placeholder
from undrift.core.method import Method
from undrift.core.options import pace
from undrift.core.params import (
    THEORY,
    BadParameters,
    check,
    fits,
    fold,
    hints,
    not_allowed,
    unknown,
)
from undrift.engines.named import registry as engines
from undrift.objectives import Objective
from undrift.objectives.base import registry as losses
from undrift.problems import named as catalog
from undrift.spec import plugins
from undrift.spec.errors import BadSpec, Complaint, Complaints, Origin, Place
from undrift.spec.lines import Keys, locate
from undrift.spec.overrides import Flag, override, tables
from undrift.spec.schema import (
    SETTINGS,
    TRAINING,
    Entry,
    Settings,
    Spec,
    Training,
    Values,
    path_of,
)
from undrift.spec.structure import create, fields, structure
from undrift.theory.rules import has_rule

LARGEST_SPEC = 2**18
"""Bytes of a spec; the longest of the papers' has 15 thousand."""
DOTS = 200
"""In one line: tomllib takes quadratic time for a key of many parts."""
ITEM = "item"
"""The table that tells what a paper shows with the spec; ``undrift reproduce`` reads it."""
OWN = ("name", "label", "file")
"""Keys of a [[method]] besides its training and its hyper-parameters."""

Code = Callable[[Mapping[str, Sequence[str]]], None]
"""Called before any file of a spec is executed, with the labels of the methods in each file."""


def load(source: str | Path, flags: Iterable[str | Flag] = (), code: Code | None = None) -> Spec:
    """Read a spec file; each flag ``KEY=VALUE`` overrides one of its values.

    The Python files that a spec names are executed; ``code`` is called before that, and may raise.
    Raises :class:`BadSpec`.
    """
    file = Path(source)
    try:
        with file.open("rb") as opened:
            content = opened.read(LARGEST_SPEC + 1)
        if len(content) > LARGEST_SPEC:
            raise _bad(f"not a spec: it has more than {LARGEST_SPEC >> 10} KiB", str(source))
        text = content.decode()
    except FileNotFoundError:
        others = [other.name for other in file.parent.glob("*.toml")]
        near = difflib.get_close_matches(file.name, others, n=1, cutoff=0.5)
        hint = f"; did you mean {file.parent / near[0]}?" if near else ""
        raise _bad(f"there is no such file{hint}", str(source)) from None
    except UnicodeDecodeError as error:
        raise _bad(f"not UTF-8 text (byte {error.start})", str(source)) from None
    except OSError as error:
        raise _bad((error.strerror or "cannot be read").lower(), str(source)) from None
    return parse(text, str(source), flags, code)


def parse(
    text: str, source: str = "spec", flags: Iterable[str | Flag] = (), code: Code | None = None
) -> Spec:
    """A spec from its text; files of methods are looked for beside ``source``.

    It is read without the users' files first: no file of a wrong spec is executed.
    """
    document, lines = _parsed(text, source)
    origin, flags, folder = Origin(source, lines), list(flags), Path(source).parent
    spec = Reader(document, flags, origin, folder).spec()
    given = tables(document)
    if not any("file" in table for table in given):
        return spec
    if code:
        code(_files(given))
    own = _load(given, folder, Complaints(origin))
    return Reader(document, flags, origin, folder, own).spec()


def _parsed(text: str, source: str) -> tuple[Values, Mapping[Keys, int]]:
    """The document of a TOML text, and the lines of its keys."""
    for number, content in enumerate(text.split("\n"), 1):
        if content.count(".") > DOTS:
            raise _bad(f"not a spec: a line with more than {DOTS} dots", source, number)
    try:
        return tomllib.loads(text), locate(text)
    except tomllib.TOMLDecodeError as error:
        # Before Python 3.14 the line is in the message alone.
        place = re.search(r" \(at line (\d+), column \d+\)$| \(at end of document\)$", str(error))
        line = int(place[1]) if place and place[1] else len(text.splitlines()) or 1
        message = str(error)[: place.start()] if place else str(error)
        raise _bad(f"not TOML: {message}", source, line) from None
    except RecursionError:
        raise _bad("not a spec: nested too deeply", source) from None
    except ValueError:  # Python reads no number of thousands of digits
        raise _bad("not a spec: it has a number of thousands of digits", source) from None


def _bad(text: str, source: str, line: int | None = None) -> BadSpec:
    return BadSpec([Complaint((), text, Place(source, line))])


def _files(given: Sequence[Values]) -> dict[str, list[str]]:
    """The users' files, with the labels of the methods that are from each."""
    files: dict[str, list[str]] = {}
    for table in given:
        if "file" in table:
            files.setdefault(table["file"], []).append(str(table.get("label", table["name"])))
    return files


def _load(
    given: Sequence[Values], folder: Path, complaints: Complaints
) -> dict[int, type[Method]]:
    """The classes of the methods that are from users' files, by their position in the spec."""
    own = {}
    for i, table in enumerate(given):
        if "file" not in table:
            continue
        try:
            found = {fold(cls.__name__): cls for cls in plugins.load(folder / table["file"])}
        except plugins.BadFile as error:
            complaints.add(("method", i, "file"), str(error))
            continue
        if cls := found.get(fold(table["name"])):
            own[i] = cls
        else:
            names = [cls.__name__ for cls in found.values()]
            text = unknown(f"method of {table['file']}", table["name"], names)
            complaints.add(("method", i, "name"), text)
    complaints.refuse()
    return own


class Reader:
    """One reading of a document.

    ``folder`` is where the files that it names must be, ``own`` the classes of the methods from
    these files; without it such methods are only checked as far as they are known.
    """

    def __init__(
        self,
        document: Values,
        flags: Sequence[str | Flag],
        origin: Origin,
        folder: Path,
        own: Mapping[int, type[Method]] | None = None,
    ):
        self.folder, self.own = folder, own
        self.complaints = Complaints(origin)
        if ITEM in document and "problem" not in document:
            text = "an item of a paper that runs other specs: give its name to undrift reproduce"
            self.complaints.add((ITEM,), text)
            self.complaints.refuse()
        unloaded = own is None and any("file" in table for table in tables(document))
        self.document = override(document, flags, self.settable, self.complaints, more=unloaded)
        self.tables = tables(self.document)
        self.kind: type[catalog.Named] | None = None
        self.clients: int | None = None

    def spec(self) -> Spec:
        """The spec, without the methods that are not loaded; raises :class:`BadSpec`."""
        settings = self.settings()
        problem_name, problem = self.problem()
        settings["objective"] = self.objective(self.document, ())
        self.judge_targets()
        for part in settings.get("vary", ()) if problem else ():
            if problem and part != "draws" and (reason := problem.fixed(part)):
                self.complaints.add(("vary",), f"vary = {part!r} is not possible here: {reason}")
        entries = [self.entry(i, table, settings) for i, table in enumerate(self.tables)]
        self.judge_labels(entries)
        if not self.tables and self.document.get("method"):
            self.complaints.add(("method",), "write [[method]], with two brackets")
        elif not self.tables:
            self.complaints.add(("method",), "no methods: add a [[method]] with its name")
        self.complaints.refuse()
        assert problem is not None
        files = {entry.file for entry in entries if entry and entry.file}
        return Spec(
            **settings,
            problem=problem,
            problem_name=problem_name,
            entries=tuple(entry for entry in entries if entry),
            sources={file: (self.folder / file).read_bytes() for file in sorted(files)},
            origin=self.complaints.origin,
        )

    # The top.

    def settings(self) -> Values:
        """The values that are right; the others have complaints."""
        tables = ("problem", "method", ITEM, "cohort", "objective", "engine")
        given = {key: value for key, value in self.document.items() if key not in tables}
        percent = given.get("target_accuracy")
        if isinstance(percent, (int, float)) and 1 < percent <= 100:
            del given["target_accuracy"]
            text = f"target_accuracy = {percent} is not allowed: {percent} % is {percent / 100:g}"
            self.complaints.add(("target_accuracy",), text)
        names = [*SETTINGS, "problem", "method"]
        good = fields(Settings, given, (), self.complaints, kind="key", names=names)
        self.judge_pace((), given, good)
        return good | self.engine() | {"cohort": self.cohort()}

    def engine(self) -> Values:
        """The engine and its options."""
        given = self.document.get("engine", "simulate")
        options = dict(given) if isinstance(given, dict) else {"name": given}
        name = options.pop("name", None)
        wrong = check("spec", Settings, {"engine": name})
        if "engine" in wrong:
            self.complaints.add(("engine", "name"), wrong["engine"])
            return {}
        kind = f"option of {name}"
        cls = engines[name].options
        made = structure(cls, options, ("engine",), self.complaints, name, kind=kind)
        return {"engine": name, "engine_options": made}

    def judge_targets(self) -> None:
        """Refuse a target that the problem cannot measure."""
        if self.kind and takes_objective(self.kind) and "target" in self.document:
            text = "is not known, so there is no gap to aim at: use target_accuracy"
            self.complaints.add(("target",), f"the optimum of {self.kind.name} {text}")
        if self.kind and not takes_objective(self.kind) and "target_accuracy" in self.document:
            text = f"{self.kind.name} measures no accuracy: use target, which is a gap"
            self.complaints.add(("target_accuracy",), text)

    def judge_pace(self, path: Keys, given: Values, settings: Values) -> None:
        """Local work is counted in steps or in epochs."""
        if text := pace("steps" in given, "epochs" in given, settings.get("batch")):
            self.complaints.add((*path, "epochs"), text)

    def cohort(self) -> Sampling | None:
        given = self.document.get("cohort")
        if isinstance(given, dict):
            return structure(Sampling, given, ("cohort",), self.complaints, "cohort")
        try:
            return sampling(given)
        except BadParameters as error:
            self.complaints.add(("cohort",), error.problems["cohort"])
            return None

    def objective(self, table: Values, path: Keys) -> Objective | None:
        """The local loss in ``table``, which has it as a name or as a table."""
        given, path = table.get("objective"), (*path, "objective")
        if given is None:
            return None
        if self.kind and not takes_objective(self.kind):
            others = [name for name, kind in catalog.registry.items() if takes_objective(kind)]
            use = f"leave out objective, or use the problem {' or '.join(others)}"
            self.complaints.add(path, f"{self.kind.name} has a loss of its own: {use}")
            return None
        values = dict(given) if isinstance(given, dict) else {"name": given}
        name = values.pop("name", None)
        if not isinstance(name, str):
            text = 'a name, as "FedLC", or a table with one, as {name = "MOON", mu = 1.0}'
            self.complaints.add(path, f"objective is {text}")
            return None
        cls = objectives.find(name)
        if cls is None:
            text = unknown("objective", name, sorted(losses))
            self.complaints.add((*path, "name"), text)
            return None
        return structure(cls, values, path, self.complaints, cls.__name__)

    def problem(self) -> tuple[str, catalog.Named | None]:
        """The name and the parameters of the problem."""
        table, names = self.document.get("problem"), ", ".join(catalog.registry)
        if not isinstance(table, dict):
            text = f"[problem] is missing; its name is one of {names}"
            self.complaints.add(("problem",), text)
            return "", None
        name = table.get("name")
        if not isinstance(name, str):
            self.complaints.add(("problem", "name"), f"name is missing: one of {names}")
            return "", None
        try:
            self.kind, preset = catalog.find(name)
        except ValueError as error:
            self.complaints.add(("problem", "name"), str(error))
            return "", None
        values = preset | {key: value for key, value in table.items() if key != "name"}
        clients = values.get("clients", getattr(self.kind, "clients", None))
        if "clients" in hints(self.kind) and fits(clients, hints(self.kind)["clients"]):
            self.clients = clients
        return name, structure(self.kind, values, ("problem",), self.complaints, self.kind.name)

    # The methods.

    def known(self, i: int, table: Values) -> type[Method] | None:
        """The class of the i-th method, unless it has none or is not loaded."""
        if "file" in table:
            return (self.own or {}).get(i)
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
        own = fields(Entry, given, ("method", i), self.complaints, kind="key", partial=True)
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
            self.complaints.add(("method", i, "name"), text)
        elif file is None:
            text = unknown("method", name, methods.__all__)
            self.complaints.add(("method", i, "name"), text)
        elif not self.inside(file):
            text = "a Python file in the folder of the spec or below it"
            self.complaints.add(("method", i, "file"), not_allowed("file", file, text))
        return isinstance(name, str) and file is not None

    def inside(self, file: object) -> bool:
        """Whether ``file`` names a Python file in the folder of the spec or below it."""
        if not (isinstance(file, str) and file.isprintable() and file.endswith(".py")):
            return False
        if Path(file).is_absolute() or ".." in Path(file).parts:
            return False
        return (self.folder / file).resolve().is_relative_to(self.folder.resolve())

    def training(self, i: int, table: Values, settings: Values) -> Values:
        """How the i-th method trains: as the top has it, but for what its own table has."""
        path = ("method", i)
        given = {k: v for k, v in table.items() if k in TRAINING and k != "objective"}
        own = fields(Training, given, path, self.complaints, kind="key", partial=True)
        self.judge_pace(path, given, settings)
        if "objective" in table:
            own["objective"] = self.objective(table, path)
        top = {key: value for key, value in settings.items() if key in TRAINING}
        if "epochs" in given:
            top["steps"] = 1
        elif "steps" in given:
            top["epochs"] = None
        return top | own

    def method(self, i: int, cls: type[Method], table: Values) -> Method:
        """The method itself; where it is wrong, a placeholder that has its declarations."""
        path, name, before = ("method", i), cls.__name__, len(self.complaints.found)
        given = {k: v for k, v in table.items() if k not in TRAINING and k not in OWN}
        names, kind = [*hints(cls), *TRAINING, "label"], f"parameter of {name}"
        good = fields(cls, given, path, self.complaints, kind=kind, names=names, theory=True)
        for key, value in good.items():
            if value == THEORY and not has_rule(name, key):
                text = f"no theory prescribes {key} of {name}: give it as a number"
                self.complaints.add((*path, key), text)
        if len(self.complaints.found) > before:
            return placeholder(cls)
        return create(cls, good, path, self.complaints) or placeholder(cls)

    def judge_method(self, i: int, table: Values, method: Method, settings: Values) -> None:
        """Complain about what the method refuses, where the number of clients is known."""
        refusals = method.refuse_decay(settings.get("decay", 1))
        if self.clients is not None:
            steps = settings.get("steps", 1)
            each = 1 if settings.get("epochs") and isinstance(steps, int) else steps
            cohort = settings["cohort"] or Sampling(self.clients)
            weights = settings.get("weights", "uniform")
            refusals = [*refusals, *method.refuse(self.clients, cohort, each, weights)]
        for field, text in refusals:
            self.complaints.add(path_of(field, i, table), text)

    def judge_labels(self, entries: Sequence[Entry | None]) -> None:
        """Refuse two methods of one label."""
        first: dict[str, int] = {}
        for i, entry in enumerate(entries):
            if entry and first.setdefault(entry.label, i) != i:
                text = f"two methods are called {entry.label!r}: give one another label"
                self.complaints.add(("method", i), text)


def takes_objective(kind: type[catalog.Named]) -> bool:
    """Whether the local loss of a problem can be chosen. Such problems are judged by accuracy."""
    return "objective" in inspect.signature(kind.build).parameters
