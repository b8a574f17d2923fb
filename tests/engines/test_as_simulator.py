"""FedProx, FedDyn and FedSpeed beside a NumPy transcription of the clients and servers of
FedSpeed's simulator: the proximal term as weight decay and a linear loss, which alone is clipped.
"""

import numpy as np
import pytest
import torch

from undrift.check.federations import quadratics
from undrift.engines import Simulate, Wire
from undrift.methods import FedDyn, FedProx, FedSpeed
from undrift.problems import Quadratic

LR, WEIGHT, RHO, CLIP, DECAY, FACTOR, STEPS = 0.02, 0.5, 0.1, 60.0, 0.1, 0.9, 4
HESSIANS, LINEAR = quadratics(clients=6)


def gradient(i, y, climbs):
    g = HESSIANS[i] @ y - LINEAR[i]
    return gradient(i, y + RHO * g / (np.linalg.norm(g) + 1e-7), False) if climbs else g


def trained(i, x, h, lr, climbs):
    """Client ``i`` from ``x`` on its loss and WEIGHT <y, h - x>; also how often that is clipped."""
    y, often = x, 0
    for _ in range(STEPS):
        v = gradient(i, y, climbs) + WEIGHT * (h - x)
        length = np.linalg.norm(v)
        often += length > CLIP
        y = y - lr * (v * min(1.0, CLIP / length) + (DECAY + WEIGHT) * y)
    return y, often


@pytest.mark.parametrize("engine", [Simulate, Wire])
@pytest.mark.parametrize(
    ("method", "corrects", "climbs"),
    [
        (FedProx(lr=LR, mu=WEIGHT), False, False),
        (FedDyn(lr=LR, alpha=WEIGHT), True, False),
        (FedSpeed(lr=LR, lam=1 / WEIGHT, perturb=False, server_dual="all"), True, False),
        (FedSpeed(lr=LR, lam=1 / WEIGHT, rho=RHO, server_dual="all"), True, True),
    ],
    ids=["FedProx", "FedDyn", "FedSpeed without ascent", "FedSpeed"],
)
def test_every_round_is_as_in_the_simulator(engine, method, corrects, climbs):
    x, h, often, taken = np.full(3, 9.0), np.zeros((6, 3)), 0, 0
    machine = engine(
        method,
        Quadratic(HESSIANS, LINEAR),
        steps=STEPS,
        cohort=2,
        seed=1,
        x0=torch.tensor(x),
        schedule=FACTOR,
        training={"clip": CLIP, "clip_scope": "reference", "weight_decay": DECAY},
    )
    for number in range(12):
        members = machine.cohort.draw(machine.streams, number, 6).members.tolist()
        machine.run_round()
        ends = []
        for i in members:
            y, clipped = trained(i, x, h[i] * corrects, LR * FACTOR**number, climbs)
            ends.append(y)
            h[i] += y - x
            often, taken = often + clipped, taken + STEPS
        x = np.mean(ends, axis=0) + corrects * h.mean(0)
        np.testing.assert_allclose(machine.x, x, rtol=0, atol=1e-12)
    assert 0 < often < taken
