"""Write the vectors: python -m conformance.make

The trajectories are those of the NumPy transcriptions under tests/reference, which read the papers
and nothing of undrift; cohorts are undrift's draws, so that undrift can be held to them too.
"""

import json
from pathlib import Path

import numpy as np
from tests.methods.world import cohorts
from tests.reference.averaging import fedadam, fedavg, fedavgm, fedcm, fedprox, fedyogi
from tests.reference.correction import feddyn, mimelite, scaffold
from tests.reference.fedspeed_acg import fedspeed
from tests.reference.problem import random_federation, random_logistic

HERE = Path(__file__).parent
ROUNDS, STEPS, LR, SEED = 20, 5, 0.05, 0
ADAPTIVE = {"server_lr": 0.1, "beta1": 0.9, "beta2": 0.99, "tau": 0.01}
METHODS = {
    "FedAvg": {"server_lr": 0.9},
    "FedProx": {"mu": 0.8},
    "FedAvgM": {"beta": 0.6, "server_lr": 0.8},
    "FedAdam": ADAPTIVE,
    "FedYogi": ADAPTIVE,
    "FedCM": {"alpha": 0.3},
    "Scaffold": {"server_lr": 0.9},
    "FedDyn": {"alpha": 1.5},
    "MimeLite": {"beta": 0.5},
    "FedSpeed": {"lam": 0.5, "rho": 0.05, "alpha": 0.7},
}
"""Hyper-parameters besides the local step."""
TRANSCRIBED = {
    "FedAvg": fedavg,
    "FedProx": fedprox,
    "FedAvgM": fedavgm,
    "FedAdam": fedadam,
    "FedYogi": fedyogi,
    "FedCM": fedcm,
    "Scaffold": scaffold,
    "FedDyn": feddyn,
    "MimeLite": mimelite,
    "FedSpeed": fedspeed,
}
LETTERS = {"server_lr": "eta_g"}


def trajectories(fed, x0, members):
    """Each method's points, the start first."""
    found = {}
    for name, given in METHODS.items():
        own = {LETTERS.get(key, key): value for key, value in given.items()}
        own["eta" if name == "MimeLite" else "eta_l"] = LR
        found[name] = TRANSCRIBED[name](fed, x0, ROUNDS, steps=STEPS, cohorts=members, **own)
    return found


def problems():
    """Name, federation, its arrays, and who takes part in each round."""
    for name, (clients, dim, seed), size in (
        ("quadratic", (3, 4, 1), 3),
        ("cohorts", (6, 5, 2), 2),
    ):
        fed = random_federation(clients, dim, 0.5, 4.0, seed)
        arrays = {"H": np.stack([h for h, _ in fed.quadratics])}
        arrays["q"] = np.stack([q for _, q in fed.quadratics])
        yield name, fed, arrays, cohorts(SEED, ROUNDS, size, clients)
    fed = random_logistic(4, 3, 20, 0.1, seed=7)
    arrays = {"A": np.stack([a for a, _ in fed.data]), "b": np.stack([b for _, b in fed.data])}
    yield "logistic", fed, {**arrays, "l2": np.array(fed.mu)}, [[0, 1, 2, 3]] * ROUNDS


def main(folder=HERE):
    for k, (name, fed, arrays, members) in enumerate(problems()):
        x0 = np.random.default_rng(k).normal(size=fed.d)
        points = trajectories(fed, x0, members)
        np.savez(folder / f"{name}.npz", x0=x0, cohorts=np.array(members), **arrays, **points)
    settings = {"rounds": ROUNDS, "steps": STEPS, "lr": LR, "seed": SEED, "methods": METHODS}
    (folder / "settings.json").write_text(json.dumps(settings, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
