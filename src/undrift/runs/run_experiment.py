"""Experiments run to the end: in memory, in a folder, or as one of several processes."""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Sequence
from pathlib import Path

import torch
from torch import Tensor

from undrift import __version__
from undrift.core.faults import Rejection
from undrift.core.params import AUTO, THEORY, BadParameters, Count, describe, fits, not_allowed
from undrift.core.problem import Problem
from undrift.engines.checkpoint import Shelf
from undrift.engines.options import DistributedOptions
from undrift.engines.ranks import Parted, Ranks, WorkFailed
from undrift.records import models
from undrift.records.differences import curves
from undrift.records.folder import (
    METRIC_SAMPLES,
    SPECS,
    BadFolder,
    Folder,
    Row,
)
from undrift.records.journal import Journal, RunRecord
from undrift.records.part import PART, WHOLE
from undrift.records.rows import Key, Outcome
from undrift.runs.calls import Save
from undrift.runs.environment import environment
from undrift.runs.events import Emit, Ended, Event, LeftOut, Measured, Notice, ignore
from undrift.runs.experiment import Experiment
from undrift.runs.jobs import ExecutorLike, run_jobs
from undrift.runs.prepare import threads
from undrift.runs.results import History, Run, Runs
from undrift.runs.tensorboard import TensorBoard
from undrift.runs.trial import PAUSE, MethodResult, RunPlace, StopSignal, Trial
from undrift.spec.schema import Spec, Table, varied

SPREAD = (
    "where the run is saved, and other processes can make it from its spec: a problem by name, "
    "methods of undrift's or by file, no callbacks, not the engine distributed"
)
"""Where jobs can be several."""


def run_experiment(
    experiment: Experiment,
    save: Save | None,
    emit: Emit,
    jobs: int | ExecutorLike = 1,
) -> Runs:
    """Run an experiment, in a folder if it is to be saved, and gather its runs."""
    ranks, field = shared(experiment), "jobs"
    if save is not None and save.jobs != 1 and jobs == 1:
        jobs, field = save.jobs, "save.jobs"
    spread = save is not None and isinstance(experiment.recipe, Spec) and ranks is None
    if not fits(jobs, Count | ExecutorLike) or (jobs != 1 and not spread):
        allowed = f"{describe(Count | ExecutorLike)}; others than 1 {SPREAD}"
        raise BadParameters("run", {field: not_allowed("jobs", jobs, allowed)})
    if save is None:
        return _in_memory(experiment, emit)
    folder = Folder(Path(save.folder))
    if ranks is not None and ranks.rank:
        check_same(experiment, ranks)
        follow_leader(experiment, ranks, emit)
        return _heard(experiment, ranks)
    state = folder.state(experiment.recipe, experiment.part)
    if state == "other" and not save.overwrite:
        folder.refuse_changes(experiment.recipe, experiment.part)
    if state == "same" and not save.overwrite:
        compare(folder, experiment, emit)
        folder.tidy()
        if ranks is not None:
            check_same(experiment, ranks)
            ranks.tell(None)
        results = [*map(MethodResult, folder.outcomes())]
    else:
        results = run_in_folder(
            experiment,
            folder,
            afresh=save.overwrite,
            emit=emit,
            pause=save.checkpoint,
            loggers=save.loggers,
            jobs=jobs,
        )
    if not folder.complete:
        raise RuntimeError(f"{folder.path} is not finished: a process died; undrift.resume it")
    record = folder.record()
    runs = _collect(experiment, results, record, folder)
    if ranks is not None:
        _tell(runs, record, ranks)
    return runs


def _tell(runs: Runs, record: RunRecord, ranks: Ranks) -> None:
    """Tell the processes that follow, on hosts without the folder, of the runs in it."""
    rows, outcomes, left_out, clients = record
    ranks.tell([rows, [*map(vars, outcomes)], left_out, clients])
    for outcome in outcomes:
        run = runs[outcome.key]
        ranks.tell([run.model is not None, run.best and run.best.about])
        for x in (run.model, run.best.x if run.best else None):
            if x is not None:
                ranks.broadcast(x)


def _heard(experiment: Experiment, ranks: Ranks) -> Runs:
    """What the process that leads tells of its runs."""
    rows, outcomes, left_out, clients = ranks.tell()
    results = []
    for about in outcomes:
        outcome = Outcome(**about)
        problem = experiment.at(outcome.seed)[experiment.order[outcome.key]].problem
        blank = torch.empty(problem.dim, dtype=problem.dtype)
        kept, best = ranks.tell()
        model = ranks.broadcast(blank.clone()).to(problem.device) if kept else None
        found = best and models.Best(problem, **best, x=ranks.broadcast(blank).to(problem.device))
        results.append(MethodResult(outcome, model=model, best=found))
    return _collect(experiment, results, RunRecord(rows, [], left_out, clients))


def _in_memory(experiment: Experiment, emit: Emit) -> Runs:
    """Run an experiment that is not saved."""
    record = RunRecord([], [], [], [])

    def hear(event: Event) -> None:
        if isinstance(event, LeftOut | Measured):
            about: Row = {"label": event.label, "seed": event.seed}
            if isinstance(event, LeftOut):
                record.left_out.extend(about | one._asdict() for one in event.rejections)
            else:
                record.rows.append(about | event.row)
                record.clients.extend([about | event.clients] if event.clients else [])
        emit(event)

    return _collect(experiment, list(experiment.run(emit=hear)), record)


def _collect(
    experiment: Experiment,
    results: Sequence[MethodResult],
    record: RunRecord,
    folder: Folder | None = None,
) -> Runs:
    """The runs that results and rows describe."""
    runs = Runs()
    rows, left_out, clients = map(curves, (record.rows, record.left_out, record.clients))
    for outcome, engine, last, best, _ in results:
        label, seed = outcome.label, outcome.seed if outcome.same_as is None else outcome.same_as
        task = experiment.at(outcome.seed)[experiment.order[outcome.key]]
        found = {name: outcome.values[name] for name in task.method.open_fields(THEORY, AUTO)}
        model = None if last is None else last.clone()
        chosen = best if best is not None and best.x is not None else None
        if engine is None and folder and "last" in outcome.files:
            model = _read(folder, task.problem, outcome.files["last"])
            if outcome.best and "best" in outcome.files:
                about: Table = outcome.best
                x = _read(folder, task.problem, outcome.files["best"])
                chosen = models.Best(task.problem, **about, x=x)
        elif engine is None and outcome.same_as is not None:
            model, chosen = runs[label, seed].x, runs[label, seed].best
        runs[outcome.key] = Run(
            method=dataclasses.replace(task.method, **found) if found else task.method,
            problem=task.problem,
            engine=engine,
            history=History(rows.get(label, {}).get(seed, [])),
            status=outcome.status,
            label=label,
            seed=outcome.seed,
            note=outcome.note,
            model=model,
            left_out=[
                Rejection(*(row[name] for name in Rejection._fields))
                for row in left_out.get(label, {}).get(seed, [])
            ],
            client_rows=clients.get(label, {}).get(seed, []),
            best=chosen,
            same_as=outcome.same_as,
            options=task.setup,
            goal=experiment.rules.best,
        )
    runs.folder = folder.path if folder else None
    runs.varied = varied(experiment.recipe.document())
    return runs


def _read(folder: Folder, problem: Problem, file: str) -> Tensor:
    return models.vector(problem, models.read(folder.file(file)))


def run_in_folder(
    experiment: Experiment,
    folder: Folder,
    *,
    afresh: bool = False,
    emit: Emit = ignore,
    stop: StopSignal | None = None,
    pause: float | None = None,
    loggers: Sequence[str] = (),
    jobs: int | ExecutorLike = 1,
) -> list[MethodResult]:
    """Run what is left of an experiment into a folder; ``afresh`` empties the folder first.

    The folder is complete afterwards, unless the run was stopped, or one of several processes
    died.
    """
    board = None
    try:
        if not afresh and folder.file("spec.toml").is_file():
            reopen(folder, experiment, emit)
        else:
            begin(folder, experiment)
        if loggers:
            names = {t.label: models.stem(k, t.label) for k, t in enumerate(experiment.tasks)}
            board = TensorBoard(folder.file("tensorboard"), names, emit)
            emit = board.hear
        pause = PAUSE if pause is None else pause
        ranks = shared(experiment)
        if ranks is not None:
            check_same(experiment, ranks)
        found = experiment.run(folder, emit, stop, pause, announce=ranks.tell if ranks else None)
        if jobs != 1:
            found = run_jobs(experiment, folder, emit, stop, pause, jobs)
        ended = dict[Key, MethodResult]()
        for result in found:
            ended[result.outcome.key] = result
            folder.log(str(Ended(result.outcome)))
        # Jobs end in any order.
        results = [ended[key] for key in experiment.order if key in ended]
        outcomes = [one.outcome for one in results if one.outcome.status != "stopped"]
        if len(outcomes) == len(experiment.order):
            folder.finish(outcomes)
        if ranks is not None:
            ranks.tell(None)
    finally:
        folder.close()
        if board:
            board.close()
    return results


def begin(folder: Folder, experiment: Experiment) -> None:
    """Make an empty folder for a new run, with who holds what where samples have classes."""
    recipe, problem = experiment.recipe, experiment.tasks[0].problem
    about = environment(str(recipe.document().get("device", "cpu")))
    about |= {METRIC_SAMPLES: problem.metric_samples, SPECS: [recipe.identity]}
    about |= {"note": problem.note, "data": experiment.data, "code": experiment.code}
    about |= {} if experiment.part == WHOLE else {PART: experiment.part}
    classes, counts = list(problem.class_names), problem.label_counts()
    held = None if counts is None else {"classes": classes, "counts": counts.long().tolist()}
    folder.start(recipe, about, held)


def reopen(folder: Folder, experiment: Experiment, emit: Emit) -> None:
    """Open a folder that holds a part of the run."""
    recipe = experiment.recipe
    compare(folder, experiment, emit)
    if folder.state(recipe, experiment.part) == "shorter":
        folder.extend(recipe)
    if recipe.identity not in folder.environment.get(SPECS, []):
        raise BadFolder(
            f"{' or '.join(['spec.toml', *recipe.sources])} in {folder.path} is not what this run "
            "began with: put that back, or run this one elsewhere: undrift run SPEC -s name=NAME"
        )
    folder.resume()
    done = f"{len(folder.outcomes())} of {len(experiment.order)} are done"
    emit(Notice(f"Continues in {folder.path}: {done}."))


def compare(folder: Folder, experiment: Experiment, emit: Emit) -> None:
    """Refuse a folder whose run had other code or other data; report what cannot be compared."""
    if text := folder.refuse_other(experiment.data, experiment.code):
        emit(Notice(text, warning=True))


def shared(experiment: Experiment) -> Ranks | None:
    """The processes that share an experiment; ``None`` where it has but one."""
    engine, device = experiment.tasks[0].setup.engine, experiment.tasks[0].problem.device
    return Ranks(device, engine.patience) if isinstance(engine, DistributedOptions) else None


def check_same(experiment: Experiment, ranks: Ranks) -> None:
    """Make sure that all processes are about to do the same. Raises :class:`Parted`."""
    options = {**vars(experiment.tasks[0].setup.engine), "workers": ranks.size}
    what = experiment.recipe.identity, experiment.data, experiment.code, [*experiment.order]
    about = [*what, __version__, options]
    if not ranks.same(hashlib.sha256(repr(about).encode()).digest()):
        raise Parted("the processes of the run have other specs, data or versions of undrift")


def follow_leader(experiment: Experiment, ranks: Ranks, emit: Emit = ignore) -> None:
    """Train what the process that leads announces, until it has nothing more."""
    nowhere = Journal(Path())  # that of the one that leads; this process has nothing to write
    first = experiment.tasks[0]
    with threads(first.problem, first.setup):
        while (key := ranks.tell()) is not None:
            label, seed = key
            task = experiment.at(seed)[experiment.order[label, seed]]
            place, draws = RunPlace(nowhere, Shelf(nowhere.path, "", "")), experiment.draws(seed)
            try:
                Trial(task, seed, draws, place, emit, experiment.rules).run()
            except WorkFailed:
                pass  # the one that leads says what becomes of it
            except BaseException as error:
                experiment.failed(task, seed, error)
