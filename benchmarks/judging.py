"""What judging costs: processor time of a round with it, beside a round without.

    python -m benchmarks.judging [--repeats 10] [--only NAME ...]

The softmax and MLP workloads of undrift's peers, FedAvg, one thread. Two engines in one process
take turns: one as it is, one that looks at no upload, no client's state and no server's model. The
ratio is that of their best times. The share is the time inside these looks of all rounds of the
first engine, with that of reading the clock. Both are disturbed upwards by other work; where each
says more than 2 % and more than 0.25 ms the exit code is 1: so much the calls themselves may take.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable
from typing import Any

import torch

from benchmarks.overhead import peer
from undrift.engines import Engine

WORKLOADS = {"softmax": "logistic", "MLP": "mlp"}
"""Name -> the peers' workload."""
ROUNDS = {"softmax": 20, "MLP": 1}
"""Rounds of one turn."""
MOST, LEAST = 0.02, 0.25e-3
"""A share of a round, and seconds that are too few to count."""


class Watch:
    """Adds up the processor time of some calls."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def __call__(self, call: Callable[..., Any]) -> Callable[..., Any]:
        def timed(*about: Any) -> Any:
            began = time.process_time()
            result = call(*about)
            self.seconds += time.process_time() - began
            return result

        return timed


def made(workload: str) -> Any:
    engine = peer(workload)
    assert isinstance(engine, Engine)
    return engine


def seconds(engine: Engine, rounds: int) -> float:
    began = time.process_time()
    for _ in range(rounds):
        engine.run_round()
    return time.process_time() - began


def cost(name: str, repeats: int) -> tuple[float, float, float]:
    """Best seconds of a round with and without judging, and the share of the looks in the first."""
    torch.set_num_threads(1)
    usual, bare, watch = made(WORKLOADS[name]), made(WORKLOADS[name]), Watch()
    bare.judge = lambda order, down, work: {}
    bare._check_server = lambda order, server: None
    usual.judge, usual._check_server = watch(usual.judge), watch(usual._check_server)
    seconds(usual, 1), seconds(bare, 1)
    watch.seconds, times = 0.0, list[tuple[float, float]]()
    for _ in range(repeats):
        times.append((seconds(usual, ROUNDS[name]), seconds(bare, ROUNDS[name])))
    one, other = (min(some) / ROUNDS[name] for some in zip(*times, strict=True))
    return one, other, watch.seconds / (sum(first for first, _ in times) - watch.seconds)


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--repeats", type=int, default=10)
    parser.add_argument("--only", nargs="+", choices=WORKLOADS, default=[*WORKLOADS])
    arguments = parser.parse_args()
    good = 0
    for name in arguments.only:
        one, other, share = cost(name, arguments.repeats)
        print(
            f"  {name}: {1e3 * one:.2f} ms a round, {1e3 * other:.2f} ms without judging, ratio "
            f"{one / other:.3f}; share {share:.2%}",
            flush=True,
        )
        share = min(share, one / other - 1)
        good += share <= MOST or share * other <= LEAST
    limits = f"{MOST:.0%} or {1e3 * LEAST} ms"
    print(f"judging: cost of a round within {limits}, {good} of {len(arguments.only)}", flush=True)
    return 0 if good == len(arguments.only) else 1


if __name__ == "__main__":
    sys.exit(main())
