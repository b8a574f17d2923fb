"""A server's memory that is the mean of its clients' stays so, whoever drops out or comes late.

    python -m tests.faults.memories [--seed 0] [--rounds 200]

SCAFFOLD: c is the mean of the c_i. FedDyn: h is the mean of the d_i. FedDC: c and h are the means
of the c_i and h_i. FedADMM with rule all: x is the mean of the w_i + y_i / rho. Looked at after
every round, to 1e-12 of the largest entry (of 1 if that is smaller), with clients that drop out
before or after their work or come late.
"""

from __future__ import annotations

import sys
from collections.abc import Callable

import torch
from torch import Tensor

from tests.faults.tally import Tally, arguments
from undrift.check.federations import least_squares
from undrift.core import Method
from undrift.engines import Engine, Simulate, Wire
from undrift.methods import FedADMM, FedDC, FedDyn, Scaffold

PROBLEM = least_squares(clients=10)
FAULTS = [
    {"kind": "drop-before", "rate": 0.3},
    {"kind": "drop-after", "rate": 0.3},
    {"kind": "late", "rate": 0.3},
]
Sides = list[tuple[Tensor, Tensor]]
"""(the server's vector, the clients' [N, d] whose mean it is)"""


def scaffold(server: dict[str, Tensor], client: dict[str, Tensor]) -> Sides:
    return [(server["c"], client["c"])]


def feddyn(server: dict[str, Tensor], client: dict[str, Tensor]) -> Sides:
    return [(server["h"], client["d"])]


def feddc(server: dict[str, Tensor], client: dict[str, Tensor]) -> Sides:
    return [(server["c"], client["c"]), (server["h"], client["h"])]


RHO = 1.0


def fedadmm(server: dict[str, Tensor], client: dict[str, Tensor]) -> Sides:
    return [(server["x"], client["w"] + client["y"] / RHO)]


RELATIONS: list[tuple[Method, Callable[[dict[str, Tensor], dict[str, Tensor]], Sides]]] = [
    (Scaffold(lr=0.02), scaffold),
    (Scaffold(lr=0.02, option="I"), scaffold),
    (FedDyn(lr=0.02, alpha=1.0), feddyn),
    (FedDC(lr=0.02, alpha=0.1), feddc),
    (FedADMM(lr=0.02, rho=RHO, rule="all"), fedadmm),
]


def error(engine: Engine, relation: Callable) -> float:
    """How far the server's memories are from the means, by the largest entry."""
    tensors, _ = engine.snapshot()
    server, client = (
        {key.split(".", 1)[1]: v for key, v in tensors.items() if key.startswith(side)}
        for side in ("server.", "client.")
    )
    found = [
        float((mine - theirs.mean(0)).abs().max() / theirs.abs().max().clamp(min=1.0))
        for mine, theirs in relation(server, client)
    ]
    return max(found)


def remembered(rounds: int, seed: int, engines: tuple[type[Engine], ...]) -> tuple[Tally, float]:
    """Every method and engine; and the largest error."""
    torch.set_num_threads(1)
    tally, worst = Tally("memories", f"means of clients' memories over {rounds} rounds"), 0.0
    for method, relation in RELATIONS:
        for kind in engines:
            engine = kind(
                method, PROBLEM, steps=2, cohort=6, seed=seed,
                faults=FAULTS, judge={"patience": rounds},
            )  # fmt: skip
            largest = 0.0
            for _ in range(rounds):
                engine.run_round()
                largest = max(largest, error(engine, relation))
            worst = max(worst, largest)
            problem = None
            if not largest <= 1e-12:
                problem = f"off by {largest:.1e}"
            elif engine.ledger.left_out < rounds:
                problem = f"only {engine.ledger.left_out} clients were left out"
            tally.add(f"{kind.__name__} {type(method).__name__}", problem)
    return tally, worst


def main() -> int:
    given = arguments(__doc__, rounds=200)
    tally, worst = remembered(given.rounds, given.seed, (Simulate, Wire))
    print(f"  the largest error is {worst:.1e}")
    return tally.report()


if __name__ == "__main__":
    sys.exit(main())
