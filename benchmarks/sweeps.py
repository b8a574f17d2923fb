"""A sweep of 16 steps against 16 separate runs: processor time and memory.

    UNDRIFT_DATA=FOLDER python benchmarks/sweeps.py [--only NAME ...] [--runs 4] [--device cuda]

Every separate run is a process of its own, as is the sweep, each on one thread; their processor
time is all that they take, from the interpreter's start to its end. "in a process" is the ratio of
the rounds alone, which is what remains for those who run many settings in one process anyway. Both
measure the model 40 times, as a search does. On a GPU it is seconds that count, not processor time.
With --runs 4 every fourth of the separate runs is made, and their time is counted four times.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).resolve().parents[1]
SETTINGS, LOOKS = 16, 40


class Workload(NamedTuple):
    """Steps are ``SETTINGS`` numbers from ``low`` to ``high``, their ratios equal."""

    problem: str
    parameters: dict[str, Any]
    options: dict[str, Any]
    rounds: int
    low: float
    high: float
    least: float
    """The ratio that is asked for."""
    methods: tuple[str, ...] = ("FedAvg",)
    device: str = "cpu"

    def steps(self) -> list[float]:
        ratio = (self.high / self.low) ** (1 / (SETTINGS - 1))
        return [self.low * ratio**k for k in range(SETTINGS)]


THREE, TWO = ("FedAvg", "Scaffold", "FedRecu"), ("FedAvg", "Scaffold")
FEW = {"batch": 20, "cohort": 10, "steps": 10}
MNIST = {"data": "mnist", "train": 6000, "test": 1000, "clients": 20}
CIFAR = {"data": "cifar10", "train": 10000, "test": 1000, "clients": 20, "precision": "bf16"}
WORKLOADS = {
    "quadratic": Workload(
        "quadratic", {"clients": 20, "dim": 10}, {"steps": 10}, 500, 1e-4, 1e-2, 8.0, THREE
    ),
    "logistic": Workload("drawn logistic", {}, {"steps": 5}, 200, 1e-2, 1.0, 5.0, TWO),
    "logistic, cohorts of 100, batches": Workload(
        "drawn logistic", {}, FEW | {"cohort": 100}, 200, 1e-2, 1.0, 5.0
    ),
    "softmax": Workload(
        "softmax-synthetic", {"clients": 30}, {"steps": 10}, 300, 1e-3, 3e-2, 2.0, TWO
    ),
    "softmax, batches": Workload(
        "softmax-synthetic", {"clients": 30}, FEW, 300, 1e-3, 3e-2, 2.0
    ),
    "mlp 64-32-32-10 on digits": Workload(
        "images", {"model": "mlp", "hidden": 32}, FEW, 200, 1e-2, 1e-1, 2.0, TWO
    ),
    "mlp 784-200-200-10 on MNIST": Workload(
        "images", MNIST | {"model": "mlp"}, FEW, 100, 1e-2, 1e-1, 2.0
    ),
    "small CNN": Workload(
        "images", MNIST | {"model": "cnn-small"}, FEW, 200, 1e-3, 1e-1, 6.0, TWO, "cuda"
    ),
    "ResNet-18": Workload(
        "images", CIFAR | {"model": "resnet18-3x3"}, FEW, 40, 1e-3, 1e-1, 1.3, ("FedAvg",), "cuda"
    ),
}  # fmt: skip


class Spent(NamedTuple):
    seconds: float
    """Processor time of whole processes, one after another; on a GPU, seconds."""
    inside: float
    """Of their rounds alone."""
    memory: float
    """Of the largest of them, in MB; on a GPU, the memory there."""


def problem(workload: Workload) -> Any:
    import torch

    from undrift.problems.named import build

    if workload.problem == "drawn logistic":
        return drawn_logistic()
    made = build(workload.problem, **workload.parameters)
    if workload.device == "cuda":
        return made.to(torch.float32, torch.device("cuda"))
    return made


def drawn_logistic(clients: int = 1000, samples: int = 20, dim: int = 30) -> Any:
    """Logistic regression of clients whose samples have other means."""
    import numpy as np

    from undrift.problems import Logistic

    rng = np.random.default_rng(0)
    x = rng.normal(size=(clients, samples, dim)) + rng.normal(size=(clients, 1, dim))
    score = x @ rng.normal(size=dim) / dim**0.5
    labels = np.where(rng.uniform(size=score.shape) < 1 / (1 + np.exp(-score)), 1.0, -1.0)
    parts = np.arange(labels.size).reshape(labels.shape)
    return Logistic(x.reshape(-1, dim), labels.ravel(), list(parts), l2=1e-2)


def work(name: str, method: str, which: Sequence[int]) -> None:
    """Run these settings, as a sweep where there are several; print what their rounds took."""
    import torch

    from undrift import methods
    from undrift.engines import Simulate
    from undrift.sweeps.sweep import Sweep

    torch.set_num_threads(1)
    workload = WORKLOADS[name]
    federation, steps = problem(workload), workload.steps()
    given = [getattr(methods, method)(lr=steps[k]) for k in which]
    clock = time.perf_counter if workload.device == "cuda" else time.process_time
    engine: Any
    if len(given) > 1:
        engine = Sweep(given, federation, **workload.options)
    else:
        engine = Simulate(given[0], federation, **workload.options)
    began = clock()
    for done in range(1, workload.rounds + 1):
        engine.run_round()
        if done % max(1, workload.rounds // LOOKS) == 0:
            looked(engine)
    inside = clock() - began
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    if workload.device == "cuda":
        memory = torch.cuda.max_memory_allocated()
    alone = [*getattr(engine, "alone", ())]
    print(json.dumps({"inside": inside, "memory": memory / 1e6, "alone": alone}))


def looked(engine: Any) -> None:
    from undrift.sweeps.sweep import Sweep

    if isinstance(engine, Sweep):
        for t in range(SETTINGS):
            engine.problem.metrics(engine.x(t))
    else:
        engine.metrics()


def spent(name: str, method: str, jobs: Sequence[Sequence[int]]) -> Spent:
    """What a process for each of these jobs took."""
    found = list(processes(name, method, jobs))
    most = max(one.memory for one in found)
    return Spent(sum(one.seconds for one in found), sum(one.inside for one in found), most)


def processes(name: str, method: str, jobs: Sequence[Sequence[int]]) -> Iterator[Spent]:
    env = os.environ | {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
    for which in jobs:
        before, began = children(), time.perf_counter()
        command = [sys.executable, __file__, "--work", name, method, *map(str, which)]
        output = subprocess.run(command, env=env, check=True, stdout=subprocess.PIPE, text=True)
        took = time.perf_counter() - began
        told = json.loads(output.stdout.splitlines()[-1])
        if told["alone"]:
            print(f"{name} {method}: settings {told['alone']} left the stack", file=sys.stderr)
        seconds = took if WORKLOADS[name].device == "cuda" else children() - before
        yield Spent(seconds, told["inside"], told["memory"])


def children() -> float:
    """Processor time of all processes that have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", metavar="NAME", nargs="+", help="workloads that start so")
    parser.add_argument("--runs", type=int, choices=(1, 2, 4, 8, 16), default=SETTINGS)
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--work", nargs="+", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.work:
        name, method, *which = arguments.work
        return work(name, method, [int(k) for k in which])
    print("| workload, rounds | method | 16 runs | sweep | ratio | asked | in a process | memory |")
    print("|---|---|---|---|---|---|---|---|")
    for name, workload in WORKLOADS.items():
        if workload.device != arguments.device:
            continue
        if arguments.only and not name.startswith(tuple(arguments.only)):
            continue
        for method in workload.methods:
            times = SETTINGS // arguments.runs
            runs = spent(name, method, [[k] for k in range(0, SETTINGS, times)])
            sweep = spent(name, method, [range(SETTINGS)])
            print(
                f"| {name}, {workload.rounds} | {method} | {times * runs.seconds:.1f} s "
                f"| {sweep.seconds:.1f} s | {times * runs.seconds / sweep.seconds:.1f} "
                f"| {workload.least:g} | {times * runs.inside / sweep.inside:.1f} "
                f"| {runs.memory:.0f}, {sweep.memory:.0f} MB |",
                flush=True,
            )


if __name__ == "__main__":
    main()
