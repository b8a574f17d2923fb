"""An experiment in a folder: begun, continued, finished."""

from __future__ import annotations

import json
from collections.abc import Sequence
from concurrent.futures import Executor

from undrift.records.folder import METRIC_SAMPLES, SPECS, BadFolder, Folder
from undrift.runs.environment import environment
from undrift.runs.events import (
    Continued,
    Elsewhere,
    Emit,
    Ended,
    Finishing,
    NotCompared,
    Unlocked,
    ignore,
)
from undrift.runs.experiment import Experiment, MethodResult
from undrift.runs.followers import meet, shared
from undrift.runs.jobs import run_jobs
from undrift.runs.loggers import Log
from undrift.runs.trial import PAUSE, StopSignal


def run_in_folder(
    experiment: Experiment,
    folder: Folder,
    *,
    afresh: bool = False,
    emit: Emit = ignore,
    stop: StopSignal | None = None,
    pause: float | None = None,
    loggers: Sequence[str] = (),
    jobs: int | Executor = 1,
) -> list[MethodResult]:
    """Run what is left of an experiment into a folder; ``afresh`` empties the folder first.

    The folder is complete afterwards, unless the run was stopped, or one of several processes
    died.
    """
    try:
        if not afresh and folder.file("spec.toml").is_file():
            reopen(folder, experiment, emit)
        else:
            begin(folder, experiment)
        if not folder.locks:
            emit(Unlocked(folder.path))
        share(folder, experiment)
        if loggers:
            folder.listeners.append(Log(folder, loggers, emit))
        pause = PAUSE if pause is None else pause
        ranks = shared(experiment)
        if ranks is None:
            found = experiment.run(folder, emit, stop, pause)
        else:
            meet(experiment, ranks)
            found = experiment.run(folder, emit, stop, pause, announce=ranks.tell)
        if jobs != 1:
            found = run_jobs(experiment, folder, emit, stop, pause, jobs)
        results = []
        for result in found:
            results.append(result)
            folder.log(str(Ended(result.outcome)))
        order = list(experiment.order)
        results.sort(key=lambda result: order.index(result.outcome.key))
        ended = [result.outcome for result in results if result.outcome.status != "stopped"]
        if len(ended) == len(experiment.order):
            emit(Finishing(folder.path))
            folder.finish(ended)
        if ranks is not None:
            ranks.tell(None)
    finally:
        folder.close()
    return results


def begin(folder: Folder, experiment: Experiment) -> None:
    """Make an empty folder for a new run."""
    about = {"note": experiment.note, "data": experiment.data, "code": experiment.code}
    known: dict[str, object] = {key: value for key, value in about.items() if value}
    known[METRIC_SAMPLES] = experiment.tasks[0].problem.metric_samples
    known[SPECS] = [experiment.recipe.identity]
    folder.start(experiment.recipe, environment(_device(experiment)) | known, comments(experiment))


def comments(experiment: Experiment) -> list[str]:
    """What the folder's spec says beyond its keys: the steps that theory has chosen."""
    chosen = []
    for task in experiment.tasks:
        if fields := task.written.open_fields():
            set_by_theory = ", ".join(f"{f} = {getattr(task.method, f):.6g}" for f in fields)
            chosen.append(f"{task.label}: {set_by_theory} (theory)")
    return chosen


def reopen(folder: Folder, experiment: Experiment, emit: Emit) -> None:
    """Open a folder that holds a part of the run."""
    recipe, before = experiment.recipe, folder.environment
    compare(folder, experiment, emit)
    if folder.state(recipe) == "shorter":
        folder.extend(recipe, comments(experiment))
    if not folder.made_by(recipe.identity):
        raise BadFolder(
            f"{' or '.join(['spec.toml', *recipe.sources])} in {folder.path} is not what this run "
            "began with: put that back, or run this one elsewhere: undrift run SPEC -s name=NAME"
        )
    folder.resume()
    emit(Continued(folder.path, len(folder.outcomes()), len(experiment.order)))
    now = environment(_device(experiment))
    changes = {k: (before[k], v) for k, v in now.items() if before.get(k, v) != v}
    if changes:
        emit(event := Elsewhere(changes))
        folder.log(str(event))


def compare(folder: Folder, experiment: Experiment, emit: Emit) -> None:
    """Refuse a folder whose run had other code or other data; report what cannot be compared."""
    if unknown := folder.refuse_other(experiment.data, experiment.code):
        emit(NotCompared(folder.path, unknown))


def share(folder: Folder, experiment: Experiment) -> None:
    """Write who holds what, where samples have classes."""
    problem = experiment.tasks[0].problem
    counts = problem.label_counts()
    if counts is not None and not folder.file("partition.json").exists():
        found = {"classes": list(problem.class_names), "counts": counts.long().tolist()}
        folder.write("partition.json", json.dumps(found) + "\n")


def _device(experiment: Experiment) -> str:
    return str(experiment.recipe.document().get("device", "cpu"))
