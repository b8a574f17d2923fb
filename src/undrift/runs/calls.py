"""A call of ``undrift.run`` as an experiment, and a dictionary as a spec."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path

from undrift.core import params
from undrift.core.method import registry
from undrift.core.options import RunOptions
from undrift.core.params import BadParameters, fits, hints, not_allowed, plain, values
from undrift.core.schedules import Listed
from undrift.core.stopping import USUALLY
from undrift.problems.named import made
from undrift.records.folder import Folder
from undrift.runs.arguments import Call, Save, setup
from undrift.runs.experiment import Experiment, make, unmeasured
from undrift.runs.prepare import build, placed, ready, resolved
from undrift.runs.script import code_of, describe
from undrift.runs.trial import TrialRules
from undrift.spec.errors import BadSpec, Origin
from undrift.spec.reader import interpret
from undrift.spec.schema import Entry, FolderName, Label, Spec, Values

MOST_FACTORS = 10_000
"""Of a schedule in a folder, whose spec is read whole."""
NAMED = "use another of undrift.schedules than a function or a list, or leave out save"


def experiment_of(call: Call) -> Experiment:
    """The experiment of a call: of a spec where one can say it all, else of what was given."""
    settings, save, observers = call.settings, call.save, call.observers
    schedule = settings["schedule"]
    long = isinstance(schedule, Listed) and len(schedule.factors) > MOST_FACTORS
    if save is not None and long:
        text = f"more than {MOST_FACTORS} factors do not fit into the spec of a folder: {NAMED}"
        raise BadParameters("run", {"schedule": text})
    place = settings["dtype"], settings["device"]
    if isinstance(call.problem, str):
        if save is not None and _speakable(call):
            try:
                said = make(_spec(call, call.problem, save))
            except BadSpec as error:
                found = {".".join(map(str, c.path)): c.text for c in error.complaints}
                raise BadParameters("run", found) from None
            return dataclasses.replace(said, tolerant=False)
        problem = build(made(call.problem, **call.parameters), None, *place)
    else:
        problem = placed(call.problem, *place)
    how = setup(call, problem)
    extent = settings["rounds"], settings["every"], settings["per_client"]
    tasks = [
        ready(resolved(label, method, problem, how, *extent))
        for label, method in call.methods.items()
    ]
    goal = observers.best or observers.stop or USUALLY
    rules = TrialRules(None, observers.stop, goal, observers.functions)
    if wrong := unmeasured(rules, tasks[0]):
        raise BadParameters("run", wrong)
    name = "run" if save is None else run_name(save.folder)
    seeds = settings["seed"] if isinstance(settings["seed"], list) else [settings["seed"]]
    recipe = describe(name, tasks, seeds, settings, observers.functions)
    kept = (problem.digest(), code_of(tasks, observers)) if save is not None else (None, {})
    return Experiment(
        recipe, tasks, seeds, rules=rules, data=kept[0], code=kept[1],
        alike=not observers.functions,
    )  # fmt: skip


def run_name(save: str | Path) -> str:
    """The name of the run in a folder: the one that it has already, else the folder's own."""
    kept, own = Folder(Path(save)).document().get("name"), Path(save).name
    return str(kept or (own if fits(own, FolderName) else "run"))


def _speakable(call: Call) -> bool:
    """Whether a spec can say all of a call on a named problem."""
    kinds = [type(method) for method in call.methods.values()]
    known = all(kind is registry.get(kind.__name__) for kind in kinds)
    ours = all(kind.__module__.startswith("undrift.methods.") for kind in kinds)
    return known and ours and call.x0 is None and not call.observers.functions


def _spec(call: Call, problem: str, save: Save) -> Spec:
    """What a spec of a call would be read as."""
    if wrong := [label for label in call.methods if not fits(label, Label)]:
        raise BadParameters(
            "run", {"method": not_allowed("label", wrong[0], params.describe(Label))}
        )
    top = call.settings | {"name": run_name(save.folder)}
    options = RunOptions(**{key: top[key] for key in hints(RunOptions)})
    entries = tuple(
        Entry(
            label=label,
            method=method,
            rounds=top["rounds"],
            options=options,
            objective=None,
            given={"name": type(method).__name__, "label": label, **values(method)},
        )
        for label, method in call.methods.items()
    )
    return Spec(
        **top,
        problem=made(problem, **call.parameters),
        problem_name=problem,
        entries=entries,
        origin=Origin("run"),
    )


def from_dictionary(
    source: Mapping[str, object], name: str, overrides: Sequence[str]
) -> Experiment:
    """The experiment of a spec whose content is given; complaints name the keys."""
    return make(interpret(_without_none({"name": name, **source}), Origin("spec"), overrides))


def _without_none(table: Mapping[str, object]) -> Values:
    """A dictionary as TOML would have it: ``None`` is what is left out."""

    def clean(value: object) -> object:
        if isinstance(value, Mapping):
            return {str(key): clean(inner) for key, inner in value.items() if inner is not None}
        return [clean(inner) for inner in value] if isinstance(value, list | tuple) else value

    return {key: clean(value) for key, value in plain(table).items() if value is not None}
