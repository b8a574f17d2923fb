"""A call of ``undrift.run`` as an experiment, and a dictionary as a spec."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path

from undrift.core.method import Method, registry
from undrift.core.params import BadParameters, fits, hints, plain, shown, values
from undrift.core.problem import Problem
from undrift.core.schedules import Listed
from undrift.core.stopping import USUALLY
from undrift.problems.named import made
from undrift.records.folder import Folder
from undrift.runs.arguments import setup
from undrift.runs.experiment import Experiment, make, unmeasured
from undrift.runs.prepare import build, placed, ready, resolved
from undrift.runs.script import code_of, describe
from undrift.runs.trial import Rules
from undrift.spec import writer
from undrift.spec.errors import BadSpec, Complaint, Place
from undrift.spec.lines import Keys
from undrift.spec.reader import parse
from undrift.spec.schema import FolderName, Settings, Table, as_toml

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
    seeds = checked.get("seeds") or [checked["seed"]]
    schedule = checked["schedule"]
    long = isinstance(schedule, Listed) and len(schedule.factors) > MOST_FACTORS
    if save is not None and long:
        text = f"more than {MOST_FACTORS} factors do not fit into the spec of a folder: {NAMED}"
        raise BadParameters("run", {"schedule": text})
    if isinstance(problem, str):
        if save is not None and _speakable(methods, checked):
            said = _in_a_spec(run_name(save), methods, problem, checked, seeds)
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
    rules = Rules(until, stop, best or stop or USUALLY, callbacks)
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


def _in_a_spec(
    name: str,
    methods: Mapping[str, Method],
    problem: str,
    checked: Table,
    seeds: Sequence[int],
) -> Experiment:
    top = {key: checked[key] for key in hints(Settings) if key in checked}
    if checked["epochs"] is not None:
        del top["steps"]
    tables = [
        {"name": type(method).__name__, "label": label, **values(method)}
        for label, method in methods.items()
    ]
    document = {"name": name, **top, "seeds": list(seeds)}
    if checked["store"] != "auto":
        document["engine"] = {"name": checked["engine"], "store": checked["store"]}
    document |= {"problem": {"name": problem, **checked["parameters"]}, "method": tables}
    try:
        return make(parse(_text(as_toml(document)), "run"))
    except BadSpec as error:
        raise BadParameters(
            "run", {".".join(map(str, c.path)): c.text for c in error.complaints}
        ) from None


def from_dictionary(
    source: Mapping[str, object], name: str, overrides: Sequence[str]
) -> Experiment:
    """The experiment of a spec whose content is given; complaints name the keys."""
    try:
        return make(parse(_text({"name": name, **source}), "spec", overrides))
    except BadSpec as error:
        raise BadSpec(map(_by_keys, error.complaints)) from None


def _by_keys(complaint: Complaint) -> Complaint:
    """The same complaint, placed by the keys of a dictionary instead of a line of its text."""
    if complaint.place.line is None:
        return complaint
    return dataclasses.replace(complaint, place=_place(complaint.path))


def _place(path: Keys) -> Place:
    return Place("spec" + "".join(f"[{key!r}]" for key in path))


def _text(document: Mapping[str, object]) -> str:
    """A dictionary as the text of a spec; ``None`` is what is left out."""

    def without(value: object, path: Keys) -> object:
        if isinstance(value, Mapping):
            some = {key: inner for key, inner in value.items() if inner is not None}
            return {key: without(inner, (*path, key)) for key, inner in some.items()}
        if isinstance(value, list):
            return [without(inner, (*path, k)) for k, inner in enumerate(value)]
        if isinstance(value, (str, int, float)):
            return value
        text = f"{shown(value)} is not allowed: texts, numbers, lists and tables"
        raise BadSpec([Complaint(path, text, _place(path))])

    found = without(plain(document), ())
    assert isinstance(found, dict)
    return writer.toml(found)
