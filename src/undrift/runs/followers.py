"""A run that several processes share: one leads and keeps the folder, the others train with it."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import cast

from undrift import __version__
from undrift.engines.checkpoint import Shelf
from undrift.engines.options import PATIENCE
from undrift.engines.options import registry as engines
from undrift.engines.ranks import Parted, Ranks, WorkFailed
from undrift.records.journal import Journal
from undrift.runs.events import Emit, ignore
from undrift.runs.experiment import Experiment, RunPlace, perform

OTHER = "the processes of the run have other specs, data or versions of undrift"


def shared(experiment: Experiment) -> Ranks | None:
    """The processes that share an experiment; ``None`` where it has but one."""
    first, setup = experiment.tasks[0], experiment.tasks[0].setup
    if not engines[setup.engine].shared:
        return None
    patience = cast(float, setup.own.get("patience", PATIENCE))
    return Ranks(first.problem.device, patience)


def meet(experiment: Experiment, ranks: Ranks) -> None:
    """Make sure that all processes are about to do the same. Raises :class:`Parted`."""
    options = {**experiment.tasks[0].setup.own, "workers": ranks.size}
    what = experiment.recipe.identity, experiment.data, experiment.code, [*experiment.order]
    about = [*what, __version__, options]
    if not ranks.same(hashlib.sha256(repr(about).encode()).digest()):
        raise Parted(OTHER)


def follow(experiment: Experiment, ranks: Ranks, emit: Emit = ignore) -> None:
    """Train what the process that leads announces, until it has nothing more."""
    nowhere = Journal(Path())  # that of the one that leads; this process has nothing to write
    with experiment.threads():
        while (key := ranks.tell()) is not None:
            label, seed = key
            task = experiment.at(seed)[experiment.order[label, seed]]
            place = RunPlace(nowhere, Shelf(nowhere.path, "", ""))
            try:
                perform(task, seed, experiment.draws(seed), place, emit, rules=experiment.rules)
            except WorkFailed:
                pass  # the one that leads says what becomes of it
            except BaseException as error:
                experiment.failed(task, seed, error)
