"""FedRecu from the start of the authors' CNN code."""

import hashlib
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from undrift.engines import Simulate
from undrift.methods import FedRecu
from undrift.problems import Quadratic
from undrift.spec.user_files import execute
from undrift_papers.reproduce.items import PAPERS

(AsCoded,) = execute(PAPERS / "fedrecu" / "as_coded.py").methods.values()
rng = np.random.default_rng(0)
DIAGONALS, LINEAR = rng.uniform(0.5, 3.0, (4, 5)), rng.standard_normal((4, 6, 5))


def ends(method, problem, rounds=400, **setting):
    engine = Simulate(
        method(lr=0.02), problem, steps=6, x0=torch.ones(5, dtype=torch.float64), **setting
    )
    for _ in range(rounds):
        engine.run_round()
    return engine.x


def test_with_exact_gradients_it_stays_where_it_starts():
    problem = Quadratic(DIAGONALS, LINEAR.mean(1))
    assert torch.allclose(
        ends(AsCoded, problem), torch.ones(5, dtype=torch.float64), rtol=0, atol=1e-12
    )
    assert torch.allclose(ends(FedRecu, problem), problem.optimum, rtol=0, atol=1e-10)


@pytest.mark.whole
def test_with_mini_batches_it_goes_where_the_mean_gradient_is_the_first_one():
    """Components that differ in q alone: a mini-batch shifts the gradient, the same way at every
    point.
    """
    problem = Quadratic(np.repeat(DIAGONALS[:, None], 6, 1), LINEAR)
    away, there = (
        torch.stack([ends(m, problem, rounds=60, batch=1, seed=seed) for seed in range(20)]).mean(0)
        - problem.optimum
        for m in (AsCoded, FedRecu)
    )
    curvature = torch.as_tensor(DIAGONALS.mean(0))
    first = curvature - torch.as_tensor(
        LINEAR.mean((0, 1))
    )  # at the start; the means below have 0.1 of noise
    assert torch.allclose(curvature * away, first, rtol=0, atol=0.45) and float(first.min()) > 1
    assert torch.allclose(curvature * there, 0 * first, rtol=0, atol=0.45)


def test_only_the_first_round_is_another():
    x, g = torch.ones(2, 5), torch.full((2, 5), 3.0)
    oracle = SimpleNamespace(round=0, decay=1.0, grad=lambda x, step: g)
    code, paper = (m.Correct(m(lr=0.1)) for m in (AsCoded, FedRecu))
    me, got = FedRecu.Client(x=2 * x, g=5 * g), paper.Down(x=x)
    assert torch.equal(code.work(me, got, oracle)[1].w, x) and torch.equal(
        code.work(me, got, oracle)[0].g, g
    )
    oracle.round = 1
    assert torch.equal(code.work(me, got, oracle)[1].w, paper.work(me, got, oracle)[1].w)
    assert not torch.equal(code.work(me, got, oracle)[1].w, x)


def test_feddcs_control_variates_are_over_the_first_step_size():
    """By hand, two clients with f_i(x) = d_i x^2 / 2 - q_i x and one local step: c_i(1) = g_i(x0)
    and x1 follow FedDC; then lr halves, and c_i(2) = c_i - c + (its move) / (the first lr).
    """
    (code,) = execute(PAPERS / "fedacg" / "as_coded.py").methods.values()
    d, q, lr, alpha, x = np.array([1.0, 3.0]), np.array([1.0, -2.0]), 0.1, 0.5, 1.0
    h, c = np.zeros(2), np.zeros(2)
    engine = Simulate(
        code(lr=lr, alpha=alpha, first=lr),
        Quadratic(d[:, None], q[:, None]),
        steps=1,
        schedule=0.5,
        x0=torch.ones(1, dtype=torch.float64),
    )
    for k in range(3):
        move = -lr * 0.5**k * (d * x - q + alpha * h + c.mean() - c)
        h, c = h + move, c - c.mean() - move / lr
        x += move.mean() + h.mean()
        engine.run_round()
        assert abs(float(engine.x) - x) < 1e-12


def test_its_bytes_stay_since_specs_hash_them():
    """The identity of every spec with this file, and so of unfinished runs, depends on them."""
    content = (PAPERS / "fedrecu" / "as_coded.py").read_bytes()
    assert hashlib.sha256(content).hexdigest() == (
        "9c51f0e624ad5d2a43b29fab6bb5c9593622d3dea8ad4598021ad7112441dc35"
    )
