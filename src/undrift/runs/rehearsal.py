"""Two rounds of every method, to tell what all of them would take. Nothing is written."""

from __future__ import annotations

import dataclasses
import math
import time
from collections.abc import Callable

from undrift.engines import Engine
from undrift.engines.judge import Diverged
from undrift.records.rows import Row
from undrift.runs.advice import remedy
from undrift.runs.clients import measured_clients, spreads
from undrift.runs.experiment import Experiment
from undrift.runs.prepare import Task
from undrift.runs.trial import measure

ROUNDS = 2
COHORTS = 100
"""Cohorts that an average one is estimated from."""


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
    seeded: bool = True
    """Whether a seed changes it: else it is run once."""
    problem: str = ""
    """What is wrong: ``fails: ...`` or ``diverges: ...``."""


@dataclasses.dataclass(frozen=True)
class Rehearsal:
    """What an experiment takes."""

    methods: list[Estimate]
    seconds: float
    """For all methods that work, with all seeds."""
    state_bytes: int
    """The largest client states, of one method at a time."""


def rehearse(experiment: Experiment) -> Rehearsal:
    """Run two rounds of every method and estimate the rest."""
    with experiment.threads():
        found = [_estimate(experiment, task) for task in experiment.tasks]
    seeds = len(experiment.seeds)
    seconds = sum(m.full_seconds * (seeds if m.seeded else 1) for m in found if not m.problem)
    return Rehearsal(found, seconds, max(method.state_bytes for method in found))


def _estimate(experiment: Experiment, task: Task) -> Estimate:
    needs = task.needs
    assert needs is not None  # a spec's tasks have theirs
    what = Estimate(task.label, task.problem.dim, needs.states, needs.place, needs.work)
    row: dict[str, float] = {}
    try:
        engine = task.engine(experiment.draws(experiment.seeds[0]))

        def look() -> None:
            row.update(measure(engine))
            if task.per_client:
                row.update(spreads(measured_clients(engine)))

        first = _seconds(look)
        rounds = [_seconds(engine.run_round) for _ in range(min(ROUNDS, task.rounds))]
        measured = _seconds(look)
    except KeyboardInterrupt:
        raise
    except Diverged:
        return dataclasses.replace(what, problem=f"diverges: {remedy(task)}")
    except BaseException as error:  # a user's method may do anything
        return dataclasses.replace(what, problem=f"fails: {error}")
    ledger, seeded = engine.ledger, engine.streams.used or not experiment.alike
    # The pace is that of the last round, because the first one warms up; and so does the first
    # row, which may also compute f*.
    pace = rounds[-1] * typical(engine, len(rounds) - 1)
    return dataclasses.replace(
        what,
        vectors=(ledger.vectors_up + ledger.vectors_down) / len(rounds),
        round_seconds=pace,
        row_seconds=measured,
        full_seconds=first + task.rounds * pace + -(-task.rounds // task.every) * measured,
        seeded=seeded,
        problem=_trouble(engine, row, task),
    )


def _trouble(engine: Engine, row: Row, task: Task) -> str:
    """What is wrong after a few rounds; empty if nothing is."""
    if not math.isfinite(row["loss"]):
        return f"diverges: {remedy(task)}"
    if engine.ledger.skipped:
        why = engine.rejections[-1].reason if engine.rejections else "nobody took part"
        return f"fails: {engine.ledger.skipped} rounds could not be counted: {why}"
    return ""


def typical(engine: Engine, round: int) -> float:
    """Local work of an average round relative to ``round``: cohorts differ where clients do."""
    n = engine.problem.clients

    def work(round: int) -> int:
        return sum(engine.steps[i] for i in engine.cohort.draw(engine.streams, round, n).members)

    return sum(map(work, range(COHORTS))) / COHORTS / work(round)


def _seconds(work: Callable[[], None]) -> float:
    started = time.perf_counter()
    work()
    return time.perf_counter() - started
