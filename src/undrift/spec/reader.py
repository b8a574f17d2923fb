"""Reads a spec whole: either it is right, or everything that is wrong with it is listed."""

from __future__ import annotations

import dataclasses
import difflib
import re
import tomllib
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import TypeVar

from undrift import methods, objectives
from undrift.core import optimisers, robust, schedules
from undrift.core.cohort import Sampling, sampling
from undrift.core.costs import placeholder
from undrift.core.faults import Fault, Judging, judging, refuse
from undrift.core.method import Method
from undrift.core.options import Treatment, pace, refuse_training, unsplit
from undrift.core.params import (
    THEORY,
    BadParameters,
    check,
    fits,
    fold,
    hints,
    not_allowed,
    not_named,
    numeric,
    unknown,
)
from undrift.core.robust import Robust
from undrift.core.robust import registry as rules
from undrift.core.stopping import EarlyStopping, Goal
from undrift.engines.named import registry as engines
from undrift.objectives import Objective
from undrift.objectives.base import registry as losses
from undrift.problems import named as catalog
from undrift.problems.by_file import OBJECTIVE, OF_IMAGES, own_images, own_problem
from undrift.spec import plugins
from undrift.spec.errors import BadSpec, Complaint, Complaints, Origin, Place
from undrift.spec.functions import NAMES, Call, Maker, Unfit, parameters
from undrift.spec.lines import Keys, locate
from undrift.spec.overrides import Flag, override, tables
from undrift.spec.schema import (
    SETTINGS,
    TRAINING,
    TREATMENT,
    Entry,
    Settings,
    Spec,
    Training,
    Values,
    path_of,
)
from undrift.spec.structure import fields, structure
from undrift.theory import has_rule

T = TypeVar("T")
LARGEST_SPEC = 2**18
"""Bytes of a spec; the longest of the papers' has 15 thousand."""
DOTS = 200
"""In one line: tomllib takes quadratic time for a key of many parts."""
ITEM = "item"
"""The table that tells what a paper shows with the spec; ``undrift reproduce`` reads it."""
CHOICES = ("objective", "schedule", "local")
"""Tables with a name, at the top or in a [[method]]."""
READ = ("cohort", "reduction", "faults", "judge", "stop", "best")
"""Settings at the top that may be tables, or are a list of them."""
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
    first = Reader(document, origin, folder)
    spec, calls = first.spec(flags), own_tables(first.document)
    if spec is not None and not calls:
        return spec
    if code:
        code(_files(calls))
    spec = Reader(document, origin, folder, _load(calls, origin, folder)).spec(flags)
    assert spec is not None  # everything is loaded
    return spec


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


def own_tables(document: Values) -> dict[Keys, Values]:
    """The tables of a document that name a file of the user's, by their places."""
    places: list[tuple[Keys, object]] = [
        ((key,), document.get(key)) for key in ("problem", "network", "data", "objective")
    ]
    for i, table in enumerate(tables(document)):
        places += [(("method", i), table), (("method", i, "objective"), table.get("objective"))]
    return {path: table for path, table in places if isinstance(table, dict) and "file" in table}


def _files(calls: Mapping[Keys, Values]) -> dict[str, list[str]]:
    """The users' files, with what is from each: labels of methods, names of the rest."""
    files: dict[str, list[str]] = {}
    for table in calls.values():
        files.setdefault(table["file"], []).append(str(table.get("label", table["name"])))
    return {file: list(dict.fromkeys(names)) for file, names in files.items()}


@dataclasses.dataclass
class Own:
    """What is from users' files, by its place in the spec."""

    methods: dict[Keys, type[Method]] = dataclasses.field(default_factory=dict)
    objectives: dict[Keys, type[Objective]] = dataclasses.field(default_factory=dict)
    makers: dict[Keys, Maker] = dataclasses.field(default_factory=dict)


def _load(calls: Mapping[Keys, Values], origin: Origin, folder: Path) -> Own:
    """Execute the files of users, and find in them what the spec names."""
    own, complaints = Own(), Complaints(origin)
    execute = cache(plugins.execute)
    for path, table in calls.items():
        try:
            found = execute(folder / table["file"])
        except plugins.BadFile as error:
            complaints.add((*path, "file"), str(error))
            continue
        kind = str(path[0] if len(path) == 2 else path[-1])  # ("method", i), or what a key says
        if kind == "method":
            _choose(own.methods, found.methods, kind, path, table, complaints)
        elif kind == "objective":
            _choose(own.objectives, found.objectives, kind, path, table, complaints)
            if path in own.objectives:
                own.objectives[path].file = table["file"]
        else:
            _choose(own.makers, found.makers.values(), kind, path, table, complaints)
    if complaints.found:
        raise BadSpec(complaints.found)
    return own


Found = TypeVar("Found", bound=Callable[..., object])


def _choose(
    own: dict[Keys, Found],
    found: Iterable[Found],
    kind: str,
    path: Keys,
    table: Values,
    complaints: Complaints,
) -> None:
    """Take the one that ``table`` names, or complain that the file has no such thing."""
    known = {fold(one.__name__): one for one in found}
    if one := known.get(fold(table["name"])):
        own[path] = one
        return
    names = [one.__name__ for one in known.values()]
    text = unknown(f"{kind} of {table['file']}", table["name"], names)
    complaints.add((*path, "name"), text)


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
    kind: type[catalog.Named] | None = None
    clients: int | None = None

    def __post_init__(self) -> None:
        self.complaints = Complaints(self.origin)
        self.complain = self.complaints.add

    def spec(self, flags: Sequence[str | Flag]) -> Spec | None:
        """The spec, without the methods that are not loaded; raises :class:`BadSpec`.

        ``None`` if the problem, its network or its data are not loaded.
        """
        if ITEM in self.document and "problem" not in self.document:
            text = "an item of a paper that runs other specs: give its name to undrift reproduce"
            raise BadSpec([self.origin.complaint((ITEM,), text)])
        more = self.own is None and any("file" in table for table in tables(self.document))
        self.document = override(self.document, flags, self.settable, self.complaints, more=more)
        methods = tables(self.document)
        settings = self.settings()
        calls = {key: self.call((key,), OF_IMAGES) for key in ("network", "data")}
        problem_name, problem = self.problem(calls)
        settings["objective"] = self.objective(self.document, ())
        settings |= self.stepping(self.document, ())
        self.judge_targets()
        for part in settings.get("vary", ()) if problem else ():
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
        sources = {file: (self.folder / file).read_bytes() for file in files}
        settings |= {"problem": problem, "problem_name": problem_name, **calls}
        settings["problem_file"] = own.get(("problem",), {}).get("file")
        return Spec(**settings, entries=entries, sources=sources, origin=self.origin)

    # The top.

    def settings(self) -> Values:
        """The values that are right; the others have complaints."""
        others = {"problem", "network", "data", "method", ITEM, *CHOICES, *READ}
        given = {"engine": "simulate"} | self.document
        given = {key: value for key, value in given.items() if key not in others}
        options: Values = {}
        if isinstance(given["engine"], dict):
            options = {"name": "simulate"} | given["engine"]
            given["engine"] = options.pop("name")
            if wrong := check("", Settings, {"engine": given["engine"]}).get("engine"):
                self.complain(("engine", "name"), wrong)
                del given["engine"]
        names = [*SETTINGS, "problem", "network", "data", "method"]
        good = fields(Settings, given, (), self.complaints, names=names)
        if engine := good.get("engine"):
            cls, kind = engines[engine].options, f"option of the engine {engine}"
            made = structure(cls, options, ("engine",), self.complaints, kind=kind)
            good["engine_options"] = made
        self.judge_pace((), given, good)
        if text := unsplit(good.get("accumulate"), good.get("batch")):
            self.complain(("accumulate",), text)
        good |= {"cohort": self.cohort(), "reduction": self.reduction()}
        good |= {"stop": self.stop(), "best": self.best()}
        return good | {"faults": self.faults(), "judge": self.judge()}

    def judge_targets(self) -> None:
        """Refuse a target that the problem cannot measure."""
        judged = self.kind.judged if self.kind else None
        if self.kind and judged == "accuracy" and "target" in self.document:
            text = "is not known, so there is no gap to aim at: use target_accuracy"
            self.complain(("target",), f"the optimum of {self.kind.name} {text}")
        if self.kind and judged == "gap" and "target_accuracy" in self.document:
            text = f"{self.kind.name} measures no accuracy: use target, which is a gap"
            self.complain(("target_accuracy",), text)

    def judge_pace(self, path: Keys, given: Values, settings: Values) -> None:
        """Local work is counted in steps or in epochs."""
        if text := pace("steps" in given, "epochs" in given, settings.get("batch")):
            self.complain((*path, "epochs"), text)

    def cohort(self) -> Sampling | None:
        given = self.document.get("cohort")
        if isinstance(given, dict):
            kind = "parameter of cohort"
            return structure(Sampling, given, ("cohort",), self.complaints, kind=kind)
        try:
            return sampling(given)
        except BadParameters as error:
            self.complain(("cohort",), error.problems["cohort"])
            return None

    def reduction(self) -> Robust | None:
        return self.chosen("reduction", self.document, (), rules, robust.EXAMPLE)

    def stepping(self, table: Values, path: Keys) -> Values:
        """How lr changes, and who takes local steps."""
        known, example = schedules.registry, schedules.EXAMPLE
        schedule = self.chosen("schedule", table, path, known, example)
        local = self.chosen("local", table, path, optimisers.registry, optimisers.EXAMPLE)
        return {"schedule": schedule, "local": local}

    def chosen(
        self, key: str, table: Values, path: Keys, known: Mapping[str, type[T]], example: str
    ) -> T | None:
        """What ``table`` has under ``key``, which is a name, or a table with one."""
        given, path = table.get(key), (*path, key)
        if given is None:
            return None
        values = dict(given) if isinstance(given, dict) else {"name": given}
        name = values.pop("name", None)
        if text := not_named(key, name, known, example):
            self.complain((*path, "name"), text)
            return None
        return structure(known[name], values, path, self.complaints, kind=f"parameter of {name}")

    def faults(self) -> list[Fault] | None:
        """What clients do wrong; ``None`` where they do nothing wrong."""
        given = self.document.get("faults", [])
        if not (isinstance(given, list) and all(isinstance(table, dict) for table in given)):
            self.complain(("faults",), "write [[faults]], with two brackets, and a kind in each")
            return None
        kind, found = "parameter of faults", list[Fault]()
        for i, table in enumerate(given):
            if fault := structure(Fault, table, ("faults", i), self.complaints, kind=kind):
                found.append(fault)
        return found or None

    def judge(self) -> Judging | None:
        """How work is judged; ``None`` where that is as usual."""
        given = self.document.get("judge")
        if isinstance(given, dict):
            kind = "parameter of judge"
            found = structure(Judging, given, ("judge",), self.complaints, kind=kind)
            return None if found == Judging() else found
        try:
            judging(given)
        except BadParameters as error:
            self.complain(("judge",), error.problems["judge"])
        return None

    def stop(self) -> EarlyStopping | None:
        """What ends a method early."""
        given = self.document.get("stop")
        if isinstance(given, dict):
            kind = "parameter of stop"
            return structure(EarlyStopping, given, ("stop",), self.complaints, kind=kind)
        if given is not None:
            self.complain(("stop",), not_allowed("stop", given, "a table, as {patience = 10}"))
        return None

    def best(self) -> Goal | None:
        """What the best model is best in."""
        given = self.document.get("best")
        if given is None:
            return None
        table = given if isinstance(given, dict) else {"metric": given}
        return structure(Goal, table, ("best",), self.complaints, kind="parameter of best")

    def objective(self, table: Values, path: Keys) -> Objective | None:
        """The local loss in ``table``, which has it as a name or as a table."""
        given, path = table.get("objective"), (*path, "objective")
        if given is None:
            return None
        if self.kind and not self.kind.objectives:
            others = [name for name, kind in catalog.registry.items() if kind.objectives]
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
            self.judge_file(path, values.pop("file"))
            cls = self.own.objectives.get(path) if self.own else None
            if cls is None:
                return None
        else:
            cls = objectives.find(name)
        if cls is None:
            self.complain((*path, "name"), unknown("objective", name, sorted(losses)))
            return None
        return structure(cls, values, path, self.complaints, kind=f"parameter of {cls.__name__}")

    def problem(self, calls: Mapping[str, Call | None]) -> tuple[str, catalog.Named | None]:
        """The name and the parameters of the problem, with a network and data of the user's."""
        table, names = self.document.get("problem"), ", ".join(catalog.registry)
        if isinstance(table, list):
            self.complain(("problem",), "write [problem], with one bracket: a spec has one problem")
            return "", None
        if not isinstance(table, dict):
            self.complain(("problem",), f"[problem] is missing; its name is one of {names}")
            return "", None
        name = table.get("name")
        if not isinstance(name, str):
            self.complain(("problem", "name"), f"name is missing: one of {names}")
            return "", None
        preset: Values = {}
        if "file" in table:
            self.kind = self.own_problem(name, table["file"])
        else:
            try:
                self.kind, preset = catalog.find(name)
            except ValueError as error:
                self.complain(("problem", "name"), str(error))
        if self.kind is None:
            return name, None
        values = preset | {key: value for key, value in table.items() if key not in NAMES}
        if not self.completed(calls, values):
            return name, None
        clients = values.get("clients", getattr(self.kind, "clients", None))
        if "clients" in hints(self.kind) and fits(clients, hints(self.kind)["clients"]):
            self.clients = clients
        kind = f"parameter of {self.kind.name}"
        return name, structure(self.kind, values, ("problem",), self.complaints, kind=kind)

    def own_problem(self, name: str, file: object) -> type[catalog.Named] | None:
        """The kind of a problem from a file; ``None`` if it is not loaded, or wrong."""
        self.judge_file(("problem",), file)
        if name in catalog.registry:
            text = f"{name} is a problem of undrift already: choose another name"
            self.complain(("problem", "name"), text)
        if self.own is None:
            return None
        maker = self.own.makers[("problem",)]
        try:
            return own_problem(maker, parameters(maker, (OBJECTIVE,)))
        except ValueError as error:
            self.complain(("problem", "name"), f"{file}: {error}")
            return None

    def completed(self, calls: Mapping[str, Call | None], values: Values) -> bool:
        """Whether a network and data of the user's, if the spec has some, are with the problem."""
        asked = [key for key in calls if key in self.document]
        if not asked:
            return True
        if self.kind is not catalog.Images:
            for key in asked:
                text = f"[{key}] goes with the problem images; this one has a {key} of its own"
                self.complain((key,), text)
            return False
        found = {key: call for key, call in calls.items() if call is not None}
        if len(found) < len(asked):
            return False
        names = {{"network": "model"}.get(key, key): call.name for key, call in found.items()}
        for field, name in names.items():
            if values.get(field, name) != name:
                text = f"{field} = {values[field]!r} is not {name}, which the spec has a file for"
                self.complain(("problem", field), f"{text}: leave it out")
        self.kind = own_images(calls["network"], calls["data"], names)
        return True

    def call(self, path: Keys, offered: Sequence[str]) -> Call | None:
        """A function of the user's with its parameters; ``None`` if it is not loaded, or wrong."""
        key, table = path[0], self.document.get(str(path[0]))
        if table is None:
            return None
        if not isinstance(table, dict):
            self.complain(path, f"write [{key}], a table with a file and a name")
            return None
        for needed in NAMES:
            if not isinstance(table.get(needed), str):
                text = f"{needed} is missing: [{key}] has a file and a name"
                self.complain((*path, needed), text)
                return None
        self.judge_file(path, table["file"])
        maker = self.own.makers.get(path) if self.own else None
        if maker is None:
            return None
        given = {name: value for name, value in table.items() if name not in NAMES}
        try:
            declared = parameters(maker, offered)
        except Unfit as error:
            self.complain((*path, "name"), f"{table['file']}: {error}")
            return None
        kind = f"parameter of {maker.__name__}"
        values = structure(declared, given, path, self.complaints, kind=kind)
        return None if values is None else Call(table["file"], maker.__name__, maker, values)

    def judge_file(self, path: Keys, file: object) -> None:
        """Complain about a file that is not there, or not where a spec may have it."""
        if not self.inside(file):
            text = "a Python file in the folder of the spec or below it"
            self.complain((*path, "file"), not_allowed("file", file, text))
        elif not (self.folder / str(file)).is_file():
            self.complain((*path, "file"), f"{self.folder / str(file)}: there is no such file")

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
            self.judge_file(("method", i), file)
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
        given = {k: v for k, v in table.items() if k in TRAINING and k not in CHOICES}
        own = fields(Training, given, path, self.complaints, partial=True)
        self.judge_pace(path, given, settings)
        if "objective" in table:
            own["objective"] = self.objective(table, path)
        own |= {key: rule for key, rule in self.stepping(table, path).items() if key in table}
        top = {key: value for key, value in settings.items() if key in TRAINING}
        if "epochs" in given:
            top["steps"] = 1
        elif "steps" in given:
            top["epochs"] = None
        return top | own

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
        training = {key: settings[key] for key in TREATMENT if key in settings}
        refusals = refuse_training(method, Treatment(**training))
        refusals += method.refuse_late(judging(settings["judge"]).late)
        if self.clients is not None:
            refusals += refuse(settings["faults"] or (), self.clients)
            steps = settings.get("steps", 1)
            each = 1 if settings.get("epochs") and isinstance(steps, int) else steps
            cohort = settings["cohort"] or Sampling(self.clients)
            weights = settings.get("weights", "uniform")
            rule = settings["reduction"]
            refusals = [*refusals, *method.refuse(self.clients, cohort, each, weights, rule)]
        for field, text in refusals:
            self.complain(path_of(field, i, table), text)

    def judge_labels(self, entries: Sequence[Entry | None]) -> None:
        """Refuse two methods of one label."""
        first: dict[str, int] = {}
        for i, entry in enumerate(entries):
            if entry and first.setdefault(entry.label, i) != i:
                text = f"two methods are called {entry.label!r}: give one another label"
                self.complain(("method", i), text)
