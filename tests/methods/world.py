"""Small federations seen both by the library and by the NumPy references."""

import numpy as np
import torch

from tests.reference.problem import Federation, random_federation
from undrift.core.cohort import Sampling
from undrift.core.streams import Streams
from undrift.engines import Simulate
from undrift.problems.quadratic import Quadratic


def problem_of(fed: Federation) -> Quadratic:
    return Quadratic(
        np.stack([h for h, _ in fed.quadratics]), np.stack([q for _, q in fed.quadratics])
    )


def federation(seed=0, N=5, d=4, mu=1.0, L=6.0) -> Federation:
    return random_federation(N, d, mu, L, seed)


def points(method, fed, x0, rounds, **setting) -> np.ndarray:
    """The server's points, the start first."""
    engine = Simulate(method, problem_of(fed), x0=torch.as_tensor(x0), **setting)
    trail = [engine.x.numpy().copy()]
    for _ in range(rounds):
        engine.run_round()
        trail.append(engine.x.numpy().copy())
    return np.stack(trail)


def cohorts(seed, rounds, size, total):
    return [Sampling(size).draw(Streams(seed), r, total).members.tolist() for r in range(rounds)]


def coins(seed, rounds, p):
    """The shared coin of every local step: true where clients communicate after it."""
    flips = []
    for r in range(rounds):
        flips += [False] * (int(Streams(seed).at("coins", r).geometric(p)) - 1) + [True]
    return flips


def start(fed, seed=1):
    return np.random.default_rng(seed).normal(size=fed.d) * 3


def gap(fed, x):
    """f(x) - f*, without cancellation."""
    e = x - fed.x_star
    return 0.5 * e @ fed.h_bar @ e


ROUNDS, SEED, P = 25, 3, 0.4
FED = federation()
X0 = start(FED)
L = FED.smoothness
FEW = cohorts(SEED, ROUNDS, 3, FED.N)
FLIPS = coins(SEED, ROUNDS, P)
UNEVEN = [1, 4, 2, 3, 2]


def agree(method, setting, expected):
    """The library's points on ``FED`` are the transcription's, and they move."""
    got = points(method, FED, X0, ROUNDS, seed=SEED, **setting)
    np.testing.assert_allclose(
        got, expected[: ROUNDS + 1], rtol=0, atol=1e-11 * max(1.0, np.abs(expected).max())
    )
    assert np.abs(got[-1] - got[0]).max() > 1e-3
