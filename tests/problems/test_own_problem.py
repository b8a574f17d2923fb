"""The problem that docs/python.md writes, as it stands there."""

import re
from pathlib import Path

import numpy as np
import pytest
import torch

import undrift as ud

PAGE = (Path(__file__).parents[2] / "docs/python.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"^```python\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)


@pytest.fixture(scope="module")
def page():
    (code,) = (block for block in BLOCKS if "(ud.Problem)" in block)
    names = {}
    exec(compile(code, "docs/python.md", "exec"), names)
    return names


@pytest.fixture(scope="module")
def problem(page):
    return page["run"].problem


def losses(problem, x):
    """f_i at a point, written out in NumPy."""
    away = x - problem.points.numpy()
    return np.sqrt(1 + (away**2).sum(-1)).mean(1)


def test_it_reaches_the_minimum(page):
    history = page["run"].history
    assert history["grad_norm"][-1] < 1e-9 < history["grad_norm"][0]


def test_gradients_are_those_of_the_loss(problem):
    x, h = np.array([0.3, -0.2, 0.9]), 1e-6
    slopes = [(losses(problem, x + e) - losses(problem, x - e)) / (2 * h) for e in h * np.eye(3)]
    y = torch.as_tensor(x).expand(problem.clients, -1)
    want = torch.as_tensor(np.array(slopes).T)
    torch.testing.assert_close(problem.at().grad(y), want, rtol=1e-7, atol=1e-9)
    batch = torch.arange(problem.samples[0]).expand(problem.clients, -1)
    torch.testing.assert_close(problem.at().grad(y, batch), want, rtol=1e-7, atol=1e-9)
    one = problem.at().grad(y, torch.tensor([[-1, 4]] * problem.clients))
    torch.testing.assert_close(one, problem.at().grad(y, torch.tensor([[4]] * problem.clients)))


def test_the_loss_is_the_mean_over_clients(problem):
    x = torch.tensor([0.3, -0.2, 0.9], dtype=torch.float64)
    assert problem.metrics(x)["loss"] == pytest.approx(losses(problem, x.numpy()).mean(), rel=1e-13)


def test_every_engine_runs_it_in_mini_batches(problem):
    engines = [
        kind(ud.Scaffold(lr=0.1), problem, steps=3, batch=4, cohort=3)
        for kind in (ud.Simulate, ud.Wire)
    ]
    for engine in engines:
        engine.run_round()
    torch.testing.assert_close(engines[0].x, engines[1].x, rtol=1e-12, atol=1e-12)
