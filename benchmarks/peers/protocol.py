"""How a contender is called and what it answers.

    python -m benchmarks.peers.contenders.NAME WORKLOAD ROUNDS CORES

runs ROUNDS rounds on at most CORES cores (the caller binds the process to them) and prints one line
of JSON: seconds of
each round, the first included; the training loss of the final model; peak memory of this process in
MB; versions.
"""

from __future__ import annotations

import json
import os
import platform
import re
import sys
import time
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path

from benchmarks.peers.workloads import WORKLOADS, Arrays, Workload

Contender = Callable[[Workload, int, int], tuple[list[float], Arrays]]
"""``(workload, rounds, cores)`` to the seconds of each round and the final weights."""


class Clock:
    """Seconds between ticks."""

    def __init__(self) -> None:
        self.seconds: list[float] = []
        self.start()

    def start(self) -> None:
        self.last = time.perf_counter()

    def tick(self) -> None:
        now = time.perf_counter()
        self.seconds.append(now - self.last)
        self.last = now


def timed(play: Callable[[int], None], rounds: int) -> list[float]:
    """The seconds of each round, ``play(number)``."""
    clock = Clock()
    for number in range(rounds):
        play(number)
        clock.tick()
    return clock.seconds


def answer(contender: Contender, *packages: str) -> None:
    """Run as the command line says and print the line; ``packages`` are those whose versions
    matter.
    """
    name, rounds, cores = sys.argv[1:]
    workload = WORKLOADS[name]
    seconds, weights = contender(workload, int(rounds), int(cores))
    if os.environ.get("RANK", "0") != "0":  # of several processes under torchrun, the first speaks
        return
    said = {
        "seconds": [round(s, 6) for s in seconds],
        "memory": peak(),
        "loss": workload.training_loss(weights),
        "versions": {
            "python": platform.python_version(),
            **{package: version(package) for package in packages},
        },
    }
    print(json.dumps(said), flush=True)


def peak() -> float:
    """The most memory this process has had resident so far, in MB."""
    found = re.search(r"VmHWM:\s+(\d+) kB", Path("/proc/self/status").read_text())
    return int(found[1]) / 1e3 if found else float("nan")
