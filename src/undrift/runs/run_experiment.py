"""Runs an experiment from Python, and gathers what it recorded as runs."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from concurrent.futures import Executor
from pathlib import Path

import torch
from torch import Tensor

from undrift.core.faults import Rejection
from undrift.core.params import BadParameters, Count, describe, fits, not_allowed
from undrift.core.problem import Problem
from undrift.engines.ranks import Ranks
from undrift.records import models
from undrift.records.best import Best
from undrift.records.folder import MORE_ROUNDS, BadFolder, Folder, Row, made
from undrift.records.journal import RunRecord
from undrift.records.outcome import Outcome
from undrift.records.rows import Key, key_of
from undrift.runs.arguments import Save
from undrift.runs.events import Emit, Event, LeftOut, Measured
from undrift.runs.experiment import Experiment, MethodResult
from undrift.runs.followers import follow, meet, shared
from undrift.runs.results import BestModel, Run, Runs, history
from undrift.runs.saved_run import compare, run_in_folder
from undrift.spec.schema import Spec, Table

SHARED = "only the runs of a spec can be shared among processes: leave out jobs"


class AnotherRun(BadFolder):
    """A folder holds a run that what was asked for would not continue."""

    def __init__(self, path: Path, changed: str, remedy: str):
        super().__init__(f"{path} holds another run: {changed}. {remedy}")
        self.changed = changed


def run_experiment(
    experiment: Experiment,
    save: Save | None,
    emit: Emit,
    jobs: int | Executor = 1,
) -> Runs:
    """Run an experiment, in a folder if it is to be saved, and gather its runs."""
    wrong = {}
    if not isinstance(jobs, Executor) and not fits(jobs, Count):
        wrong["jobs"] = not_allowed("jobs", jobs, describe(Count))
    elif jobs != 1 and save is None:
        wrong["save"] = "several jobs need a folder: give save"
    elif jobs != 1 and not isinstance(experiment.recipe, Spec):
        wrong["jobs"] = SHARED
    if wrong:
        raise BadParameters("run", wrong)
    ranks = shared(experiment)
    if jobs != 1 and ranks is not None:
        wrong["jobs"] = "the engine distributed shares each run among its processes: leave out jobs"
        raise BadParameters("run", wrong)
    if save is None:
        return _in_memory(experiment, emit)
    folder = Folder(Path(save.folder))
    if ranks is not None and ranks.rank:
        meet(experiment, ranks)
        follow(experiment, ranks, emit)
        return _heard(experiment, ranks)
    state = folder.state(experiment.recipe)
    if state == "other" and not save.overwrite:
        found = folder.differences(experiment.recipe)
        changed = "; ".join(found.values()) or "its Python files have changed"
        more = MORE_ROUNDS if [*found] == ["rounds"] else ""
        raise AnotherRun(
            folder.path,
            changed,
            f"{more}Give another folder, or undrift.Save(folder, overwrite=True)",
        )
    if state == "same" and not save.overwrite:
        compare(folder, experiment, emit)
        folder.tidy()
        if ranks is not None:
            meet(experiment, ranks)
            ranks.tell(None)
        return _told(_recorded(experiment, folder), folder, ranks)
    made(folder.path)
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
    return _told(_collect(experiment, results, folder.record(), folder), folder, ranks)


def _told(runs: Runs, folder: Folder, ranks: Ranks | None) -> Runs:
    """The runs of a folder; the processes that follow hear of them, on hosts without the folder."""
    if ranks is None:
        return runs
    rows, outcomes, left_out, clients = folder.record()
    ranks.tell([rows, [outcome.record() for outcome in outcomes], left_out, clients])
    for outcome in outcomes:
        run = runs[outcome.key]
        best = run.best
        about = best and {"metric": best.metric, "value": best.value, "round": best.round}
        ranks.tell([run.model is not None, about])
        for x in (run.model, best.x if best else None):
            if x is not None:
                ranks.broadcast(x)
    return runs


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
        found = best and Best(**best, x=ranks.broadcast(blank).to(problem.device))
        results.append(MethodResult(outcome, model=model, best=found))
    return _collect(experiment, results, RunRecord(rows, [], left_out, clients))


def _in_memory(experiment: Experiment, emit: Emit) -> Runs:
    """Run an experiment that is not saved."""
    record = RunRecord([], [], [], [])

    def hear(event: Event) -> None:
        if isinstance(event, Measured | LeftOut):
            about = {"label": event.label, "seed": event.seed}
            if isinstance(event, LeftOut):
                record.left_out.extend({**about, **one._asdict()} for one in event.rejections)
            else:
                record.rows.append({**about, **event.row})
                if event.clients is not None:
                    record.clients.append({**about, **event.clients})
        emit(event)

    return _collect(experiment, list(experiment.run(emit=hear)), record)


def _recorded(experiment: Experiment, folder: Folder) -> Runs:
    """The runs of a folder that is finished."""
    record = folder.record()
    return _collect(experiment, [*map(MethodResult, record.outcomes)], record, folder)


def _collect(
    experiment: Experiment,
    results: Sequence[MethodResult],
    record: RunRecord,
    folder: Folder | None = None,
) -> Runs:
    """The runs that results and rows describe."""
    recorded, left_out, of_clients = map(_by_key, (record.rows, record.left_out, record.clients))
    found: dict[Key, Run] = {}
    for outcome, engine, last, best, _ in results:
        key = outcome.label, outcome.seed if outcome.same_as is None else outcome.same_as
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
            model, chosen = found[key].x, found[key].best
        found[outcome.key] = Run(
            method=task.method,
            problem=task.problem,
            engine=engine,
            history=history(recorded.get(key, ())),
            status=outcome.status,
            label=outcome.label,
            seed=outcome.seed,
            note=outcome.note,
            model=model,
            suggested=outcome.suggested,
            left_out=[rejection_of(row) for row in left_out.get(key, ())],
            client_rows=of_clients.get(key, []),
            best=chosen,
            same_as=outcome.same_as,
        )
    return Runs(found, folder.path if folder else None)


def rejection_of(row: Row) -> Rejection:
    return Rejection(*(row[name] for name in Rejection._fields))


def _by_key(rows: Iterable[Row]) -> dict[Key, list[Row]]:
    found = dict[Key, list[Row]]()
    for row in rows:
        found.setdefault(key_of(row), []).append(row)
    return found


def _read(folder: Folder, problem: Problem, file: str) -> Tensor:
    return models.vector(problem, models.read(folder.file(file)))
