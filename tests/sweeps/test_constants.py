"""Estimated constants against exact ones, and against dense Hessians."""

import dataclasses

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose

from undrift.problems.named import build
from undrift.sweeps.constants import estimate

EXACT = {
    "quadratic": {"clients": 8, "dim": 6},
    "least-squares": {"clients": 5},
    "fedred": {"dim": 60},
    "logistic": {"data": "breast-cancer", "clients": 4},
}


@pytest.mark.parametrize("name", EXACT)
def test_constants_are_those_that_problems_know(name):
    problem = build(name, **EXACT[name])
    found, known = estimate(problem), problem.constants
    for field, value in dataclasses.asdict(known).items():
        near = 0.1 if field.startswith("delta") else 0.05
        assert getattr(found.constants, field) == pytest.approx(value, rel=near), field
        assert found.errors[field] <= near * value, field


def test_constants_of_a_network_are_those_of_dense_hessians():
    problem = build("images", data="digits", clients=3, model="mlp", hidden=2, partition="iid")
    problem = problem.to(torch.float64, torch.device("cpu"))
    x, h = problem.start().double() + 0.1, 1e-5
    oracle, basis = problem.at(None), torch.eye(problem.dim, dtype=torch.float64)

    def column(v):
        rows = (x + h * v).expand(3, -1), (x - h * v).expand(3, -1)
        return (oracle.grad(rows[0]) - oracle.grad(rows[1])) / (2 * h)

    with torch.no_grad():
        hessians = np.stack([column(v).numpy() for v in basis], -1)
    mean, found = hessians.mean(0), estimate(problem, [x]).constants
    largest, least = (np.linalg.eigvalsh(hessians)[:, [-1, 0]]).T
    gaps = hessians - mean
    assert_allclose(found.L, np.abs([*largest, *least]).max(), rtol=0.01)
    assert_allclose(found.mu, least.min(), atol=0.01 * found.L)
    assert_allclose(found.L_mean, np.abs(np.linalg.eigvalsh(mean)).max(), rtol=0.01)
    assert_allclose(found.delta_B, np.abs(np.linalg.eigvalsh(gaps)).max(), rtol=0.01)
    square = np.linalg.eigvalsh((gaps @ gaps).mean(0)).max()
    assert_allclose(found.delta_A, np.sqrt(square), rtol=0.01)


def test_noise_has_the_variance_that_was_asked_for():
    found = estimate(build("quadratic", noise=3.0, clients=4, dim=5), draws=400)
    assert found.noise == pytest.approx(3.0, abs=4 * found.errors["noise"])
    assert estimate(build("quadratic", clients=4, dim=5)).noise == 0
