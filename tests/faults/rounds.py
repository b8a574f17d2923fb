"""Rounds that cannot count are skipped: all clients bad, or one that a method cannot do without.

    python -m tests.faults.rounds [--seed 0]

Every method on both engines, with the fault in every phase. From round 2 on all clients of ten send
NaN; or one of them does, where the method asks everybody in every round. The run must end as stuck,
with the states of server and clients that it had before round 2, bit for bit, which are also those
after the first skipped round.
"""

from __future__ import annotations

import sys
from itertools import product

import torch

from tests.faults.clients import BAD, METHODS, PROBLEM, states
from tests.faults.tally import Tally, arguments
from tests.trials import trial
from undrift.check.federations import example, phases, random_clients
from undrift.engines import Engine, Simulate, Wire
from undrift.methods import registry

SINCE, PATIENCE = 2, 3


def problem_with(
    kind: type[Engine], name: str, bad: list[int] | None, phase: int | None, seed: int
) -> str:
    """What is not as promised; empty if nothing is."""
    method = example(registry[name], PROBLEM.constants)
    fault = {"kind": "nan", "since": SINCE, "clients": bad, "phase": phase}
    engine = kind(method, PROBLEM, steps=2, seed=seed, faults=[fault], judge={"patience": PATIENCE})
    for _ in range(SINCE):
        engine.run_round()
    before = {key: v.clone() for key, v in states(engine).items()}
    engine.run_round()
    if not _equal(before, states(engine)):
        return "the first skipped round left a trace"
    rows: list[dict] = []
    status = trial(engine, 100, watch=rows.append).train()
    if status != "stuck":
        return f"it ended as {status}"
    if engine.ledger.skipped != PATIENCE + 1:
        return f"{engine.ledger.skipped} rounds were skipped, not {PATIENCE + 1}"
    if not _equal(before, states(engine)):
        return "states are not those of the last round that counted"
    if not all(bool(v.isfinite().all()) for v in states(engine).values()):
        return "states are not finite"
    return ""


def _equal(one: dict[str, torch.Tensor], other: dict[str, torch.Tensor]) -> bool:
    return one.keys() == other.keys() and all(torch.equal(one[key], other[key]) for key in one)


def skipped(seed: int, names: list[str]) -> Tally:
    torch.set_num_threads(1)
    tally = Tally("rounds", f"all clients bad, or one that is needed, {len(names)} methods")
    for name in names:
        method = example(registry[name], PROBLEM.constants)
        needs_all = method.participation == "full" and not random_clients(method)
        places = list(range(len(phases(method)))) if method.repeats() else [None]
        for bad, phase, kind in product(
            [None, [BAD]] if needs_all else [None], places, (Simulate, Wire)
        ):
            who = "all clients" if bad is None else f"client {BAD}"
            case = f"{kind.__name__} {name}, {who}, phase {phase}"
            tally.add(case, problem_with(kind, name, bad, phase, seed))
    return tally


def main() -> int:
    given = arguments(__doc__)
    return skipped(given.seed, METHODS).report()


if __name__ == "__main__":
    sys.exit(main())
