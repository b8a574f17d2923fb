"""Where lr decays, what methods remember must not be weighed by past steps."""

import dataclasses

import numpy as np
import pytest
import torch

import undrift.methods as um
from tests.methods.world import FED, X0, L, points, problem_of
from tests.reference import correction, papers
from undrift.check.federations import STEPS, example, quadratic
from undrift.core.schedules import Exponential
from undrift.engines import Simulate, Wire

DECAY = 0.97


@pytest.mark.parametrize("tau", [1, 2, 3, 5])
def test_fedrecu_is_still_fedlin(tau):
    lr, rounds = 8 / (13 * tau * L), 120
    expected = papers.fedrecu_round(
        FED, X0, rounds, alpha=[lr * DECAY**k for k in range(rounds)], tau=tau
    )
    got = points(um.FedRecu(lr=lr), FED, X0, rounds, steps=tau, schedule=DECAY)
    np.testing.assert_allclose(got, expected, rtol=0, atol=1e-12 * np.abs(expected).max())
    lin = points(um.FedLin(lr=lr), FED, X0, rounds, steps=tau, schedule=DECAY)
    np.testing.assert_allclose(got, lin, rtol=0, atol=1e-12 * np.abs(expected).max())


@pytest.mark.parametrize("kind", [Simulate, Wire])
@pytest.mark.parametrize("tau", [1, 2, 3, 5])
def test_extra_follows_its_dual_form(kind, tau):
    """(6); a round's steps make X(k tau), ..., X((k+1) tau - 1), or X(k+1) where tau = 1."""
    lr, rounds, trace = 0.3 / (tau * L), 60, []
    alpha = [
        lr * DECAY ** (max(t - 1, 0) if tau == 1 else t // tau)
        for t in range((rounds + 1) * tau + 1)
    ]
    correction.extra_dual(FED, X0, rounds + 1, alpha=alpha, tau=tau, trace=trace)
    path = {t: row["x"] for t, row in enumerate(trace, start=2)}
    engine = kind(
        um.EXTRA(lr=lr), problem_of(FED), steps=tau, x0=torch.as_tensor(X0), schedule=DECAY
    )
    for k in range(1, rounds + 1):
        engine.run_round()
        if (t := k * tau - (tau > 1)) in path:
            np.testing.assert_allclose(
                engine.snapshot()[0]["client.x"].numpy(), path[t], rtol=0, atol=1e-11
            )
    assert np.abs(path[t] - X0).max() > 0.1


EXACT = [name for name in um.__all__ if um.registry[name].exact]


@pytest.mark.covering(9)
@pytest.mark.parametrize("name", EXACT)
def test_exact_methods_get_as_far_as_their_steps_add_up_to(name):
    """300 rounds with decay 0.99 take as much of lr in all as 95 rounds without."""
    problem = quadratic()
    method = example(um.registry[name], problem.constants)
    if method.refuse_schedule(Exponential(rate=0.99)):
        assert "lr" not in {field.name for field in dataclasses.fields(method)}
        return

    def distance(rounds, decay=None):
        engine = Simulate(method, problem, steps=STEPS, schedule=decay)
        for _ in range(rounds):
            engine.run_round()
        return float((engine.x - problem.optimum).norm())

    assert distance(300, 0.99) <= 5 * distance(95) + 1e-9 * distance(0)
