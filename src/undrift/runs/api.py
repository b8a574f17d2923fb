"""``undrift.run`` and its relatives: everything the command line can run, from Python."""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import get_overloads, overload

import numpy as np
import torch
from numpy.typing import NDArray

from undrift.core.cohort import Sampling
from undrift.core.faults import Fault, Judging
from undrift.core.method import Method
from undrift.core.optimisers import Optimiser
from undrift.core.options import RunOptions, Scope, Weights
from undrift.core.params import BadParameters, hints
from undrift.core.problem import Problem
from undrift.core.robust import Robust
from undrift.core.schedules import Schedule
from undrift.core.stopping import EarlyStopping, Goal
from undrift.engines import Engine
from undrift.records.folder import BadFolder, Folder, Row
from undrift.runs.arguments import Methods, keeping, labelled, settle
from undrift.runs.callbacks import Callback
from undrift.runs.calls import experiment_of, from_dictionary, run_name
from undrift.runs.events import Emit, Event, Measured, NotCompared, Unlocked
from undrift.runs.experiment import make
from undrift.runs.prepare import resolve
from undrift.runs.results import Recorded, Run, Runs, distrust
from undrift.runs.run_experiment import SHARED, AnotherRun, run_experiment
from undrift.spec.reader import load as load_spec
from undrift.spec.schema import Settings, Values

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


# One method without ``seeds`` gives one run. These two signatures list the settings, with their
# defaults, and nothing else does: ``help`` shows the second one.
# fmt: off
@overload
def run(  # type: ignore[overload-overlap]
    method: Method, problem: Problem | str, *, rounds: int, seeds: None = None,
    save: str | Path | None = None, overwrite: bool = False, checkpoint: float | None = None,
    loggers: Sequence[str] = (), on_event: Emit | None = None, every: int | None = None,
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
    loggers: Sequence[str] = (), on_event: Emit | None = None, every: int | None = None,
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
        loggers: also log every row of a saved run: "tensorboard".
        on_event: called with every event (undrift.runs.events) as it happens.
        every: rounds from one recorded row, which measures all samples, to the next; left out: 1,
            or up to 50 where there are many samples and a round asks few of the clients.
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
        weights: uniform, or samples: clients count by their number of samples. The loss of
            a row does not follow: it is over test samples, or a mean in which clients count alike.
        faults: what clients do wrong on purpose: tables, each with a kind (docs/faults.md).
        judge: whose work counts, and when a run gives up: a table of norm and patience.
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
    experiment = experiment_of(methods, problem, checked, given["save"])
    emit = _both(given["on_event"], given["watch"])
    keep = {name: given[name] for name in ("save", "overwrite", "loggers", "checkpoint")}
    found = run_experiment(experiment, emit=emit, **keep)
    return next(iter(found.values())) if one else found


_SIGNATURE = inspect.signature(get_overloads(run)[-1])
run.__signature__ = _SIGNATURE.replace(return_annotation="Run | Runs")  # type: ignore[attr-defined]
DEFAULTS = {
    name: parameter.default
    for name, parameter in _SIGNATURE.parameters.items()
    if parameter.default is not inspect.Parameter.empty
}
"""The settings of a run that may be left out, and what they are then."""
OF_ENGINES = (
    *hints(RunOptions),
    "seed",
    "x0",
    "dtype",
    "device",
    "engine",
    "store",
    "problem_seed",
)
"""The settings that an engine is made with."""


def prepare(method: Method, problem: Problem | str, **setting: object) -> Engine:
    """The engine of a :func:`run`, before its first round; takes the same settings."""
    given = {name: setting.pop(name, DEFAULTS[name]) for name in OF_ENGINES}
    checked = settle([method], problem, {**given, "rounds": 1, "every": 1}, setting)
    if given["schedule"] is not None:
        checked["schedule"] = Schedule.read(given["schedule"])  # of any number of rounds
    experiment = experiment_of(labelled(method), problem, checked, None)
    return experiment.tasks[0].engine(checked["seeds"][0])


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
        name = "spec" if save is None else run_name(save)
        experiment = from_dictionary(source, name, overrides)
    else:
        experiment = make(load_spec(source, overrides))
    return run_experiment(experiment, save, overwrite, loggers, _both(on_event), jobs, checkpoint)


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
    emit = _both(on_event)
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
        return run_experiment(make(spec), place.path, False, loggers, emit, jobs, checkpoint)
    if method is None or problem is None:
        raise BadFolder(place.from_python)
    settings: Values = {k: document[k] for k in hints(Settings) if k in document and k != "name"}
    try:
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
    except AnotherRun as error:
        remedy = "Give the methods, the problem, x0, until and callbacks of the call that began it"
        raise AnotherRun(place.path, error.changed, remedy) from None


def load(folder: str | Path) -> Recorded:
    """Read a run folder, finished or not: records, outcomes, models, spec."""
    place = Folder.of_run(folder)
    return Recorded(place, place.document(), *place.record())


def _both(on_event: Emit | None, watch: Callable[[Row], None] | None = None) -> Emit:
    def emit(event: Event) -> None:
        if on_event:
            on_event(event)
        elif isinstance(event, (Unlocked, NotCompared)):
            warnings.warn(str(event), stacklevel=2)
        if watch and isinstance(event, Measured):
            watch(event.row)

    return emit
