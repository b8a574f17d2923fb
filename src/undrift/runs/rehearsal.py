"""Two rounds of every method, to tell what all of them would take. Nothing is written."""

from __future__ import annotations

import dataclasses
import math
from collections import Counter
from collections.abc import Callable
from timeit import timeit

from undrift.engines.judge import Diverged
from undrift.runs.advice import remedy
from undrift.runs.clients import measured_clients, spreads
from undrift.runs.experiment import Experiment
from undrift.runs.prepare import Task, threads
from undrift.runs.trial import measure

ROUNDS = 2


@dataclasses.dataclass(frozen=True)
class Estimate:
    """What one method takes; times are for one seed."""

    label: str
    parameters: int
    state_bytes: int
    """Bytes that all clients remember: clients x vectors x parameters x bytes of a number."""
    place: str
    """Where those are kept: device, host or file."""
    work_bytes: int
    """Memory of the cohort at work, about."""
    vectors: float = math.nan
    """Sent and received per client and round."""
    round_seconds: float = math.nan
    row_seconds: float = math.nan
    full_seconds: float = math.nan
    rows_share: float = 0.0
    """Of that time, what recording rows takes."""
    seeded: bool = True
    """Whether a seed changes it: else it is run once."""
    problem: str = ""
    """What is wrong: ``fails: ...`` or ``diverges: ...``."""


@dataclasses.dataclass(frozen=True)
class Rehearsal:
    """What an experiment takes."""

    methods: list[Estimate]
    seconds: float
    """For all methods that work, with all seeds, or for the part that is run."""
    state_bytes: int
    """The largest client states, of one method at a time."""


def rehearse(experiment: Experiment) -> Rehearsal:
    """Run two rounds of every method and estimate the rest."""
    first = experiment.tasks[0]
    with threads(first.problem, first.setup):
        found = [_estimate(experiment, task) for task in experiment.tasks]
    seeds = Counter(label for label, _ in experiment.order)
    times = {m.label: seeds[m.label] if m.seeded else min(seeds[m.label], 1) for m in found}
    seconds = sum(m.full_seconds * times[m.label] for m in found if not m.problem)
    return Rehearsal(found, seconds, max(method.state_bytes for method in found))


def _estimate(experiment: Experiment, task: Task) -> Estimate:
    needs = task.needs
    assert needs is not None  # a spec's tasks have theirs
    what = Estimate(task.label, task.problem.dim, needs.states, needs.place, needs.work)
    row: dict[str, float] = {}
    try:
        engine = task.settled.engine(experiment.draws(experiment.seeds[0]))

        def look() -> None:
            row.update(measure(engine))
            if task.per_client:
                row.update(spreads(measured_clients(engine)))

        first = _seconds(look)
        # The pace is that of the last round, because the first one warms up; and so does the first
        # row, which may also compute f*.
        rounds = [_seconds(engine.run_round) for _ in range(min(ROUNDS, task.rounds))]
        measured = _seconds(look)
    except Diverged:
        return dataclasses.replace(what, problem=f"diverges: {remedy(task)}")
    except (Exception, SystemExit) as error:  # a user's method may do anything
        return dataclasses.replace(what, problem=f"fails: {error}")
    problem, ledger = "", engine.ledger
    if ledger.skipped:
        problem = f"fails: {ledger.skipped} rounds could not be counted"
    elif not math.isfinite(row["loss"]):
        problem = f"diverges: {remedy(task)}"
    rows = -(-task.rounds // task.every) * measured
    full = first + task.rounds * rounds[-1] + rows
    return dataclasses.replace(
        what,
        vectors=(ledger.vectors_up + ledger.vectors_down) / len(rounds),
        round_seconds=rounds[-1],
        row_seconds=measured,
        full_seconds=full,
        rows_share=rows / full,
        seeded=engine.streams.used or not experiment.alike,
        problem=problem,
    )


def _seconds(work: Callable[[], None]) -> float:
    return timeit(work, number=1)
