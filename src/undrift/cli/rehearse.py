"""``run --check``: two rounds of every method, and what all of them would take. Nothing is written."""

from __future__ import annotations

import dataclasses
import math
import time
from typing import TYPE_CHECKING, Any

from undrift.cli.experiment import Experiment, Task, make, remedy
from undrift.cli.output import FAILED, OK, result, result_json, say
from undrift.report.text import count, duration, prose, size, table, whole
from undrift.runs.models import size as size_of
from undrift.spec.schema import Spec

if TYPE_CHECKING:
    from undrift.engines import Engine

ROUNDS = 2
COHORTS = 100
"""Cohorts that an average one is estimated from."""


@dataclasses.dataclass(frozen=True)
class Need:
    """What one method needs; times are for one seed."""

    label: str
    parameters: int
    state_bytes: int
    """Of what the clients remember: clients x vectors x parameters x bytes of a number."""
    place: str
    """Where those are kept: device, host or file."""
    work_bytes: int
    """Memory of the cohort at work, about."""
    vectors: float = math.nan
    """Sent and received per client and round."""
    round_seconds: float = math.nan
    row_seconds: float = math.nan
    full_seconds: float = math.nan
    problem: str = ""
    """What is wrong: ``fails: ...`` or ``diverges: ...``."""


def rehearse(spec: Spec, store: str, as_json: bool) -> int:
    say(
        f"{spec.name}: {ROUNDS} rounds of {count(len(spec.entries), 'method')} on {spec.problem_name}, nothing is kept"
    )
    experiment = make(spec, store)
    say(experiment.takes)
    with experiment.threads():
        needs = [need(experiment, task) for task in experiment.tasks]
    seconds = len(spec.seeds) * sum(n.full_seconds for n in needs if not n.problem)
    most = max(n.state_bytes for n in needs)
    kept = 2 * len(spec.seeds) * sum(size_of(task.problem) for task in experiment.tasks)
    if as_json:
        found = {"seconds": seconds, "state_bytes": most, "model_bytes": kept}
        result_json(found | {"methods": [_finite(n) for n in needs]})
    else:
        result(show(needs))
        seeds = count(len(spec.seeds), "seed")
        result("")
        result(
            prose(
                f"In all: about {duration(seconds)} for {seeds}, {size(most)} of client states at a time."
            )
        )
        result(
            prose(
                f"Kept on disk: up to {size(kept)} of models, the last and the best of each method and seed."
            )
        )
    return FAILED if any(n.problem for n in needs) else OK


def need(experiment: Experiment, task: Task) -> Need:
    """Run two rounds and look."""
    problem, spec, entry = task.problem, experiment.spec, task.entry
    what = Need(entry.label, problem.dim, task.needs.states, task.needs.place, task.needs.work)
    try:
        engine = experiment.engine(task, spec.seeds[0])
        rounds = [_time(engine.run_round) for _ in range(min(ROUNDS, entry.rounds))]
        measured, loss = _measure(engine)
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # a user's method may do anything
        return dataclasses.replace(what, problem=f"fails: {error}")
    ledger = engine.ledger
    pace = rounds[-1] * typical(
        engine, len(rounds) - 1
    )  # of the last round: the first one warms up
    return dataclasses.replace(
        what,
        vectors=(ledger.vectors_up + ledger.vectors_down) / len(rounds),
        round_seconds=pace,
        row_seconds=measured,
        full_seconds=entry.rounds * pace + (1 + -(-entry.rounds // spec.every)) * measured,
        problem="" if math.isfinite(loss) else f"diverges: {remedy(entry.method)}",
    )


def typical(engine: Engine, round: int) -> float:
    """How much more local work an average round takes than ``round``: cohorts differ where clients
    do.
    """
    n = engine.problem.clients

    def work(round: int) -> int:
        return sum(engine.steps[i] for i in engine.cohort.draw(engine.streams, round, n).members)

    return sum(map(work, range(COHORTS))) / COHORTS / work(round)


def show(needs: list[Need]) -> str:
    head = [
        "method",
        "parameters",
        "client states",
        "vectors",
        "s/round",
        "s/row",
        "all rounds",
        "outcome",
    ]
    cells = [
        [
            n.label,
            whole(n.parameters),
            size(n.state_bytes) + f", {n.place}" * (n.place != "device"),
            whole(n.vectors),
            f"{n.round_seconds:.3g}",
            f"{n.row_seconds:.3g}",
            "-" if n.problem else duration(n.full_seconds),
            n.problem.partition(":")[0] or "runs",
        ]
        for n in needs
    ]
    legend = (
        "client states: what all clients remember; vectors: per client and round, up and down\n"
        "s/round, s/row: seconds to train a round and to measure a row; all rounds: at that pace, with one seed"
    )
    troubles = "".join(f"\n\n{n.label} {n.problem}" for n in needs if n.problem)
    return f"{table(head, cells, right=head[1:-1])}\n\n{prose(legend + troubles)}"


def _time(work: Any) -> float:
    started = time.perf_counter()
    work()
    return time.perf_counter() - started


def _measure(engine: Engine) -> tuple[float, float]:
    """Seconds, and the loss."""
    from undrift.runs.trial import measure

    row: dict[str, float] = {}
    return _time(lambda: row.update(measure(engine))), row["loss"]


def _finite(need: Need) -> dict[str, Any]:
    """JSON knows no numbers that are none."""
    found = dataclasses.asdict(need)
    return {
        key: None if isinstance(v, float) and not math.isfinite(v) else v
        for key, v in found.items()
    }
