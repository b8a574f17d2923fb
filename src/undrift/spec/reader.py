"""From a parsed document to a checked spec. Complaints gather until the end."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path as File
from typing import Any

from undrift import methods, objectives
from undrift._files import reserved
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
from undrift.problems import named as catalog
from undrift.spec.device import misspelt
from undrift.spec.lines import Path
from undrift.spec.overrides import SHORT, Document, Values
from undrift.spec.schema import (
    SETTINGS,
    TRAINING,
    BadSpec,
    Code,
    Entry,
    Origin,
    Settings,
    Spec,
    Training,
)
from undrift.theory.rules import has_rule

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
LABEL = re.compile(r"[^<>&]{1,40}")
TWO, NONE = "write [[method]], with two brackets", "no methods: add a [[method]] with its name"
ITEM = "item"
"""A table that says what a paper shows with the spec: ``undrift reproduce`` reads it."""
OWN = ("name", "label", "file")
"""What a [[method]] may say besides how it trains and its hyper-parameters."""


class Draft(Document):
    """A document on its way to a spec; ``folder`` is where the files it names must lie, ``code``
    told of them.
    """

    def __init__(self, document: Values, origin: Origin, folder: File, code: Code | None = None):
        super().__init__(document, origin)
        self.folder, self.code = folder, code
        self.sources: dict[str, bytes] = {}
        self.kind: type[catalog.Named] | None = None
        self.clients: int | None = None

    def finish(self, flags: Sequence[str]) -> Spec:
        if ITEM in self.document and "problem" not in self.document:
            self.complain(
                (ITEM,),
                "an item of a paper that runs other specs: give its name to undrift reproduce",
            )
            self.judge({})
        for flag in flags:
            self.override(flag)
        settings = self.settings()
        problem_name, problem = self.problem()
        settings["objective"] = self.objective(self.document, ())
        self.aims()
        self.varied(settings, problem)
        made = {i: self.entry(i, self.known(i), settings) for i in range(len(self.tables))}
        if not self.tables:
            some = self.document.get("method")
            self.complain(("method",), TWO if some else NONE)
        self.judge(made)
        self.announce()
        if own := {i: cls for i in made if (cls := self.loaded(i))}:
            self.judge({})
            for i, cls in own.items():
                self.lay(i, cls)
                made[i] = self.entry(i, cls, settings)
        for flag, (name, _) in self.waiting.items():
            self.untaken(flag, name)
        self.judge(made)
        entries = tuple(entry for entry in made.values() if entry)
        return Spec(
            **settings, problem=problem, problem_name=problem_name, entries=entries, sources=self.sources,
            origin=self.origin,
        )  # fmt: skip

    def judge(self, made: dict[int, Entry | None]) -> None:
        """The end, if anything is wrong so far."""
        labels: dict[str, int] = {}
        for i, entry in made.items():
            if entry and labels.setdefault(entry.label, i) != i:
                self.complain(
                    ("method", i), f"two methods are called {entry.label!r}: give one another label"
                )
        if self.complaints:
            raise BadSpec(self.complaints)

    def make(self, owner: str, cls: Any, values: Values, path: Path) -> Any:
        """``cls(**values)``; ``None``, and complaints at ``path``, if that is not possible."""
        wrong = check(owner, cls, values)
        for key in values.keys() - hints(cls).keys():
            wrong[key] = unknown(f"parameter of {owner}", key, hints(cls))
        if not wrong:
            try:
                return cls(**values)
            except BadParameters as error:
                wrong = error.problems
        for key, text in wrong.items():
            self.complain((*path, key), text)
        return None

    # The top.

    def settings(self) -> Values:
        """The values that are right, and the defaults of the others."""
        given = {
            key: value
            for key, value in self.document.items()
            if key not in ("problem", "method", ITEM, *SHORT)
        }
        wrong = check("spec", Settings, given)
        for key in given.keys() - set(SETTINGS):
            wrong[key] = unknown("key", key, [*SETTINGS, "problem", "method"])
        good = {key: value for key, value in given.items() if key not in wrong}
        name, device, seeds = good.get("name"), good.get("device"), good.get("seeds", [0])
        if name is not None and not NAME.fullmatch(name):
            wrong["name"] = not_allowed(
                "name", name, "letters, digits, . _ and -, starting with a letter or digit"
            )
        elif name is not None and reserved(name):
            wrong["name"] = not_allowed("name", name, "a name that Windows can give to a folder")
        if device is not None and (text := misspelt(device)):
            wrong["device"] = text
        if not seeds or len(set(seeds)) < len(seeds):
            wrong["seeds"] = not_allowed("seeds", seeds, "one or more different whole numbers")
        vary = good.get("vary", ["draws"])
        if not vary or len(set(vary)) < len(vary):
            wrong["vary"] = not_allowed(
                "vary", vary, "one or more different ones of draws, start and split"
            )
        percent = given.get("target_accuracy", 0)
        if fits(percent, float) and 1 < percent <= 100:
            wrong["target_accuracy"] = (
                f"target_accuracy = {percent} is not allowed: {percent} % is {percent / 100:g}"
            )
        for key in sorted(wrong, key="name".__ne__):
            self.complain((key,), wrong[key])
        self.pace((), given, good)
        return good | {"cohort": self.cohort()}

    def varied(self, settings: Values, problem: Any) -> None:
        """What seeds are to vary and cannot."""
        for what in settings.get("vary", ()) if problem else ():
            if what != "draws" and (reason := problem.fixed(what)):
                self.complain(("vary",), f"vary = {what!r} is not possible here: {reason}")

    def aims(self) -> None:
        """Targets that the problem cannot measure."""
        if self.kind and self.kind.judged == "accuracy" and "target" in self.document:
            text = "is not known, so there is no gap to aim at: use target_accuracy"
            self.complain(("target",), f"the optimum of {self.kind.name} {text}")
        if self.kind and self.kind.judged != "accuracy" and "target_accuracy" in self.document:
            self.complain(
                ("target_accuracy",),
                f"{self.kind.name} measures no accuracy: use target, which is a gap",
            )

    def pace(self, path: Path, given: Values, settings: Values) -> None:
        """Local work is counted in steps or in epochs."""
        if text := pace("steps" in given, "epochs" in given, settings.get("batch")):
            self.complain((*path, "epochs"), text)

    def cohort(self) -> Sampling | None:
        given = self.document.get("cohort")
        if isinstance(given, dict):
            return self.make("cohort", Sampling, given, ("cohort",))
        try:
            return sampling(given)
        except BadParameters as error:
            self.complain(("cohort",), error.problems["cohort"])
            return None

    def objective(self, table: Values, path: Path) -> Any:
        """The local loss that ``table`` asks for, as a name or as a table."""
        given, path = table.get("objective"), (*path, "objective")
        if given is None:
            return None
        if self.kind and not takes_objective(self.kind):
            others = [name for name, kind in catalog.registry.items() if takes_objective(kind)]
            text = f"{self.kind.name} has a loss of its own: leave out objective"
            self.complain(path, text + f", or use the problem {' or '.join(others)}" * bool(others))
            return None
        values = dict(given) if isinstance(given, dict) else {"name": given}
        name = values.pop("name", None)
        if not isinstance(name, str):
            self.complain(
                path,
                'objective is a name, as "FedLC", or a table with one, as {name = "MOON", mu = 1.0}',
            )
            return None
        cls = objectives.find(name)
        if cls is None:
            self.complain((*path, "name"), unknown("objective", name, sorted(objectives.registry)))
            return None
        return self.make(cls.__name__, cls, values, path)

    def problem(self) -> tuple[str, Any]:
        table = self.document.get("problem")
        if not isinstance(table, dict):
            self.complain(
                ("problem",),
                f"[problem] is missing; its name is one of {', '.join(catalog.registry)}",
            )
            return "", None
        name = table.get("name")
        if not isinstance(name, str):
            self.complain(
                ("problem", "name"), f"name is missing: one of {', '.join(catalog.registry)}"
            )
            return "", None
        try:
            self.kind, preset = catalog.find(name)
        except ValueError as error:
            self.complain(("problem", "name"), str(error))
            return "", None
        values = preset | {key: value for key, value in table.items() if key != "name"}
        clients = values.get("clients", getattr(self.kind, "clients", None))
        if "clients" in hints(self.kind) and fits(clients, hints(self.kind)["clients"]):
            self.clients = clients
        return name, self.make(self.kind.name, self.kind, values, ("problem",))

    # The methods.

    def announce(self) -> None:
        """Say which files are about to be executed."""
        files: dict[str, list[str]] = {}
        for table in self.tables:
            if "file" in table:
                files.setdefault(table["file"], []).append(str(table.get("label", table["name"])))
        if files and self.code:
            self.code(files)

    def loaded(self, i: int) -> type[Method] | None:
        """The class of the i-th method, from the file it names."""
        from undrift.check.template import BadFile
        from undrift.runs.plugins import load

        table = self.tables[i]
        if "file" not in table:
            return None
        try:
            found = {fold(cls.__name__): cls for cls in load(self.folder / table["file"])}
        except BadFile as error:
            self.complain(("method", i, "file"), str(error))
            return None
        if cls := found.get(fold(str(table.get("name")))):
            self.sources[table["file"]] = (self.folder / table["file"]).read_bytes()
            return cls
        names = [cls.__name__ for cls in found.values()]
        self.complain(
            ("method", i, "name"),
            unknown(f"method of {table['file']}", str(table.get("name")), names),
        )
        return None

    def entry(self, i: int, cls: type[Method] | None, settings: Values) -> Entry | None:
        """The i-th method; without its class, complaints about all that does not depend on it."""
        table, before = self.tables[i], len(self.complaints)
        if cls is None and not self.expected(i, table):
            return None
        training = self.training(i, settings)
        label: Any = table.get("label", table["name"] if cls is None else cls.__name__)
        if not (isinstance(label, str) and label.isprintable() and LABEL.fullmatch(label)):
            text = not_allowed("label", label, "1 to 40 printable characters, none of < > &")
            self.complain(("method", i, "label"), text)
        if cls is None:
            return None
        method = self.method(
            i, cls, {k: v for k, v in table.items() if k not in TRAINING and k not in OWN}
        )
        self.refusals(i, method, settings | training)
        if len(self.complaints) > before or "rounds" not in training:
            return None
        return Entry(**training, method=method, label=label, given=table, file=table.get("file"))

    def training(self, i: int, settings: Values) -> Values:
        """How the i-th method trains: as the top says, but for what its own table says."""
        own = {
            key: value
            for key, value in self.tables[i].items()
            if key in TRAINING and key != "objective"
        }
        wrong = {key: text for key, text in check("method", Training, own).items() if key in own}
        for key, text in wrong.items():
            self.complain(("method", i, key), text)
        self.pace(("method", i), own, settings)
        if "objective" in self.tables[i]:
            own["objective"] = self.objective(self.tables[i], ("method", i))
        top = {key: value for key, value in settings.items() if key in TRAINING}
        pace = {"steps": 1} if "epochs" in own else {"epochs": None} if "steps" in own else {}
        return top | pace | {key: value for key, value in own.items() if key not in wrong}

    def method(self, i: int, cls: type[Method], values: Values) -> Method:
        """The method itself; where that is not possible, complaints, and one to read declarations
        from.
        """
        wrong = check(cls.__name__, cls, values, theory=True)
        for key, value in values.items():
            if key not in hints(cls):
                wrong[key] = unknown(
                    f"parameter of {cls.__name__}", key, [*hints(cls), *TRAINING, "label"]
                )
            elif value == THEORY and key not in wrong and not has_rule(cls.__name__, key):
                wrong[key] = f"no theory prescribes {key} of {cls.__name__}: give it as a number"
        if not wrong:
            try:
                return cls(**values)
            except BadParameters as error:
                wrong = error.problems
        for key, text in wrong.items():
            self.complain(("method", i, key), text)
        return placeholder(cls)

    def expected(self, i: int, table: Values) -> bool:
        """Whether the i-th method may yet come from a file; if not, or not from that one, a
        complaint.
        """
        name, file = table.get("name"), table.get("file")
        if not isinstance(name, str):
            self.complain(
                ("method", i, "name"), f"name is missing: one of {', '.join(methods.__all__)}"
            )
        elif file is None:
            self.complain(("method", i, "name"), unknown("method", name, methods.__all__))
        elif not self.inside(file):
            text = "a Python file in the folder of the spec or below it"
            self.complain(("method", i, "file"), not_allowed("file", file, text))
        return isinstance(name, str) and file is not None

    def inside(self, file: Any) -> bool:
        if not (isinstance(file, str) and file.isprintable() and file.endswith(".py")):
            return False
        if File(file).is_absolute() or ".." in File(file).parts:
            return False
        return (self.folder / file).resolve().is_relative_to(self.folder.resolve())

    def refusals(self, i: int, method: Method, settings: Values) -> None:
        """What the method itself refuses, where the number of clients is known."""
        table, steps = self.tables[i], settings.get("steps", 1)
        for reason in method.refuse_decay(settings.get("decay", 1)):
            self.complain(("method", i, "decay") if "decay" in table else ("decay",), reason.text)
        if self.clients is None:
            return
        each = 1 if settings.get("epochs") and isinstance(steps, int) else steps
        cohort = settings["cohort"] or Sampling(self.clients)
        for reason in method.refuse(self.clients, cohort, each, settings.get("weights", "uniform")):
            self.complain(self.blamed(i, reason.text), reason.text)

    def blamed(self, i: int, reason: str) -> Path:
        """What a refusal is about."""
        if "weights" in reason:
            return ("weights",)
        if "cohort" in reason or "pool" in reason:
            table = isinstance(self.document.get("cohort"), dict)
            return ("cohort", "pool" if "pool of" in reason else "size") if table else ("cohort",)
        pace = next((key for key in ("steps", "epochs") if key in self.tables[i]), None)
        return ("method", i, pace) if pace else ("steps",)


def takes_objective(kind: type[catalog.Named]) -> bool:
    """Whether the local loss of a problem can be chosen."""
    return kind.objectives
