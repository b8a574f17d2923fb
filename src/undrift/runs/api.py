"""``undrift.run`` and its relatives: everything the command line can run, from Python."""

from __future__ import annotations

import dataclasses
import inspect
import warnings
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import get_overloads, overload

import numpy as np
import torch
from numpy.typing import NDArray

from undrift.core.aggregation import Aggregation
from undrift.core.cohort import Sampling
from undrift.core.faults import Fault, Judging
from undrift.core.method import Method
from undrift.core.options import Training
from undrift.core.params import BadParameters, plain
from undrift.core.problem import Problem
from undrift.core.schedules import Schedule
from undrift.engines import Engine
from undrift.records import gathering
from undrift.records.folder import BadFolder, Folder
from undrift.records.part import WHOLE, RunPart
from undrift.records.rows import ENDS
from undrift.runs.callbacks import Observer
from undrift.runs.calls import (
    Methods,
    Save,
    experiment_of,
    run_name,
    settle,
)
from undrift.runs.events import Emit, Event, Notice
from undrift.runs.experiment import Experiment, make
from undrift.runs.jobs import ExecutorLike
from undrift.runs.prepare import resolve
from undrift.runs.progress import watched
from undrift.runs.results import Recorded, Run, Runs
from undrift.runs.run_experiment import run_experiment
from undrift.spec.errors import Origin
from undrift.spec.reader import Reader
from undrift.spec.reader import load as load_spec
from undrift.spec.schema import Values
from undrift.spec.user_files import distrust

__all__ = ["Run", "Runs", "gather", "load", "prepare", "resolve", "resume", "run", "run_spec"]

Point = torch.Tensor | NDArray[np.generic] | Sequence[float]
Table = Mapping[str, object]
Rate = float | str | Schedule | Table | Callable[[int], float]
Faults = Sequence[Fault | Table]
Observing = Observer | Sequence[Observer]


# One method with one seed gives one run. These two signatures list the settings, with their
# defaults, and nothing else does: ``help`` shows the second one.
# fmt: off
@overload
def run(  # type: ignore[overload-overlap]
    method: Method, problem: Problem | str | Table, *, rounds: int,
    steps: int | Sequence[int] = 1, epochs: int | None = None, batch: int | None = None,
    cohort: int | Sampling | Table | None = None, schedule: Rate | None = None,
    training: Training | Table | None = None, aggregation: str | Aggregation | Table | None = None,
    faults: Faults | None = None, judge: Judging | Table | None = None, every: int | None = None,
    callbacks: Observing = (), save: str | Path | Save | None = None, progress: bool | None = None,
    engine: str | Table = "simulate", device: str | torch.device = "cpu",
    dtype: str | torch.dtype | None = None, seed: int = 0, x0: Point | None = None,
    **parameters: object,
) -> Run: ...
@overload
def run(
    method: Methods, problem: Problem | str | Table, *, rounds: int,
    steps: int | Sequence[int] = 1, epochs: int | None = None, batch: int | None = None,
    cohort: int | Sampling | Table | None = None, schedule: Rate | None = None,
    training: Training | Table | None = None, aggregation: str | Aggregation | Table | None = None,
    faults: Faults | None = None, judge: Judging | Table | None = None, every: int | None = None,
    callbacks: Observing = (), save: str | Path | Save | None = None, progress: bool | None = None,
    engine: str | Table = "simulate", device: str | torch.device = "cpu",
    dtype: str | torch.dtype | None = None, seed: int | Sequence[int] = 0, x0: Point | None = None,
    **parameters: object,
) -> Runs: ...
# fmt: on
def run(
    method: Methods, problem: Problem | str | Table, *, rounds: int, **settings: object
) -> Run | Runs:
    """Run a method on a problem and record it; several methods or seeds give :class:`Runs`.

    Hyper-parameters given as "theory" take their prescribed values. Everything wrong with the
    arguments is raised as one ``BadParameters``; what only the problem can tell, such as the length
    of ``x0``, as a ``ValueError``. Where a spec has a table a call takes the same table, or the
    object that it stands for.

    Args:
        method: a method, several, or a mapping from labels to methods.
        problem: a problem, or the name of one, such as "logistic-a9a", or a table of its name and
            parameters.
        rounds: rounds of communication, after which the method is done.
        steps: local steps of a round: one number for all clients, or one for each.
        epochs: passes over a client's samples, instead of steps; needs a batch.
        batch: samples of a mini-batch; left out: all that a client has.
        cohort: clients that take part in a round: a number, or a Sampling or its parameters; left
            out: all of them.
        schedule: what lr is multiplied by in each round: a number, by which it falls after every
            round, one of undrift.schedules or its name and parameters, or a function of the number
            of the round, from 0.
        training: how clients make their local gradients: an undrift.Training of optimiser,
            weight_decay, clip, clip_scope and accumulate.
        aggregation: what the server makes of the uploads, such as "weighted-mean" or "median": a
            name, or one of undrift.aggregation or its name and parameters; left out: their mean.
        faults: what clients do wrong on purpose: tables, each with a kind (docs/faults.md).
        judge: whose work counts, and when a run gives up: a table of norm and patience.
        every: rounds from one recorded row, which measures all samples, to the next; left out: 1,
            or up to 50 where there are many samples and a round asks few of the clients.
        callbacks: who looks on: functions of a Moment, which has the row and the model, before it
            is recorded; numbers that they return by name are recorded too. Also
            undrift.EarlyStopping, undrift.Goal (what run.best is best in; left out: that of
            early stopping, else the gap, else the accuracy, else the loss), undrift.PerClient and
            undrift.Events.
        save: folder of the run, as the command line makes it; the same call continues it. An
            undrift.Save also has overwrite, checkpoint, loggers and jobs.
        progress: whether to show how far the run is; left out: by a bar on a terminal and in
            Jupyter. With true there are lines where there is neither.
        engine: simulate: the cohort side by side; wire: one client after another, by messages;
            distributed: the cohort dealt among processes (docs/beyond.md). A table also has the
            engine's own options, such as store.
        device: cpu, cuda, cuda:1 ...
        dtype: float64 or float32, of models and gradients; left out: the problem's own.
        seed: decides cohorts, mini-batches and coins; a list is one run with each.
        x0: the first point; left out: the problem's own.
        **parameters: the other parameters of a named problem.

    >>> import undrift as ud
    >>> run = ud.run(ud.Scaffold(lr=0.05), "quadratic", rounds=50, steps=4)
    >>> run.status, bool(run.history["gap"][-1] < run.history["gap"][0])
    ('done', True)
    """
    given: Values = {name: settings.pop(name, usual) for name, usual in DEFAULTS.items()}
    call = settle(method, problem, {"rounds": rounds, **given}, settings)
    events = call.observers.events
    emit = events.function if events else _warn
    found = _run(experiment_of(call), call.save, emit, progress=given["progress"])
    one = isinstance(method, Method) and isinstance(call.settings.seed, int)
    return next(iter(found.values())) if one else found


_SIGNATURE = inspect.signature(get_overloads(run)[-1])
run.__signature__ = _SIGNATURE.replace(return_annotation="Run | Runs")  # type: ignore[attr-defined]
DEFAULTS = {
    name: parameter.default
    for name, parameter in _SIGNATURE.parameters.items()
    if parameter.default is not inspect.Parameter.empty
}
"""The settings of a run that may be left out, and what they are then."""


def prepare(
    method: Method, problem: Problem | str | Table, *, rounds: int = 1, **settings: object
) -> Engine:
    """The engine of a :func:`run`, before its first round; takes the same settings."""
    given = {name: settings.pop(name, usual) for name, usual in DEFAULTS.items()}
    call = settle(method, problem, {"rounds": rounds, "every": 1, **given}, settings)
    if not isinstance(call.settings.seed, int):
        raise BadParameters("prepare", {"seed": "an engine has one seed: give a number"})
    if given["schedule"] is not None:
        schedule = Schedule.read(given["schedule"])  # of any number of rounds
        call = call._replace(settings=dataclasses.replace(call.settings, schedule=schedule))
    return experiment_of(call).tasks[0].engine(call.settings.seeds[0])


def run_spec(
    source: str | Path | Mapping[str, object],
    *,
    save: str | Path | Save | None = None,
    overrides: Sequence[str] = (),
    on_event: Emit | None = None,
    jobs: int | ExecutorLike = 1,
    part: RunPart | tuple[int, int] = WHOLE,
    progress: bool | None = None,
) -> Runs:
    """Run a spec: a TOML file, or its content as a dictionary.

    ``overrides`` are "KEY=VALUE", as after ``undrift run -s``; ``save`` is the folder of the run.
    ``jobs`` processes share the work of a saved run; the numbers do not depend on it. They begin as
    those of :mod:`multiprocessing` do, so a script needs ``if __name__ == "__main__":``; an
    ``Executor`` of processes that see the folder will do too. ``part`` (2, 4) runs the second of
    four even shares of methods and seeds, in a folder of its own; :func:`gather` makes one run of
    all four. ``progress`` is as in :func:`run`. Python files that a spec names are executed. Raises
    :class:`undrift.spec.errors.BadSpec`.

    >>> import undrift as ud
    >>> method = {"name": "FedAvg", "lr": 0.05}
    >>> spec = {"rounds": 3, "problem": {"name": "quadratic"}, "method": [method]}
    >>> ud.run_spec(spec)["FedAvg", 0].status
    'done'
    """
    place = None if save is None else Save.read(save)
    if isinstance(source, Mapping):
        name = "spec" if place is None else run_name(place.folder)
        spec = Reader({"name": name, **plain(source)}, Origin("spec")).spec(overrides)
    else:
        spec = load_spec(source, overrides)
    experiment = make(spec, part=RunPart.read(part))
    return _run(experiment, place, on_event or _warn, jobs, progress)


def resume(
    folder: str | Path,
    *,
    trust: bool = False,
    on_event: Emit | None = None,
    jobs: int | ExecutorLike = 1,
    progress: bool | None = None,
) -> Runs:
    """Continue a run that was interrupted, from its last checkpoints.

    The folder is that of a spec, or of a named problem, and says everything itself; ``trust`` lets
    it execute the Python files it brings. What only a program has is continued by the same call of
    :func:`run`.
    """
    place = Folder.of_run(folder)
    if place.from_python:
        raise BadFolder(place.from_python)
    trusting = "undrift.resume(folder, trust=True)"
    spec = load_spec(place.file("spec.toml"), code=None if trust else distrust(trusting))
    experiment = make(spec, part=place.part)
    return _run(experiment, Save(place.path), on_event or _warn, jobs, progress)


def gather(folders: Sequence[str | Path], save: str | Path) -> Recorded:
    """Make one finished run of several, in a new folder, and read it.

    They are all the parts of a run, or runs of specs that differ in seeds and methods alone: every
    method with every seed is there once. What does not belong together is refused as a
    :class:`undrift.records.folder.BadFolder`; other machines and versions are a warning.
    """
    for text in gathering.gather([Folder.of_run(folder) for folder in folders], Path(save)):
        warnings.warn(text, stacklevel=2)
    return load(save)


def load(folder: str | Path) -> Recorded:
    """Read a run folder, finished or not: records, outcomes, models, spec."""
    place = Folder.of_run(folder)
    return Recorded(place, place.document(), *place.record())


def _run(
    experiment: Experiment,
    save: Save | None,
    emit: Emit,
    jobs: int | ExecutorLike = 1,
    progress: bool | None = None,
) -> Runs:
    """Run an experiment; shows how far it is, and warns of methods that came to a bad end."""
    labels, note = [task.label for task in experiment.tasks], experiment.tasks[0].problem.note
    seeds = experiment.seeds
    with watched(progress, labels, seeds, note, emit, experiment.rules.best) as hear:
        found = run_experiment(experiment, save, hear, jobs)
    bad = {
        label: run for (label, _), run in reversed(found.items()) if ENDS[run.status].kind == "bad"
    }
    for label, run in reversed(bad.items()):
        seed = f", seed {run.seed}," if len(seeds) > 1 else ""
        warnings.warn(f"{label}{seed} {run.note}", stacklevel=3)
    return found


def _warn(event: Event) -> None:
    """What a program hears that does not listen to events."""
    if isinstance(event, Notice) and event.warning:
        warnings.warn(event.text, stacklevel=2)
