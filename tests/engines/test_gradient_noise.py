"""Quadratics whose local gradients have noise of a known variance."""

import numpy as np
import pytest
import torch
from tests.rounds import played
from tests.spec.texts import CONVEX

import undrift as ud
from undrift.core.options import RunOptions
from undrift.engines import Simulate, Wire
from undrift.problems import Quadratic, build
from undrift.runs.api import resolve
from undrift.runs.prepare import lay_out
from undrift.spec.reader import parse
from undrift.theory import steps as theory

RNG = np.random.default_rng(2)
METHODS = {
    "FedAvg": ud.FedAvg(lr=0.05),
    "Scaffold": ud.Scaffold(lr=0.05),
    "two gradients in a step": ud.FedSpeed(lr=0.05, lam=1.0, rho=0.1, alpha=0.5),
    "two phases": ud.FedLin(lr=0.05),
    "one gradient": ud.GD(lr=0.05),
    "momentum": ud.FedACG(lr=0.05, lam=0.5, beta=0.1),
}


def noisy(noise=0.3, components=None, clients=4, d=5):
    shape = (clients, d) if components is None else (clients, components, d)
    return Quadratic(RNG.uniform(1, 2, shape), RNG.normal(size=shape), noise=noise)


def test_its_square_is_that_of_sigma():
    problem = noisy(0.3)
    f, y = problem.at(np.zeros(20_000, dtype=int)), torch.ones(20_000, 5, dtype=torch.float64)
    added = (f.grad(y, None, None, torch.arange(20_000)) - f.grad(y)).numpy()
    squares = (added**2).sum(1)  # 0.09/5 times a chi-squared of 5: standard deviation 0.057
    assert squares.mean() == pytest.approx(0.09, abs=4 * 0.057 / 20_000**0.5)
    assert np.abs(np.cov(added.T) - 0.018 * np.eye(5)).max() < 6 * 0.018 / 20_000**0.5 * 2**0.5
    assert np.abs(added.mean(0)).max() < 4 * 0.018**0.5 / 20_000**0.5


@pytest.mark.covering(1)
@pytest.mark.thorough
@pytest.mark.parametrize("local", [1, 4])
def test_the_floor_of_sgd(local, lr=0.2, sigma=0.5, clients=4, rounds=1500):
    """Equal Hessians h: e_k is an autoregression, so E e_k^2 = lr s / (h_k (2 - lr h_k)).

    s = sigma^2 / (d N) is the variance of a coordinate in the mean of the gradients. For local
    steps it is the same, as the mean of the clients' models follows the same recursion.
    """
    h = np.linspace(0.5, 2, 6)
    q = np.random.default_rng(0).normal(size=(clients, 6))
    problem = Quadratic(np.tile(h, (clients, 1)), q, noise=sigma)
    engine, found = Simulate(ud.FedAvg(lr=lr), problem, steps=local, x0=problem.optimum), []
    for _ in range(rounds):
        engine.run_round()
        found.append(problem.metrics(engine.x)["gap"])
    floor = (lr * sigma**2 / (6 * clients) / (2 * (2 - lr * h))).sum()
    assert np.mean(found[50:]) == pytest.approx(floor, rel=0.12)


@pytest.mark.parametrize("what", METHODS)
@pytest.mark.parametrize("cohort", [None, 2])
def test_engines_agree(what, cohort):
    method, problem = METHODS[what], noisy()
    full = method.participation == "full"
    setting = {"steps": [1, 2, 3, 4], "cohort": None if full else cohort}
    stacked, alone = (played(method, problem, kind, **setting) for kind in (Simulate, Wire))
    torch.testing.assert_close(stacked.x, alone.x, rtol=0, atol=1e-12)
    assert stacked.streams.used and alone.streams.used
    other = played(method, problem, Simulate, seed=1, **setting)
    assert not torch.allclose(stacked.x, other.x)


def test_mini_batches_have_it_too():
    problem, scaffold = noisy(components=6), METHODS["Scaffold"]
    setting = {"epochs": 1, "batch": 4}
    stacked, alone = (played(scaffold, problem, kind, **setting) for kind in (Simulate, Wire))
    torch.testing.assert_close(stacked.x, alone.x, rtol=0, atol=1e-12)
    exact = Quadratic(*problem.components)
    assert not torch.allclose(stacked.x, played(scaffold, exact, Simulate, **setting).x)


def test_gradients_on_all_data_are_exact():
    """Mime adds one to a difference of two gradients in a step, whose noise is the same."""
    problem = noisy()
    exact = Quadratic(problem.H, problem.q)
    found, want = (played(ud.Mime(lr=0.05), given, Simulate, steps=3) for given in (problem, exact))
    torch.testing.assert_close(found.x, want.x, rtol=0, atol=1e-13)
    assert found.streams.used and not want.streams.used
    assert problem.metrics(want.x) == exact.metrics(want.x) and problem.digest() != exact.digest()


def test_specs_and_calls_have_it():
    spec = parse(CONVEX.replace("clients = 4\n", "clients = 4\nnoise = 0.1\n"))
    (task,) = lay_out(spec, 0, [])
    assert task.problem.noise == 0.1
    run = ud.run(ud.FedAvg(lr=0.02), "quadratic", rounds=2, noise=0.1)
    plain = ud.run(ud.FedAvg(lr=0.02), "quadratic", rounds=2)
    assert run.engine.streams.used and not plain.engine.streams.used
    assert not torch.equal(run.x, plain.x)
    with pytest.raises(ValueError, match="noise = -1 is not allowed"):
        Quadratic([[1.0]], [[1.0]], noise=-1)


def test_theory_knows_of_it():
    method = ud.FedRecu(lr="theory")
    found = [
        resolve(method, build("quadratic", noise=noise), RunOptions(steps=4)).lr
        for noise in (0.0, 0.1)
    ]
    want = [theory.fedrecu_convex(10.0, 4), theory.fedrecu_convex_stochastic(10.0, 4)]
    assert found == pytest.approx(want, rel=1e-12) and want[1] < want[0] / 3
