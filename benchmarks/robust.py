"""Robust aggregation where a fifth of the clients send the negative of what they should.

    python benchmarks/robust.py

runs FedAvg on logistic regression with the mean and with every robust rule, once with honest
clients and once with 10 of 50 that flip the sign of every upload. Prints the gap f(x) - f* (the
geometric mean over the seeds), f being that of all 50 clients, and how many times the honest mean's
that is.

Every client holds 1000 samples of 5 features from N(0, I), with labels of one logistic model for
all. It takes 5 local steps of 0.5. The early gap is what so few steps leave; the late one, where
uploads differ more than they agree, is what the clients' samples have in common. A seed decides
the samples and who lies. --unlike moves the model of every client by so much in every coordinate.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping

import numpy as np
import torch

import undrift as ud
from undrift.core.struct import Message
from undrift.engines import Simulate
from undrift.engines.order import Order
from undrift.engines.work import Work
from undrift.problems.logistic import Logistic

CLIENTS, LIARS, SAMPLES, FEATURES, L2 = 50, 10, 1000, 5, 0.01
LR, STEPS, EARLY, LATE = 0.5, 5, 8, 30
REDUCTIONS: dict[str, Mapping[str, object] | None] = {
    "mean": None,
    "median": {"name": "median"},
    "trimmed-mean, share 0.2": {"name": "trimmed-mean", "share": 0.2},
    "krum, bad 10": {"name": "krum", "bad": LIARS},
    "multi-krum, bad 10": {"name": "multi-krum", "bad": LIARS},
    "geometric-median": {"name": "geometric-median"},
    "centred-clipping, radius 0.05, iterations 10": {
        "name": "centred-clipping",
        "radius": 0.05,
        "iterations": 10,
    },
    "norm-clipping, radius 0.2": {"name": "norm-clipping", "radius": 0.2},
}


class Flipped(Simulate):
    """Some clients send their uploads times ``factor``."""

    liars: np.ndarray
    factor: float

    def collect(self, order: Order, down: Message) -> list[Work]:
        works = super().collect(order, down)
        return [work._replace(up=self._flipped(work)) for work in works]

    def _flipped(self, work: Work) -> Message | None:
        signs = torch.from_numpy(np.where(np.isin(work.senders, self.liars), self.factor, 1.0))
        return None if work.up is None else work.up.map(lambda v: signs.to(v).unsqueeze(-1) * v)


def main() -> None:
    asked = arguments()
    problems = [problem(seed, asked.unlike) for seed in range(asked.seeds)]
    found = {
        (name, liars): np.exp(
            np.mean(
                [
                    np.log(gaps(problems[seed], rule, liars, seed, asked.factor))
                    for seed in range(asked.seeds)
                ],
                axis=0,
            )
        )
        for name, rule in REDUCTIONS.items()
        for liars in (0, LIARS)
    }
    clean = found["mean", 0]
    rounds = [f"round {number}" for number in (EARLY, LATE)]
    head = [f"{when}, {what}" for when in rounds for what in ("honest", "flipped", "times")]
    print(f"| rule | {' | '.join(head)} |\n|{'---|' * (len(head) + 1)}")
    for name in REDUCTIONS:
        cells = [
            f"{found[name, 0][k]:.1e} | {found[name, LIARS][k]:.1e}"
            f" | {found[name, LIARS][k] / clean[k]:.2g}"
            for k in range(2)
        ]
        print(f"| {name} | {' | '.join(cells)} |")


def problem(seed: int, unlike: float) -> Logistic:
    rng = np.random.default_rng(seed)
    model, x, labels = rng.normal(size=FEATURES), [], []
    for _ in range(CLIENTS):
        own = model + unlike * rng.normal(size=FEATURES)
        x.append(rng.normal(size=(SAMPLES, FEATURES)))
        labels.append(np.where(rng.random(SAMPLES) < 1 / (1 + np.exp(-x[-1] @ own)), 1.0, -1.0))
    parts = np.split(np.arange(CLIENTS * SAMPLES), CLIENTS)
    return Logistic(np.concatenate(x), np.concatenate(labels), parts, L2)


def gaps(
    f: Logistic, rule: Mapping[str, object] | None, liars: int, seed: int, factor: float
) -> list[float]:
    """f(x) - f* after the early and the late round."""
    engine = Flipped(ud.FedAvg(lr=LR), f, steps=STEPS, aggregation=rule)
    engine.liars = np.random.default_rng(seed).choice(CLIENTS, liars, replace=False)
    engine.factor, found = factor, []
    for _ in range(LATE):
        engine.run_round()
        if engine.round in (EARLY, LATE):
            found.append(float(f.metrics(engine.x)["gap"]))
    return found


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--factor", type=float, default=-1.0, help="of the liars' uploads")
    parser.add_argument("--unlike", type=float, default=0.0, help="how different clients are")
    return parser.parse_args()


if __name__ == "__main__":
    main()
