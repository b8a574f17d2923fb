"""``undrift.run`` and its relatives: everything the command line can run, from Python."""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import get_overloads, overload

import numpy as np
import torch
from numpy.typing import NDArray

from undrift.core.cohort import Sampling
from undrift.core.faults import Fault, Judging, Rejection
from undrift.core.method import Method, registry
from undrift.core.optimisers import Optimiser
from undrift.core.options import Scope, Weights
from undrift.core.params import BadParameters, fits, hints, plain, shown
from undrift.core.problem import Problem
from undrift.core.robust import Robust
from undrift.core.schedules import Listed, Schedule
from undrift.core.schedules import schedule as read_schedule
from undrift.core.stopping import USUALLY, EarlyStopping, Goal
from undrift.engines import Engine
from undrift.engines.arguments import Setting
from undrift.problems.named import made
from undrift.runs import loggers as adapters
from undrift.runs import models
from undrift.runs.arguments import Methods, keeping, labelled, settle, setup
from undrift.runs.callbacks import Callback
from undrift.runs.events import Emit, Event, LeftOut, Measured, Unproven, ignore
from undrift.runs.experiment import Experiment, Result, make, unmeasured
from undrift.runs.folder import BadFolder, Folder, Row
from undrift.runs.followers import follow, meet, shared
from undrift.runs.journal import Key, key_of
from undrift.runs.keep import carry_out
from undrift.runs.prepare import build, placed, ready, resolve, resolved
from undrift.runs.results import BestModel, Recorded, Run, Runs, distrust, history
from undrift.runs.script import describe
from undrift.runs.trial import Rules
from undrift.spec import writer
from undrift.spec.errors import BadSpec, Complaint, Place
from undrift.spec.lines import Keys
from undrift.spec.reader import load as load_spec
from undrift.spec.reader import parse
from undrift.spec.schema import FolderName, Settings, Spec, Table, Values, as_toml, values

__all__ = ["Run", "Runs", "load", "prepare", "resolve", "resume", "run", "run_spec"]

Point = torch.Tensor | NDArray[np.generic] | Sequence[float]
Cohort = int | Sampling | Mapping[str, object]
Rule = str | Robust | Mapping[str, object]
Local = str | Optimiser | Mapping[str, object]
Rate = str | Schedule | Mapping[str, object] | Callable[[int], float]
FaultPlan = Sequence[Fault | Mapping[str, object]]
Judge = Judging | Mapping[str, object]
Stopping = EarlyStopping | Mapping[str, object]
Best = str | Goal | Mapping[str, object]
MOST_FACTORS = 10_000
"""Of a schedule in a folder, whose spec is read whole."""
NAMED = "use another of undrift.schedules than a function or a list, or leave out save"
SHARED = "only the runs of a spec can be shared among processes: leave out jobs"


# One method without ``seeds`` gives one run. These two signatures list the settings, with their
# defaults, and nothing else does: ``help`` shows the second one.
# fmt: off
@overload
def run(  # type: ignore[overload-overlap]
    method: Method, problem: Problem | str, *, rounds: int, seeds: None = None,
    save: str | Path | None = None, overwrite: bool = False, checkpoint: float | None = None,
    loggers: Sequence[str] = (), on_event: Emit | None = None, every: int = 1,
    per_client: bool = False, until: Callable[[Row], bool] | None = None,
    watch: Callable[[Row], None] | None = None, stop: Stopping | None = None,
    best: Best | None = None, callbacks: Callback | Sequence[Callback] = (),
    steps: int | Sequence[int] = 1,
    epochs: int | None = None, cohort: Cohort | None = None, batch: int | None = None,
    accumulate: int | None = None, reduction: Rule | None = None, x0: Point | None = None,
    seed: int = 0, dtype: str | torch.dtype | None = None, device: str | torch.device = "cpu",
    engine: str = "simulate", store: str = "auto", weight_decay: float = 0.0,
    clip: float | None = None, clip_scope: Scope = "task", decay: float = 1.0,
    schedule: Rate | None = None, local: Local | None = None, weights: Weights = "uniform",
    faults: FaultPlan | None = None, judge: Judge | None = None,
    problem_seed: int | None = None, **parameters: object,
) -> Run: ...
@overload
def run(
    method: Methods, problem: Problem | str, *, rounds: int, seeds: Sequence[int] | None = None,
    save: str | Path | None = None, overwrite: bool = False, checkpoint: float | None = None,
    loggers: Sequence[str] = (), on_event: Emit | None = None, every: int = 1,
    per_client: bool = False, until: Callable[[Row], bool] | None = None,
    watch: Callable[[Row], None] | None = None, stop: Stopping | None = None,
    best: Best | None = None, callbacks: Callback | Sequence[Callback] = (),
    steps: int | Sequence[int] = 1,
    epochs: int | None = None, cohort: Cohort | None = None, batch: int | None = None,
    accumulate: int | None = None, reduction: Rule | None = None, x0: Point | None = None,
    seed: int = 0, dtype: str | torch.dtype | None = None, device: str | torch.device = "cpu",
    engine: str = "simulate", store: str = "auto", weight_decay: float = 0.0,
    clip: float | None = None, clip_scope: Scope = "task", decay: float = 1.0,
    schedule: Rate | None = None, local: Local | None = None, weights: Weights = "uniform",
    faults: FaultPlan | None = None, judge: Judge | None = None,
    problem_seed: int | None = None, **parameters: object,
) -> Runs: ...
# fmt: on
def run(method: Methods, problem: Problem | str, *, rounds: int, **settings: object) -> Run | Runs:
    """Run a method on a problem and record it; several methods or seeds give :class:`Runs`.

    Hyper-parameters given as "theory" take their prescribed values. Everything wrong with the
    arguments is raised as one ``BadParameters``; what only the problem can tell, such as the length
    of ``x0``, as a ``ValueError``.

    Args:
        method: a method, several, or a mapping from labels to methods.
        problem: a problem, or the name of one, such as "logistic-a9a".
        rounds: rounds of communication, after which the method is done.
        seeds: run every method with each of these seeds, instead of one seed.
        save: folder of the run, as the command line makes it; the same call continues it.
        overwrite: replace an earlier run in that folder.
        checkpoint: seconds between checkpoints of a saved run, 0: after every round; left out: 10.
        loggers: also log every row of a saved run: "tensorboard", "mlflow".
        on_event: called with every event (undrift.runs.events) as it happens.
        every: rounds from one recorded row to the next.
        per_client: every row also measures each client on its own samples, for run.per_client; it
            takes about as long as a pass over all of them.
        until: a function of a row; the run ends early once it is true.
        watch: called with every row as it is recorded.
        stop: ends a run early: an EarlyStopping, or its parameters.
        best: what run.best is best in: a metric, or a table of metric and mode; left out: that of
            stop, else the gap, else the accuracy, else the loss.
        callbacks: called with a Moment of the run, which has the model, before a row is recorded;
            numbers that they return by name are recorded too.
        steps: local steps of a round: one number for all clients, or one for each.
        epochs: passes over a client's samples, instead of steps; needs a batch.
        cohort: clients that take part in a round: a number, or a Sampling or its parameters; left
            out: all of them.
        batch: samples of a mini-batch; left out: all that a client has.
        accumulate: mini-batches that a local gradient is the mean of, one after another, so that
            memory is that of one; left out: 1.
        reduction: a robust one that takes the place of the mean of the uploads, such as "median":
            a name, or a Robust or its name and parameters (undrift.core.robust).
        x0: the first point; left out: the problem's own.
        seed: decides cohorts, mini-batches and coins.
        dtype: float64 or float32, of models and gradients; left out: the problem's own.
        device: cpu, cuda, cuda:1 ...
        engine: simulate: the cohort side by side; wire: one client after another, by messages;
            distributed: the cohort dealt among processes (docs/beyond.md).
        store: where simulate keeps client states: device, host, file, or auto: the first with room.
        weight_decay: adds weight_decay * y to every local gradient.
        clip: largest norm of a gradient.
        clip_scope: what of a local step is clipped: task, whole or reference
            (undrift.core.options.Treatment).
        decay: factor on lr after every round.
        schedule: what lr is multiplied by in each round, instead of decay: one of undrift.schedules
            or its name and parameters, or a function of the number of the round, from 0.
        local: what takes the place of SGD in local steps, anew in every round: undrift.Momentum or
            undrift.AdamW, or its name ("adamw"), or its name and parameters.
        weights: uniform, or samples: clients count by their number of samples.
        faults: what clients do wrong on purpose: tables, each with a kind (docs/faults.md).
        judge: whose work counts, and when a run gives up: a table of norm, patience and late.
        problem_seed: the parameter seed of a named problem: decides its data, its split, its first
            weights.
        **parameters: the other parameters of a named problem.

    >>> import undrift as ud
    >>> run = ud.run(ud.Scaffold(lr=0.05), "quadratic", rounds=50, steps=4)
    >>> run.status, bool(run.history["gap"][-1] < run.history["gap"][0])
    ('done', True)
    """
    given: Values = {name: settings.pop(name, usual) for name, usual in DEFAULTS.items()}
    methods = labelled(method)
    checked = settle(methods.values(), problem, {"rounds": rounds, **given}, settings)
    one = isinstance(method, Method) and given["seeds"] is None
    experiment = _experiment(methods, problem, checked, given["save"])
    emit = _both(given["on_event"], given["watch"])
    keep = {name: given[name] for name in ("save", "overwrite", "loggers", "checkpoint")}
    found = _run(experiment, emit=emit, **keep)
    return next(iter(found.values())) if one else found


_SIGNATURE = inspect.signature(get_overloads(run)[-1])
run.__signature__ = _SIGNATURE.replace(return_annotation="Run | Runs")  # type: ignore[attr-defined]
DEFAULTS = {
    name: parameter.default
    for name, parameter in _SIGNATURE.parameters.items()
    if parameter.default is not inspect.Parameter.empty
}
"""The settings of a run that may be left out, and what they are then."""
OF_SPECS = [name for name in ("rounds", *DEFAULTS) if name in hints(Settings)]
"""The settings that a spec has too."""
OF_ENGINES = (*hints(Setting), "dtype", "device", "engine", "store", "problem_seed")
"""The settings that an engine is made with."""


def prepare(method: Method, problem: Problem | str, **setting: object) -> Engine:
    """The engine of a :func:`run`, before its first round; takes the same settings."""
    given = {name: setting.pop(name, DEFAULTS[name]) for name in OF_ENGINES}
    checked = settle([method], problem, {**given, "rounds": 1, "every": 1}, setting)
    checked["schedule"] = read_schedule(given["schedule"])  # of any number of rounds
    experiment = _experiment(labelled(method), problem, checked, None)
    return experiment.tasks[0].engine(checked["seed"])


def run_spec(
    source: str | Path | Mapping[str, object],
    *,
    save: str | Path | None = None,
    overrides: Sequence[str] = (),
    overwrite: bool = False,
    checkpoint: float | None = None,
    loggers: Sequence[str] = (),
    on_event: Emit | None = None,
    jobs: int = 1,
) -> Runs:
    """Run a spec: a TOML file, or its content as a dictionary.

    ``overrides`` are "KEY=VALUE", as after ``undrift run -s``; ``save`` is the folder of the run,
    with a checkpoint every ``checkpoint`` seconds (left out: 10).
    ``jobs`` processes share the work of a saved run; the numbers do not depend on it. Python files
    that a spec names are executed. Raises :class:`undrift.spec.errors.BadSpec`.

    >>> import undrift as ud
    >>> method = {"name": "FedAvg", "lr": 0.05}
    >>> spec = {"rounds": 3, "problem": {"name": "quadratic"}, "method": [method]}
    >>> ud.run_spec(spec)["FedAvg", 0].status
    'done'
    """
    given = {"save": save, "overwrite": overwrite, "checkpoint": checkpoint, "loggers": loggers}
    wrong = keeping({**given, "jobs": jobs})
    if wrong:
        raise BadParameters("run_spec", wrong)
    if isinstance(source, Mapping):
        name = "spec" if save is None else _name(save)
        try:
            experiment = make(parse(_text({"name": name, **source}), "spec", overrides))
        except BadSpec as error:
            raise BadSpec(map(_by_keys, error.complaints)) from None
    else:
        experiment = make(load_spec(source, overrides))
    return _run(experiment, save, overwrite, loggers, on_event or ignore, jobs, checkpoint)


def resume(
    folder: str | Path,
    method: Methods | None = None,
    problem: Problem | None = None,
    *,
    x0: Point | None = None,
    until: Callable[[Row], bool] | None = None,
    callbacks: Callback | Sequence[Callback] = (),
    trust: bool = False,
    checkpoint: float | None = None,
    loggers: Sequence[str] = (),
    on_event: Emit | None = None,
    jobs: int = 1,
) -> Runs:
    """Continue a run that was interrupted, from its last checkpoints.

    A folder of a spec, or of a named problem, says everything itself; ``trust`` lets it execute
    the Python files it brings. A run of your own problem needs that problem and the methods again,
    and ``x0``, ``until`` and ``callbacks`` where they were given.
    """
    place = Folder.of_run(folder)
    document = place.document()
    emit = on_event or ignore
    wrong = keeping({"checkpoint": checkpoint, "loggers": loggers, "jobs": jobs})
    given: dict[str, object] = {"method": method, "problem": problem, "x0": x0, "until": until}
    given["callbacks"] = callbacks or None
    if not place.from_python:
        text = f"{place.path} says everything itself: leave out what decides the numbers"
        wrong |= {name: text for name, value in given.items() if value is not None}
    elif jobs != 1:
        wrong["jobs"] = SHARED
    if wrong:
        raise BadParameters("resume", wrong)
    if not place.from_python:
        trusting = "undrift.resume(folder, trust=True)"
        spec = load_spec(place.file("spec.toml"), code=None if trust else distrust(trusting))
        return _run(make(spec), place.path, False, loggers, emit, jobs, checkpoint)
    if method is None or problem is None:
        raise BadFolder(place.from_python)
    settings: Values = {k: v for k, v in document.items() if k in OF_SPECS}
    return run(
        labelled(method),
        problem,
        save=place.path,
        loggers=loggers,
        on_event=on_event,
        x0=x0,
        until=until,
        callbacks=callbacks,
        checkpoint=checkpoint,
        dtype=document["problem"]["dtype"],
        **settings,
    )


def load(folder: str | Path) -> Recorded:
    """Read a run folder, finished or not: records, outcomes, models, spec."""
    place = Folder.of_run(folder)
    return Recorded(place, place.document(), *place.record(), place.left_out(), place.clients())


def _experiment(
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
            said = _in_a_spec(_name(save), methods, problem, checked, seeds)
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
    name = "run" if save is None else _name(save)
    stop, best = checked["stop"], checked["best"]
    rules = Rules(until, stop, best or stop or USUALLY, callbacks)
    if wrong := unmeasured(rules, tasks[0]):
        raise BadParameters("run", wrong)
    recipe = describe(name, tasks, seeds, checked)
    data = problem.digest() if save is not None else None
    return Experiment(recipe, tasks, seeds, rules=rules, data=data, alike=not callbacks)


def _name(save: str | Path) -> str:
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
    top = {key: checked[key] for key in OF_SPECS if key in checked}
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


def _both(on_event: Emit | None, watch: Callable[[Row], None] | None) -> Emit:
    def emit(event: Event) -> None:
        if on_event:
            on_event(event)
        if watch and isinstance(event, Measured):
            watch(event.row)

    return emit


def _run(
    experiment: Experiment,
    save: str | Path | None,
    overwrite: bool,
    loggers: Sequence[str],
    emit: Emit,
    jobs: int = 1,
    checkpoint: float | None = None,
) -> Runs:
    """Run an experiment, in a folder if it is to be saved."""
    wrong = {f"loggers.{name}": text for name, text in adapters.missing(loggers).items()}
    if save is None and (loggers or jobs > 1):
        wrong["save"] = "loggers and several jobs need a folder: give save"
    if jobs > 1 and not isinstance(experiment.recipe, Spec):
        wrong["jobs"] = SHARED
    if wrong:
        raise BadParameters("run", wrong)
    ranks = shared(experiment)
    if jobs > 1 and ranks is not None:
        wrong["jobs"] = "the engine distributed shares each run among its processes: leave out jobs"
        raise BadParameters("run", wrong)
    if save is None:
        measured, rejected, apart = list[Row](), list[Row](), list[Row]()

        def hear(event: Event) -> None:
            if isinstance(event, Measured):
                measured.append({"label": event.label, "seed": event.seed, **event.row})
                if event.clients is not None:
                    apart.append({"label": event.label, "seed": event.seed, **event.clients})
            elif isinstance(event, LeftOut):
                about = {"label": event.label, "seed": event.seed}
                rejected.extend({**about, **one._asdict()} for one in event.rejections)
            emit(event)

        return _collect(experiment, list(experiment.run(emit=hear)), measured, rejected, apart)
    folder = Folder(Path(save))
    if ranks is not None and ranks.rank:
        meet(experiment, ranks)
        follow(experiment, ranks, emit)
        rows, outcomes = folder.record()
        results = [Result(outcome) for outcome in outcomes]
        return _collect(experiment, results, rows, folder.left_out(), folder.clients(), folder)
    state = folder.state(experiment.recipe)
    if state == "other" and not overwrite:
        changed = (
            "; ".join(folder.differences(experiment.recipe)) or "its Python files have changed"
        )
        raise BadFolder(
            f"{folder.path} holds another run: {changed}. Give another folder, or overwrite=True"
        )
    if state == "same" and not overwrite:
        if not folder.on_data(experiment.data):
            emit(Unproven(folder.path))
        folder.tidy()
        if ranks is not None:
            meet(experiment, ranks)
            ranks.tell(None)
        rows, outcomes = folder.record()
        results = [Result(outcome) for outcome in outcomes]
    else:
        results = carry_out(
            experiment,
            folder,
            afresh=overwrite,
            emit=emit,
            pause=checkpoint,
            loggers=loggers,
            jobs=jobs,
        )
        if not folder.complete:
            raise RuntimeError(f"{folder.path} is not finished: a process died; undrift.resume it")
        rows = folder.recorded()
    return _collect(experiment, results, rows, folder.left_out(), folder.clients(), folder)


def _collect(
    experiment: Experiment,
    results: Sequence[Result],
    rows: Iterable[Row],
    left_out: Iterable[Row],
    apart: Iterable[Row],
    folder: Folder | None = None,
) -> Runs:
    """The runs that results and rows describe."""
    recorded, of_clients = dict[Key, list[Row]](), dict[Key, list[Row]]()
    for some, found_rows in ((rows, recorded), (apart, of_clients)):
        for row in some:
            found_rows.setdefault(key_of(row), []).append(row)
    rejected: dict[Key, list[Rejection]] = {}
    for row in left_out:
        one = Rejection(*(row[name] for name in Rejection._fields))
        rejected.setdefault(key_of(row), []).append(one)
    found: dict[Key, Run] = {}
    for outcome, engine, last, best in results:
        source = outcome.seed if outcome.same_as is None else outcome.same_as
        task = experiment.at(outcome.seed)[experiment.order[outcome.key]]
        model = None if last is None else last.clone()
        chosen = None
        if best is not None and best.x is not None:
            chosen = BestModel(best.metric, best.value, best.round, best.x, task.problem)
        if engine is None and folder and "last" in outcome.files:
            model = _read(folder, task.problem, outcome.files["last"])
            if outcome.best and "best" in outcome.files:
                about: Table = outcome.best
                x = _read(folder, task.problem, outcome.files["best"])
                chosen = BestModel(**about, x=x, problem=task.problem)
        elif engine is None and outcome.same_as is not None:
            model, chosen = found[outcome.label, source].x, found[outcome.label, source].best
        found[outcome.key] = Run(
            task.method,
            task.problem,
            engine,
            history(recorded.get((outcome.label, source), ())),
            outcome.status,
            outcome.label,
            outcome.seed,
            outcome.note,
            model,
            outcome.suggested,
            rejected.get((outcome.label, source), []),
            of_clients.get((outcome.label, source), []),
            chosen,
        )
    return Runs(found, folder.path if folder else None)


def _read(folder: Folder, problem: Problem, file: str) -> torch.Tensor:
    return models.vector(problem, models.read(folder.file(file)))
