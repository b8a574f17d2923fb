"""A fifth of the clients flip the signs of their uploads: the mean fails, robust reductions do not.

    python -m tests.faults.signs [--seed 0] [--seeds 3]

The setting is that of benchmarks/robust.py: FedAvg, logistic regression, 10 liars among 50 clients
whose data are alike, 8 rounds. The gap is compared with the one that the mean reaches with honest
clients: with liars the mean must end more than 3 times above it, and at least three reductions
within 3 times.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping

import numpy as np
import torch
from benchmarks.robust import CLIENTS, EARLY, LIARS, LR, REDUCTIONS, STEPS, problem

from tests.faults.tally import Tally, arguments
from undrift.engines import Simulate
from undrift.methods import FedAvg
from undrift.problems.logistic import Logistic

FACTOR, ENOUGH = 3.0, 3


def gap(f: Logistic, rule: Mapping[str, object] | None, liars: int, seed: int) -> float:
    who = np.random.default_rng(seed).choice(CLIENTS, liars, replace=False)
    flip = {"kind": "flip", "clients": who.tolist()}
    engine = Simulate(
        FedAvg(lr=LR), f, steps=STEPS, aggregation=rule, faults=[flip] if liars else None
    )
    for _ in range(EARLY):
        engine.run_round()
    return float(f.metrics(engine.x)["gap"])


def flipped(seeds: range) -> tuple[Tally, dict[str, float]]:
    """Reduction -> how many times the gap of honest clients' mean."""
    torch.set_num_threads(1)
    logs: dict[str, list[float]] = {name: [] for name in REDUCTIONS}
    for seed in seeds:
        f = problem(seed, 0.0)
        honest = gap(f, None, 0, seed)
        for name, rule in REDUCTIONS.items():
            logs[name].append(np.log(gap(f, rule, LIARS, seed) / honest))
    times = {name: float(np.exp(np.mean(found))) for name, found in logs.items()}
    within = [name for name, found in times.items() if found <= FACTOR and name != "mean"]
    tally = Tally(
        "signs",
        f"{LIARS} of {CLIENTS} clients flip signs, the mean {times['mean']:.1f}x, "
        f"{len(within)} of {len(times) - 1} reductions within {FACTOR:g}x; as promised",
    )
    tally.add("the mean", None if times["mean"] > FACTOR else f"is only {times['mean']:.1f}x off")
    text = f"only {len(within)} are within {FACTOR:g}x"
    tally.add("reductions", None if len(within) >= ENOUGH else text)
    return tally, times


def main() -> int:
    given = arguments(__doc__, seeds=3)
    tally, times = flipped(range(given.seed, given.seed + given.seeds))
    for name, found in times.items():
        print(f"  {name}: {found:.2g} times the honest gap")
    return tally.report()


if __name__ == "__main__":
    sys.exit(main())
