"""The engine distributed against one process with as many cores: seconds per round, medians.

    python -m benchmarks.ranks [--device cuda] [--rounds 4] [--only NAME ...]

The network is the CNN of benchmarks/peers in float32: 10 of 100 clients in a round, 500 samples
each, one epoch; 16 clients where four cores share them, so that none of them idles. Every process
of a measurement is bound to its own cores. With ``--device cuda`` two ranks that share a GPU are
held against one process instead.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

WARM = 1
"""Rounds before those that are timed."""
SIZES = (1, 4, 16, 64, 256)
"""MiB of the uploads of a phase."""


class Case(NamedTuple):
    """How a round is run."""

    ranks: int
    """0: one process, by simulate."""
    threads: int
    """Of each process."""
    method: str = "FedAvg"
    cohort: int = 10
    collect: str = "rows"


CASES = {
    "one process, 2 threads": Case(0, 2),
    "2 ranks of 1 thread": Case(2, 1),
    "one process, 10 threads": Case(0, 10),
    "10 ranks of 1 thread": Case(10, 1),
    "10 ranks of 1 thread, sums": Case(10, 1, collect="sums"),
    "10 ranks of 1 thread, SCAFFOLD": Case(10, 1, "Scaffold"),
    "one process, 4 threads, 16 clients": Case(0, 4, cohort=16),
    "2 ranks of 4 threads, 16 clients": Case(2, 4, cohort=16),
}
RATIOS = (
    ("2 ranks against 2 threads", "one process, 2 threads", "2 ranks of 1 thread", 0.85),
    ("10 ranks against 10 threads", "one process, 10 threads", "10 ranks of 1 thread", 0.85),
    (
        "2 ranks on 4 cores each against one process on 4",
        "one process, 4 threads, 16 clients",
        "2 ranks of 4 threads, 16 clients",
        1.7,
    ),
    ("FedAvg against SCAFFOLD", "10 ranks of 1 thread", "10 ranks of 1 thread, SCAFFOLD", 0.87),
)
"""What is compared: the time of the first over that of the second, which is to reach a figure."""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--rounds", type=int, default=4)
    parser.add_argument("--only", nargs="+", default=[*CASES], choices=[*CASES, "traffic"])
    parser.add_argument("--measure", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.measure:
        print(json.dumps(measure(json.loads(given.measure))), flush=True)
        return 0
    if given.device != "cpu":
        return on_one_gpu(given)
    seconds = {}
    for name in given.only:
        if name in CASES:
            seconds[name] = statistics.median(run(CASES[name], given)["seconds"])
            print(f"{name:<40} {seconds[name]:.3f} s per round", flush=True)
    failed = False
    for name, first, second, least in RATIOS:
        if first in seconds and second in seconds:
            found = seconds[first] / seconds[second]
            failed |= found < least
            print(f"{name}: {found:.2f} (at least {least})", flush=True)
    if given.only == [*CASES] or "traffic" in given.only:
        traffic(given)
    return int(failed)


def run(case: Case, given: argparse.Namespace, **more: object) -> dict:
    """Measure a case in processes of its own; what the first of them found."""
    asked = json.dumps(case._asdict() | {"device": given.device, "rounds": given.rounds} | more)
    words = [sys.executable, "-m", "benchmarks.ranks", "--measure", asked]
    with tempfile.TemporaryDirectory() as place:
        processes = []
        for k in range(max(case.ranks, 1)):
            env = os.environ | {"OMP_NUM_THREADS": str(case.threads), "CORES": str(k)}
            if case.ranks:
                env |= {"RANK": str(k), "WORLD_SIZE": str(case.ranks), "LOCAL_RANK": str(k)}
                env |= {"LOCAL_WORLD_SIZE": str(case.ranks), "GLOO_SOCKET_IFNAME": "lo"}
                env |= {"UNDRIFT_RENDEZVOUS": str(Path(place) / "meet")}
            processes.append(subprocess.Popen(words, env=env, stdout=subprocess.PIPE))
        outputs = [process.communicate()[0] for process in processes]
    if any(process.returncode for process in processes):
        raise RuntimeError(f"{case} failed")
    found: dict = json.loads(outputs[0].splitlines()[-1])
    return found


def measure(asked: dict) -> dict:
    """Seconds of every timed round, and the model after them."""
    bind(int(os.environ["CORES"]), asked["threads"])
    import torch

    if asked["device"] == "cpu":
        torch.set_num_threads(asked["threads"])
    if "mib" in asked:
        return exchange(asked["mib"] * 2**20, asked["collect"])
    engine = built(asked)
    seconds = []
    for _ in range(WARM + asked["rounds"]):
        began = time.perf_counter()
        engine.run_round()
        if engine.x.is_cuda:
            torch.cuda.synchronize()
        seconds.append(time.perf_counter() - began)
    norms = {"model": engine.x.double().cpu()[:: max(len(engine.x) // 1000, 1)].tolist()}
    return {"seconds": seconds[WARM:], "scale": float(engine.x.abs().max())} | norms


def built(asked: dict):
    """The engine of a case."""
    import numpy as np
    import torch

    from benchmarks.peers.torch_parts import network
    from benchmarks.peers.workloads import CLASSES, WORKLOADS
    from undrift.data.images import ImageSet
    from undrift.engines import Simulate
    from undrift.engines.distributed import Distributed
    from undrift.methods import FedAvg, Scaffold
    from undrift.problems import Neural

    workload = dataclasses.replace(WORKLOADS["cnn"], cohort=asked["cohort"])
    x, y = workload.data()
    samples = torch.from_numpy(x.reshape(-1, *workload.shape))
    labels = torch.from_numpy(y.reshape(-1))
    classes = tuple(map(str, range(CLASSES)))
    data = ImageSet(samples, labels, samples[:1], labels[:1], classes, "synthetic")
    parts = list(np.arange(y.size).reshape(y.shape))
    problem = Neural(network(workload), data, parts)
    dtype = torch.float64 if asked.get("double") else torch.float32
    problem = problem.to(dtype, torch.device(asked["device"]))
    kinds = {"FedAvg": FedAvg, "Scaffold": Scaffold}
    method = kinds[asked["method"]](lr=workload.lr)
    setting = {"epochs": workload.epochs, "batch": workload.batch, "cohort": workload.cohort}
    if steps := asked.get("steps"):
        del setting["epochs"]
        setting["steps"] = steps
    if asked["ranks"]:
        return Distributed(method, problem, collect=asked["collect"], **setting)
    return Simulate(method, problem, **setting)


def bind(place: int, cores: int) -> None:
    """Keep this process on its own cores, as far as there are so many."""
    if hasattr(os, "sched_setaffinity"):
        there = sorted(os.sched_getaffinity(0))
        mine = there[place * cores : (place + 1) * cores]
        if len(mine) == cores:
            os.sched_setaffinity(0, mine)


def exchange(size: int, collect: str) -> dict:
    """Seconds that 16 uploads of together ``size`` bytes take to all ranks, or their sum."""
    import torch

    from undrift.engines.ranks import Ranks, leave

    ranks = Ranks(torch.device("cpu"))
    mine = 16 // ranks.size
    rows = torch.ones(mine, size // 64)
    seconds = []
    for _ in range(5):
        ranks.agree(True)
        began = time.perf_counter()
        if collect == "rows":
            ranks.gather(rows, [mine] * ranks.size).mean(0)
        else:
            ranks.sum(rows.sum(0))
        seconds.append(time.perf_counter() - began)
    leave()
    return {"seconds": seconds[1:]}


def traffic(given: argparse.Namespace) -> None:
    """What the two ways to collect uploads take, by their size."""
    for size in SIZES:
        times = {
            collect: statistics.median(run(Case(4, 1, collect=collect), given, mib=size)["seconds"])
            for collect in ("rows", "sums")
        }
        shown = ", ".join(f"{collect} {1000 * s:.1f} ms" for collect, s in times.items())
        print(f"16 uploads, {size} MiB in all, 4 ranks: {shown}", flush=True)


def on_one_gpu(given: argparse.Namespace) -> int:
    """Two ranks that share a GPU, by gloo, against one process, and that against itself.

    Few steps, in float64: rounding grows with every step of a network, in one process as in two,
    and in float32 one process differs from itself by more than what is looked for here.
    """
    failed = False
    for method in ("FedAvg", "Scaffold"):
        one, again, two = (
            run(Case(ranks, 2, method), given, steps=5, double=True) for ranks in (0, 0, 2)
        )
        found, noise = (_apart(one, other) for other in (two, again))
        failed |= not found <= 1e-5
        times = [statistics.median(each["seconds"]) for each in (one, two)]
        print(
            f"{method}: {found:.1e} apart, one process from itself {noise:.1e}; "
            f"{times[0]:.3f} s, two ranks {times[1]:.3f} s per round",
            flush=True,
        )
    return int(failed)


def _apart(one: dict, other: dict) -> float:
    gaps = [abs(a - b) for a, b in zip(one["model"], other["model"], strict=True)]
    return max(gaps) / float(one["scale"])


if __name__ == "__main__":
    sys.exit(main())
