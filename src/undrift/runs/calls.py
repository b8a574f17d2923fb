"""A call of ``undrift.run``: its arguments, its experiment, and the recipe of its folder."""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple, Self

import numpy as np
import torch

from undrift._device import absent
from undrift.core.method import Method
from undrift.core.options import RunOptions, conflicts
from undrift.core.params import (
    BadParameters,
    Count,
    NonNegative,
    Record,
    describe,
    fits,
    hints,
    made,
    not_allowed,
    read,
    unknown,
    values,
)
from undrift.core.problem import Problem
from undrift.core.schedules import Computed, Listed
from undrift.core.stopping import USUALLY
from undrift.engines.engine import first_point, not_methods
from undrift.problems import named as catalog
from undrift.problems.named import Named
from undrift.records.folder import PYTHON, Folder, Script
from undrift.runs.callbacks import Observers, name_of
from undrift.runs.code import code_digest, installed
from undrift.runs.experiment import Experiment, unmeasured
from undrift.runs.jobs import ExecutorLike
from undrift.runs.prepare import Setup, Task, placed, ready, resolved
from undrift.runs.tensorboard import missing
from undrift.runs.trial import TrialRules
from undrift.spec.errors import Origin
from undrift.spec.schema import (
    Entry,
    FolderName,
    Label,
    Settings,
    Spec,
    Values,
    as_toml,
)

Methods = Method | Sequence[Method] | Mapping[str, Method]

MOST_FACTORS = 10_000
"""Of a schedule in a folder, whose spec is read within bounds."""


def labelled(methods: Methods) -> dict[str, Method]:
    """Label -> method; a method without a label has that of its class."""
    listed = methods if isinstance(methods, list | tuple) else [methods]
    by_class = [(type(one).__name__, one) for one in listed]
    pairs: list[Any] = [*methods.items()] if isinstance(methods, Mapping) else by_class
    found = {str(label): one for label, one in pairs}
    if len(found) < max(len(pairs), 1) or not fits([*found], list[Label]):
        text = f"give a method, or several by labels that differ, each {describe(Label)}"
        raise BadParameters("run", {"method": not_allowed("method", methods, text)})
    return found


@dataclasses.dataclass(frozen=True)
class Save(Record):
    """The folder of a run, and how it is kept.

    Args:
        folder: its path; the same call continues the run in it.
        overwrite: replace an earlier run there.
        checkpoint: seconds between checkpoints, 0: after every round; left out: 10.
        loggers: also log every row: "tensorboard".
        jobs: processes that share methods and seeds, or an executor of such that see the folder.
    """

    owner = "save"

    folder: str | Path
    overwrite: bool = False
    checkpoint: NonNegative | None = None
    loggers: list[Literal["tensorboard"]] = dataclasses.field(default_factory=list)
    jobs: Count | ExecutorLike = 1

    @classmethod
    def read(cls, given: object) -> Self:
        """From the path of a folder too."""
        return made(cls, {"folder": given} if isinstance(given, str | Path) else given)

    def conditions(self) -> dict[str, str]:
        return {"loggers": missing()} if self.loggers and missing() else {}


INSTEAD = {
    "best": "callbacks=[ud.Goal(metric=...)]",
    "stop": "callbacks=[ud.EarlyStopping(...)]",
    "target": 'callbacks=[ud.EarlyStopping(metric="gap", target=...)]',
    "per_client": "callbacks=[ud.PerClient()]",
    "vary": "a problem that you build with each seed, or ud.run_spec",
}
"""Settings of specs, and what a call of ``undrift.run`` has for them."""
NEEDED = ("rounds", "engine", "device", "seed")
"""What cannot be left out by giving ``None``."""


class Call(NamedTuple):
    """The arguments of ``undrift.run``, as they are declared."""

    methods: dict[str, Method]
    problem: Problem | Named
    name: str
    """Of a named problem."""
    settings: Settings
    observers: Observers
    x0: object
    save: Save | None


def settle(
    method: Methods,
    problem: Problem | str | Mapping[str, object],
    given: Mapping[str, object],
    parameters: Mapping[str, object],
) -> Call:
    """What a call asks for. Raises :class:`BadParameters` with everything that is wrong with it."""
    methods, named = labelled(method), dict[str, Any](parameters)
    if isinstance(problem, Mapping):
        named = {**problem, **named}
        problem = str(named.pop("name", "")) or "a table without its name"
    asked = {name: _name(v) for name, v in given.items() if v is not None or name in NEEDED}
    mine = {name: value for name, value in asked.items() if name in hints(Settings)}
    settings, wrong = read(Settings, mine, kind="setting", partial=True)
    wrong |= conflicts(settings, mine.get("batch"))
    for one in methods.values():
        wrong |= not_methods(one, problem)
    if not isinstance(given.get("progress"), bool | None):
        wrong["progress"] = not_allowed("progress", given["progress"], "true or false, or left out")
    if "device" in settings and (text := absent(settings["device"])):
        wrong["device"] = text
    observers, save = Observers(), None
    try:
        observers = Observers.read(asked.get("callbacks", ()))
    except BadParameters as error:
        wrong |= error.problems
    try:
        save = None if given.get("save") is None else Save.read(given["save"])
    except BadParameters as error:
        wrong |= error.under("save")
    what: Any = problem
    if "problem" not in wrong and not isinstance(problem, Method):
        try:
            what = _problem(problem, named, [*given])
        except BadParameters as error:
            wrong |= error.problems
    wrong |= {
        name: f"{name} is for specs: in Python give {text}"
        for name, text in INSTEAD.items()
        if name in wrong
    }
    if wrong:
        raise BadParameters("run", wrong)
    schedule = settings.get("schedule")
    if isinstance(schedule, Computed):  # by its factors, which folders and other processes can have
        schedule = settings["schedule"] = schedule.listed(settings["rounds"])
    if save and isinstance(schedule, Listed) and len(schedule.factors) > MOST_FACTORS:
        text = f"a folder holds {MOST_FACTORS} factors: use another schedule, or leave out save"
        raise BadParameters("run", {"schedule": text})
    settings |= {"stop": observers.stop, "best": observers.best}
    settings["per_client"] = observers.per_client is not None
    whole = Settings(**{"name": "run", **settings})
    name = problem if isinstance(problem, str) else ""
    return Call(methods, what, name, whole, observers, given["x0"], save)


def _problem(
    problem: Problem | str, parameters: Mapping[str, object], settings: list[str]
) -> Problem | Named:
    """A problem, or the parameters of a named one; a misspelt setting is among them."""
    if not isinstance(problem, str):
        if wrong := {name: unknown("setting", name, settings) for name in parameters}:
            raise BadParameters("run", wrong)
        return problem
    try:
        kind, preset = catalog.find(problem)
    except ValueError as error:
        raise BadParameters("run", {"problem": str(error)}) from None
    found: Named = made(
        kind,
        {**preset, **parameters},
        kind=f"setting or parameter of {problem}",
        names=[*hints(kind), *settings],
    )
    return found


def _name(value: object) -> object:
    """Types and devices of torch, and types of NumPy, by their names."""
    if isinstance(value, type) and issubclass(value, np.generic):
        return np.dtype(value).name
    if isinstance(value, torch.dtype | torch.device):
        return str(value).removeprefix("torch.")
    return value


def experiment_of(call: Call) -> Experiment:
    """The experiment of a call; a folder keeps it as a spec where one can say it all."""
    settings, save, observers = call.settings, call.save, call.observers
    given = call.problem.build() if isinstance(call.problem, Named) else call.problem
    problem = placed(given, settings.dtype, settings.device)
    options = {name: getattr(settings, name) for name in hints(RunOptions)}
    x0 = None if call.x0 is None else first_point(call.x0, problem)
    how = Setup(**options, x0=x0, engine=settings.engine)
    extent = settings.rounds, settings.every, settings.per_client
    tasks = [
        ready(resolved(label, method, problem, how, *extent))
        for label, method in call.methods.items()
    ]
    goal = observers.best or observers.stop or USUALLY
    rules = TrialRules(None, observers.stop, goal, observers.functions)
    # Callbacks may measure anything.
    if not observers.functions and (wrong := unmeasured(rules, tasks[0], settings.per_client)):
        raise BadParameters("run", wrong)
    nothing, alike = Script("run", {}), not observers.functions
    experiment = Experiment(nothing, tasks, settings.seeds, rules=rules, alike=alike)
    if save is None:
        return experiment
    experiment = dataclasses.replace(experiment, data=problem.digest())
    if isinstance(call.problem, Named) and _speakable(call):
        recipe = _spec(call, call.problem, save, RunOptions(**options))
        return dataclasses.replace(experiment, recipe=recipe)
    script = _recipe(run_name(save.folder), call, tasks)
    return dataclasses.replace(experiment, recipe=script, code=code_of(tasks, observers))


def run_name(save: str | Path) -> str:
    """The name of the run in a folder: the one that it has already, else the folder's own."""
    kept, own = Folder(Path(save)).document().get("name"), Path(save).name
    return str(kept or (own if fits(own, FolderName) else "run"))


def _speakable(call: Call) -> bool:
    """Whether a spec can say all of a call on a named problem."""
    modules = [type(method).__module__ for method in call.methods.values()]
    ours = all(module.startswith("undrift.methods.") for module in modules)
    return ours and call.x0 is None and not call.observers.functions


def _spec(call: Call, problem: Named, save: Save, options: RunOptions) -> Spec:
    """What a spec of a call would be read as."""
    top = {**vars(call.settings), "name": run_name(save.folder)}
    entries = tuple(
        Entry(
            method=method,
            rounds=top["rounds"],
            options=options,
            objective=None,
            label=label,
            given={"name": type(method).__name__, "label": label, **values(method)},
        )
        for label, method in call.methods.items()
    )
    return Spec(
        **top,
        problem=problem,
        problem_name=call.name,
        entries=entries,
        origin=Origin("run"),
    )


def _recipe(name: str, call: Call, tasks: Sequence[Task]) -> Script:
    """The recipe of a call: settings and methods in full, the problem by its facts."""
    first, start = tasks[0], tasks[0].setup.x0
    tables = call.settings.top() | {"every": first.every}
    del tables["name"]
    if start is not None:
        tables["x0"] = hashlib.sha256(start.detach().cpu().numpy().tobytes()).hexdigest()
    if call.observers.functions:
        tables["callbacks"] = [name_of(callback) for callback in call.observers.functions]
    methods = [
        {"name": type(task.written).__name__, "label": task.label, **values(task.written)}
        for task in tasks
    ]
    return Script(name, as_toml({**tables, "problem": _facts(first.problem), "method": methods}))


def code_of(tasks: Sequence[Task], given: Observers) -> dict[str, str | None]:
    """The digest of each part of a call that no document can hold; ``None`` if it has none.

    Methods and settings of undrift's own are in the document. Callbacks are known by name alone:
    one that failed may be mended.
    """
    first = tasks[0]
    things = dict(first.problem.choices())
    if not installed(type(first.problem).__module__):
        things["problem"] = type(first.problem)
    things |= {f"method {task.label}": task.written for task in tasks if _is_own(task.written)}
    settings = {**vars(first.setup), "stop": given.stop, "best": given.best}
    things |= {name: value for name, value in settings.items() if _is_own(value)}
    return {name: code_digest(thing) for name, thing in things.items()}


def _is_own(value: object) -> bool:
    parts = value if isinstance(value, list | tuple) else [value]
    return not all(installed(type(part).__module__) for part in parts)


def _facts(problem: Problem) -> Values:
    kind, precision = type(problem), getattr(problem, "precision", "f32")
    return {
        "name": kind.__name__,
        PYTHON: f"{kind.__module__}.{kind.__qualname__}",
        "clients": problem.clients,
        "dim": problem.dim,
        "samples": sum(problem.samples),
        "dtype": str(problem.dtype).removeprefix("torch."),
        **({} if precision == "f32" else {"precision": precision}),
    }
