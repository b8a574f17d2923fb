"""What the tests of the references share: federations to try them on, starts, cohorts and coins."""

import numpy as np
import pytest

from .problem import random_federation, random_logistic

SEEDS = [0, 1, 2]
CASES = [(3, 4, 0.5, 4.0), (5, 6, 0.2, 2.0), (2, 3, 1.0, 10.0)]  # N, d, mu, L
FEDS = [random_federation(*case, seed=seed) for case, seed in zip(CASES, SEEDS, strict=True)]
FEDS.append(random_logistic(4, 3, 20, 0.3, seed=7))
IDS = ["quad3x4", "quad5x6", "quad2x3", "logistic"]
every = pytest.mark.parametrize("fed", FEDS, ids=IDS)


def start(fed, seed=11):
    rng = np.random.default_rng(seed)
    return rng.standard_normal(fed.d), rng.standard_normal((fed.N, fed.d))


def close(a, b, tol):
    assert a.shape == b.shape
    assert np.max(np.abs(a - b)) <= tol * max(1.0, np.max(np.abs(b)))


def cohorts_for(fed, rounds, size, seed=5):
    rng = np.random.default_rng(seed)
    return [sorted(rng.choice(fed.N, size, replace=False).tolist()) for _ in range(rounds)]


def coins_for(p, count, seed=3):
    return [bool(c) for c in np.random.default_rng(seed).random(count) < p]


def local_grads(fed, x):
    return np.stack([fed.grad(i, x) for i in range(fed.N)])


def sq(x):
    return float(np.sum(np.asarray(x) ** 2))
