"""FedPD's second oracle counts its own rounds, those without a communication too."""

import dataclasses

import numpy as np
import pytest

import undrift.methods as um
from tests.reference import correction
from undrift.check.federations import least_squares
from undrift.core.streams import Streams
from undrift.engines import Simulate, Wire
from undrift.engines.batches import Batches

SEED, ROUNDS, Q, BATCH = 5, 14, 3, 2
PROBLEM = least_squares()
ETA, GAMMA = 0.05, 0.2


class Regression:
    """The library's least squares, as the transcription reads it."""

    N, d = PROBLEM.clients, PROBLEM.dim

    def rows(self, i):
        return PROBLEM.A[i].numpy(), PROBLEM.b[i].numpy()

    def grad(self, i, x):
        a, b = self.rows(i)
        return a.T @ (a @ x - b)


@dataclasses.dataclass
class Clock:
    """Which communication, and which repetition before it, a round of the oracle is."""

    p: float

    def __post_init__(self):
        self.places, self.coins = [], []
        for r in range(ROUNDS):
            blocks = int(Streams(SEED).at("coins", r).geometric(1 - self.p))
            self.places += [(r, block) for block in range(blocks)]
            self.coins += [False] * (blocks - 1) + [True]


def transcribed(p, I):  # noqa: E741
    fed, clock, batches = (
        Regression(),
        Clock(p),
        Batches(Streams(SEED), PROBLEM, BATCH, epochs=False),
    )

    def sampled(i, x, r, q):
        communication, block = clock.places[r]
        ((positions,),) = batches.draw([i], communication, block * Q + q)
        a, b = (part[positions.numpy()] for part in fed.rows(i))
        return len(fed.rows(i)[1]) / BATCH * a.T @ (a @ x - b)

    x0 = np.zeros(fed.d)
    return correction.fedpd(
        fed, x0, len(clock.coins), eta=ETA, gamma=GAMMA, oracle="II", steps=Q, coins=clock.coins,
        period=I,
        sampled=sampled,
    )  # fmt: skip


def run(engine, count):
    trail = []
    for _ in range(count):
        engine.run_round()
        trail.append(engine.x.numpy().copy())
    return trail


@pytest.mark.covering(3)
@pytest.mark.parametrize("kind", [Simulate, Wire])
@pytest.mark.parametrize(("p", "I"), [(0.0, 1), (0.0, 3), (0.5, 1), (0.5, 3), (0.7, 4)])
def test_oracle_2_is_algorithm_4(kind, p, I):  # noqa: E741
    engine = kind(
        um.FedPDVR(eta=ETA, gamma=GAMMA, p=p, I=I), PROBLEM, steps=Q, batch=BATCH, seed=SEED
    )
    expected = transcribed(p, I)
    np.testing.assert_allclose(
        run(engine, ROUNDS), expected[1:], rtol=0, atol=1e-12 * np.abs(expected).max()
    )


def test_the_count_survives_a_restart():
    method, setting = (
        um.FedPDVR(eta=ETA, gamma=GAMMA, p=0.5, I=3),
        {"steps": Q, "batch": BATCH, "seed": SEED},
    )
    whole = Simulate(method, PROBLEM, **setting)
    run(whole, 5)
    later = Simulate(method, PROBLEM, **setting)
    run(later, 2)
    later.restore(*whole.snapshot())
    np.testing.assert_array_equal(run(later, 6), run(whole, 6))
