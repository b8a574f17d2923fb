"""Drop-outs over 500 rounds cost no more than twice the gap.

    python -m tests.faults.dropouts [--seed 0] [--rounds 500] [--seeds 3]

SCAFFOLD, FedDyn and FedAvg on logistic regression (breast-cancer, 10 clients, Dirichlet split of
concentration 1, l2 = 0.01), 5 local steps of 0.1 on mini-batches of 8. Every round loses 30 % of
the clients: half of them before, half of them after their work. The gap is the mean over the last
fifth of the rounds and over the seeds, and must be at most twice that without drop-outs. A run that
loses 30 % before and 30 % of the rest after their work, 51 % in all, is measured beside it; that
cannot be expected to stay within 2: half of the clients give twice the variance.
"""

from __future__ import annotations

import sys

import numpy as np
import torch

from tests.faults.tally import Tally, arguments
from undrift.core import Method
from undrift.engines import Simulate
from undrift.methods import FedAvg, FedDyn, Scaffold
from undrift.problems.named import made

METHODS = [Scaffold(lr=0.1), FedDyn(lr=0.1, alpha=0.1), FedAvg(lr=0.1)]
FACTOR = 2.0


def lost(before: float, after: float) -> list[dict]:
    """Clients drop out with these probabilities before and, of the rest, after their work."""
    return [{"kind": "drop-before", "rate": before}, {"kind": "drop-after", "rate": after}]


PROMISED, MORE = lost(0.15, 0.15 / 0.85), lost(0.3, 0.3)


def gap(method: Method, rounds: int, seeds: range, faults: list[dict]) -> tuple[float, float]:
    """The mean gap at the end, and the share of clients that were lost."""
    problem = made("logistic", l2=0.01).build()
    gaps, share = [], []
    for seed in seeds:
        engine = Simulate(method, problem, steps=5, batch=8, seed=seed, faults=faults)
        for round in range(rounds):
            engine.run_round()
            if round >= 0.8 * rounds and round % 5 == 4:
                gaps.append(engine.metrics()["gap"])
        share.append(engine.ledger.left_out / (rounds * problem.clients))
    return float(np.mean(gaps)), float(np.mean(share))


def dropped(rounds: int, seeds: range) -> Tally:
    torch.set_num_threads(1)
    tally = Tally("dropouts", f"30 % drop-outs over {rounds} rounds, gap within {FACTOR:g}x")
    for method in METHODS:
        name = type(method).__name__
        alone, _ = gap(method, rounds, seeds, [])
        for faults in (PROMISED, MORE):
            found, share = gap(method, rounds, seeds, faults)
            ratio = found / alone
            print(f"  {name}, {share:.0%} lost: gap {found:.2e}, {ratio:.2f} x {alone:.2e}")
            if faults is PROMISED:
                tally.add(name, None if ratio <= FACTOR else f"{ratio:.2f} times the gap")
    return tally


def main() -> int:
    given = arguments(__doc__, rounds=500, seeds=3)
    return dropped(given.rounds, range(given.seed, given.seed + given.seeds)).report()


if __name__ == "__main__":
    sys.exit(main())
