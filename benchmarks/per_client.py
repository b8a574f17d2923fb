"""What ``per_client`` costs: processor time of a round, of a row, and of measuring every client.

    python -m benchmarks.per_client [--only NAME ...]

On one thread; each number is the best of three. The ratio is that of a run with a row after every
round, with ``per_client`` and without.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from typing import Any

from benchmarks.overhead import engine
from undrift.runs.clients import measured_clients, spreads
from undrift.runs.trial import measure

WORKLOADS = ("convex FedAvg", "dense FedAvg", "peers logistic", "peers mlp", "peers cnn")


def seconds(work: Callable[[], object]) -> float:
    found = []
    for _ in range(3):
        began = time.process_time()
        work()
        found.append(time.process_time() - began)
    return min(found)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--only", nargs="+", default=WORKLOADS, choices=WORKLOADS, metavar="NAME")
    print(f"{'':16} {'round':>9} {'row':>9} {'clients':>9}  ratio")
    for workload in parser.parse_args().only:
        federation: Any = engine(*workload.split())
        federation.run_round()
        round_ = seconds(federation.run_round)
        row = seconds(lambda f=federation: measure(f))  # type: ignore[misc]
        each = seconds(lambda f=federation: spreads(measured_clients(f)))  # type: ignore[misc]
        ratio = (round_ + row + each) / (round_ + row)
        times = " ".join(f"{1000 * value:6.1f} ms" for value in (round_, row, each))
        print(f"{workload:16} {times}  {ratio:5.2f}", flush=True)


if __name__ == "__main__":
    main()
