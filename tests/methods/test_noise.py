"""What mini-batches do to the methods."""

import numpy as np
import pytest

import undrift as ud
from undrift.problems import build


@pytest.mark.parametrize("steps", [4, 10])
def test_fedrecu_drifts_further_than_scaffold_with_mini_batches(steps):
    """With K small steps and noise of variance v in each gradient of a client.

    FedRecu takes a common first step; each of the K - 1 others subtracts the noise of the first
    gradient again, so a client is (K - 1) v + (K - 1)^2 v away. SCAFFOLD's variates are means over
    the K gradients of the round before: K v + K^2 v / K.
    """
    problem = build("softmax-synthetic", clients=40, samples=200, features=8, classes=3)

    def drift(method):
        run = ud.run(method, problem, rounds=40, steps=steps, batch=2, seed=0)
        return np.mean([row["drift"] for row in run.history.rows[3:]])

    found = drift(ud.FedRecu(lr=1e-6)) / drift(ud.Scaffold(lr=1e-6))
    assert found == pytest.approx((steps - 1) / 2, rel=0.1)
