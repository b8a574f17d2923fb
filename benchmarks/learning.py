"""Every kind of local training learns real images: five methods, and FedAvg with each local
objective.

    UNDRIFT_DATA=FOLDER python benchmarks/learning.py

MNIST (6000 + 2000 of it) where the folder has it, else the digits that come with scikit-learn. 20
clients by
Dirichlet(0.1), a small convolutional network; all runs share data, split, start, cohorts and
batches. Two processes of
one thread each. The end is an error unless every run is right three times as often as chance.
"""

from __future__ import annotations

import argparse
import functools
import json
import multiprocessing
import os
import sys
import time
from concurrent.futures import ProcessPoolExecutor
from typing import Any

import torch

from undrift.core import Method
from undrift.data.images import BadData
from undrift.engines import Simulate
from undrift.methods import FedACG, FedAvg, FedRecu, FedSpeed, Scaffold
from undrift.objectives import MOON, CrossEntropy, FedDecorr, FedLC, FedMLB, FedNTD, Objective
from undrift.problems import Neural
from undrift.problems.named import Images

MNIST = Images(data="mnist", train=6000, test=2000, clients=20, beta=0.1)
DIGITS = Images(clients=20, beta=0.1)
JOBS: list[tuple[Method, Objective]] = [
    (FedAvg(lr=0.2), CrossEntropy()),
    (Scaffold(lr=0.2), CrossEntropy()),
    (FedSpeed(lr=0.1), CrossEntropy()),
    (FedACG(lr=0.2), CrossEntropy()),
    (FedRecu(lr=0.2), CrossEntropy()),
    (FedAvg(lr=0.2), MOON()),
    (FedAvg(lr=0.2), FedMLB(lam3=0.2)),
    (FedAvg(lr=0.2), FedLC()),
    (FedAvg(lr=0.2), FedNTD()),
    (FedAvg(lr=0.2), FedDecorr()),
]
DEAR = {FedSpeed, MOON, FedMLB, FedNTD}
"""Two or more passes per step: begun first."""
ROUNDS, STEPS, BATCH = 60, 5, 16


@functools.cache
def federation(images: Images) -> Neural:
    torch.set_num_threads(1)
    return images.build()


def train(images: Images, method: Method, objective: Objective, rounds: int) -> dict[str, Any]:
    base = federation(images)
    problem = Neural(base.net, base.data, base.parts, objective=objective)
    began = time.perf_counter()
    engine = Simulate(method, problem, steps=STEPS, batch=BATCH, training={"clip": 10.0})
    for _ in range(rounds):
        engine.run_round()
    seconds = time.perf_counter() - began
    names = {"method": type(method).__name__, "objective": type(objective).__name__}
    return {**names, **problem.metrics(engine.x), "seconds": seconds}


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument(
        "--digits", action="store_true", help="the embedded images, even where MNIST is there"
    )
    parser.add_argument("--json", action="store_true")
    asked = parser.parse_args()
    images = DIGITS
    if os.environ.get("UNDRIFT_DATA") and not asked.digits:
        try:
            images = federation(MNIST) and MNIST
        except BadData as error:
            print(f"{error}; the digits are taken instead", file=sys.stderr)
    data = federation(images).data
    began = time.perf_counter()
    order = sorted(range(len(JOBS)), key=lambda k: not {type(part) for part in JOBS[k]} & DEAR)
    with ProcessPoolExecutor(2, multiprocessing.get_context("spawn")) as pool:
        waiting = {k: pool.submit(train, images, *JOBS[k], asked.rounds) for k in order}
        rows = [waiting[k].result() for k in range(len(JOBS))]
    chance = 1 / len(data.classes)
    if asked.json:
        print(json.dumps(rows, indent=1))
    else:
        size = f"{len(data.labels)} + {len(data.test_labels)} images"
        split = f"{images.clients} clients, Dirichlet({images.beta:g})"
        work = f"{asked.rounds} rounds of {STEPS} steps on {BATCH} images"
        spent = f"{time.perf_counter() - began:.0f} s in all"
        print(f"{data.name}, {size}, {split}, {work}; chance {chance:.0%}, {spent}")
        print(f"{'method':10s} {'objective':13s} {'accuracy':>8s} {'loss':>7s} {'seconds':>8s}")
        for row in rows:
            name = f"{row['method']:10s} {row['objective']:13s}"
            print(f"{name} {row['accuracy']:8.1%} {row['loss']:7.3f} {row['seconds']:8.1f}")
    failed = [
        f"{row['method']} with {row['objective']}"
        for row in rows
        if not row["accuracy"] > 3 * chance
    ]
    if failed:
        print(f"not learnt: {', '.join(failed)}", file=sys.stderr)
    return bool(failed)


if __name__ == "__main__":
    sys.exit(main())
