"""A call of ``undrift.run`` as an experiment, and a dictionary as a spec."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path

from undrift.core import params
from undrift.core.method import Method, registry
from undrift.core.params import BadParameters, fits, hints, not_allowed, plain, values
from undrift.core.problem import Problem
from undrift.core.schedules import Listed
from undrift.core.stopping import USUALLY
from undrift.engines.named import registry as engines
from undrift.problems.named import made
from undrift.records.folder import Folder
from undrift.runs.arguments import engine_options, setup
from undrift.runs.experiment import Experiment, make, unmeasured
from undrift.runs.prepare import build, placed, ready, resolved
from undrift.runs.script import code_of, describe
from undrift.runs.trial import TrialRules
from undrift.spec.errors import BadSpec, Origin
from undrift.spec.reader import interpret
from undrift.spec.schema import Entry, FolderName, Label, Settings, Spec, Table, Training, Values

MOST_FACTORS = 10_000
"""Of a schedule in a folder, whose spec is read whole."""
NAMED = "use another of undrift.schedules than a function or a list, or leave out save"


def experiment_of(
    methods: Mapping[str, Method],
    problem: Problem | str,
    checked: Table,
    save: str | Path | None,
) -> Experiment:
    """The experiment of a call: of a spec where one can say it all, else of what was given."""
    seeds = checked["seeds"]
    schedule = checked["schedule"]
    long = isinstance(schedule, Listed) and len(schedule.factors) > MOST_FACTORS
    if save is not None and long:
        text = f"more than {MOST_FACTORS} factors do not fit into the spec of a folder: {NAMED}"
        raise BadParameters("run", {"schedule": text})
    if isinstance(problem, str):
        if save is not None and _speakable(methods, checked):
            try:
                said = make(_spec(run_name(save), methods, problem, checked))
            except BadSpec as error:
                found = {".".join(map(str, c.path)): c.text for c in error.complaints}
                raise BadParameters("run", found) from None
            return dataclasses.replace(said, tolerant=False)
        kind = made(problem, **checked["parameters"])
        problem = build(kind, None, checked["dtype"], checked["device"])
    else:
        problem = placed(problem, checked["dtype"], checked["device"])
    how, until, callbacks = setup(checked, problem), checked.get("until"), checked["callbacks"]
    extent = checked["rounds"], checked["every"], checked.get("per_client", False)
    tasks = [
        ready(resolved(label, method, problem, how, *extent)) for label, method in methods.items()
    ]
    name = "run" if save is None else run_name(save)
    stop, best = checked["stop"], checked["best"]
    rules = TrialRules(until, stop, best or stop or USUALLY, callbacks)
    if wrong := unmeasured(rules, tasks[0]):
        raise BadParameters("run", wrong)
    recipe = describe(name, tasks, seeds, checked)
    kept = save is not None
    data, code = problem.digest() if kept else None, code_of(tasks, checked) if kept else {}
    return Experiment(recipe, tasks, seeds, rules=rules, data=data, code=code, alike=not callbacks)


def run_name(save: str | Path) -> str:
    """The name of the run in a folder: the one that it has already, else the folder's own."""
    kept, own = Folder(Path(save)).document().get("name"), Path(save).name
    return str(kept or (own if fits(own, FolderName) else "run"))


def _speakable(methods: Mapping[str, Method], checked: Table) -> bool:
    """Whether a spec can say all of a call on a named problem."""
    kinds = [type(method) for method in methods.values()]
    known = all(kind is registry.get(kind.__name__) for kind in kinds)
    ours = all(kind.__module__.startswith("undrift.methods.") for kind in kinds)
    said = checked["x0"] is None and checked.get("until") is None and not checked["callbacks"]
    return known and ours and said


def _spec(
    name: str,
    methods: Mapping[str, Method],
    problem: str,
    checked: Table,
) -> Spec:
    """What a spec of a call would be read as."""
    if wrong := [label for label in methods if not fits(label, Label)]:
        raise BadParameters(
            "run", {"method": not_allowed("label", wrong[0], params.describe(Label))}
        )
    top = {key: checked[key] for key in hints(Settings) if key in checked}
    training = {key: top[key] for key in hints(Training) if key in top}
    entries = tuple(
        Entry(
            **training,
            method=method,
            label=label,
            given={"name": type(method).__name__, "label": label, **values(method)},
        )
        for label, method in methods.items()
    )
    options = engines[checked["engine"]].options
    return Spec(
        **{**top, "name": name},
        problem=made(problem, **checked["parameters"]),
        problem_name=problem,
        entries=entries,
        engine_options=params.made(options, engine_options(checked)),
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
