"""Processor time per round of this checkout beside another one, on small and on usual workloads.

    python benchmarks/overhead.py --against CHECKOUT [--only NAME ...] [--repeats 15]

Two processes of one thread each, one for every checkout, take turns; the ratio is that of their
best times. On the tiny quadratics (5 clients, 3 coordinates, 2 local steps) a round is Python's
work alone; the rest are those of convex.py and of peers.
"""

from __future__ import annotations

import argparse
import functools
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
METHODS = ("FedAvg", "Scaffold", "FedLin", "FedRecu", "FedCET")
TINY = [f"tiny {name}" for name in METHODS]
SAMPLED = [f"sampled {name}" for name in ("FedAvg", "Scaffold")]
CONVEX = [f"convex {name}" for name in METHODS[:4]]
DENSE = [f"dense {name}" for name in METHODS[:4]]
WIRE = [f"wire {name}" for name in METHODS[:4]]
PEERS = ["peers logistic", "peers mlp", "peers cnn"]
ROUNDS = {"tiny": 300, "sampled": 300, "convex": 50, "dense": 1, "wire": 1, "peers": 1}
"""Rounds of one turn."""


def engine(kind: str, name: str) -> object:
    """The federation of a workload, in the checkout that this process imports."""
    import numpy as np
    import torch

    from undrift import methods
    from undrift.engines import Simulate, Wire
    from undrift.problems import Quadratic

    torch.set_num_threads(1)
    if kind == "peers":
        return peer(name)
    clients, dim, steps = {
        "tiny": (5, 3, 2),
        "sampled": (5, 3, 2),
        "convex": (20, 10, 10),
        "dense": (100, 1000, 4),
        "wire": (200, 100, 10),
    }[kind]
    rng = np.random.default_rng(0)
    a = rng.normal(size=(clients, dim, dim)) / np.sqrt(dim)
    problem = Quadratic(a @ a.transpose(0, 2, 1) + np.eye(dim), rng.normal(size=(clients, dim)))
    parameters = {"lr": 0.02 / steps} | ({"c": 0.1} if name == "FedCET" else {})
    method = getattr(methods, name)(**parameters)
    cohort = 2 if kind == "sampled" else None
    return (Wire if kind == "wire" else Simulate)(method, problem, steps=steps, cohort=cohort)


def peer(name: str) -> object:
    """undrift's contender among its peers, on one thread."""
    import numpy as np
    import torch

    from benchmarks.peers.torch_parts import network
    from benchmarks.peers.workloads import CLASSES, WORKLOADS
    from undrift.data.images import ImageSet
    from undrift.engines import Simulate
    from undrift.methods import FedAvg
    from undrift.problems import Neural
    from undrift.problems.softmax import Softmax

    workload = WORKLOADS[name]
    x, y = workload.data()
    parts = list(np.arange(y.size).reshape(y.shape))
    samples, labels = torch.from_numpy(x.reshape(-1, *workload.shape)), torch.from_numpy(y.ravel())
    method, dtype, cohort = FedAvg(lr=workload.lr), torch.float32, workload.cohort
    if workload.full:
        problem = Softmax(samples, labels, parts, l2=0.0, classes=CLASSES).to(dtype, "cpu")
        return Simulate(method, problem, steps=workload.epochs, cohort=cohort)
    classes = tuple(map(str, range(CLASSES)))
    data = ImageSet(samples, labels, samples[:1], labels[:1], classes, "synthetic")
    neural = Neural(network(workload), data, parts).to(dtype, torch.device("cpu"))
    epochs, batch = workload.epochs, workload.batch
    return Simulate(method, neural, epochs=epochs, batch=batch, cohort=cohort)


def work() -> None:
    """Seconds of as many rounds as asked for, line by line."""
    made = functools.cache(engine)
    for line in sys.stdin:
        kind, name, rounds = line.split()
        federation = made(kind, name)
        began = time.process_time()
        for _ in range(int(rounds)):
            federation.run_round()  # type: ignore[attr-defined]
        print(time.process_time() - began, flush=True)


def worker(checkout: Path) -> Callable[[str], float]:
    """A process that imports undrift from a checkout, and times what it is sent."""
    path = os.pathsep.join([str(checkout / "src"), str(ROOT)])
    env = os.environ | {"PYTHONPATH": path, "OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
    process = subprocess.Popen(
        [sys.executable, __file__, "--work"],
        env=env,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdin and process.stdout
    into, out = process.stdin, process.stdout

    def seconds(job: str) -> float:
        print(job, file=into, flush=True)
        return float(out.readline())

    return seconds


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--against", metavar="CHECKOUT", type=Path)
    parser.add_argument("--only", metavar="NAME", nargs="+", help="workloads that start so")
    parser.add_argument("--repeats", type=int, default=15)
    parser.add_argument("--work", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.work:
        return work()
    if arguments.against is None:
        parser.error("--against is missing: the folder of another checkout")
    one, other = worker(ROOT), worker(arguments.against.resolve())
    print(f"{'workload':18s} {'here':>10s} {'there':>10s}  us per round   here / there")
    for job in TINY + SAMPLED + CONVEX + DENSE + WIRE + PEERS:
        if arguments.only and not job.startswith(tuple(arguments.only)):
            continue
        rounds = ROUNDS[job.split()[0]]
        text = f"{job} {rounds}"
        one(f"{job} 1"), other(f"{job} 1")
        turns = [(one(text), other(text)) for _ in range(arguments.repeats)]
        here, there = (1e6 * min(times) / rounds for times in zip(*turns, strict=True))
        print(f"{job:18s} {here:10.1f} {there:10.1f} {here / there:28.3f}", flush=True)


if __name__ == "__main__":
    main()
