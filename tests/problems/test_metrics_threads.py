"""Metrics do not depend on the number of threads, bit for bit."""

from collections.abc import Callable

import numpy as np
import pytest
import torch

from undrift.core.problem import Problem
from undrift.problems import LeastSquares, Logistic, Quadratic, Softmax
from undrift.problems.named import build
from undrift.problems.regression import BLOCK

SAMPLES = 3 * BLOCK + 100


def samples(classes: int) -> tuple[np.ndarray, np.ndarray, list[np.ndarray]]:
    rng = np.random.default_rng(0)
    labels = rng.integers(classes, size=SAMPLES)
    features = rng.standard_normal((SAMPLES, 7)) + labels[:, None]
    return features, labels, np.array_split(rng.permutation(SAMPLES), 5)


def quadratic() -> Quadratic:
    rng = np.random.default_rng(1)
    A = rng.standard_normal((3, 120, 120))
    return Quadratic.centred(A @ A.swapaxes(1, 2), rng.standard_normal((3, 120)))


def least_squares() -> LeastSquares:
    rng = np.random.default_rng(2)
    return LeastSquares(rng.random((20, 20, 150)), rng.random((20, 20)))


def logistic() -> Logistic:
    features, labels, parts = samples(2)
    return Logistic(features, 2 * labels - 1, parts)


def softmax() -> Softmax:
    return Softmax(*samples(3))


def images() -> Problem:
    return build("images", train_metrics=True)


@pytest.mark.parametrize("make", [quadratic, least_squares, logistic, softmax, images])
def test_metrics_do_not_depend_on_the_number_of_threads(make: Callable[[], Problem]):
    before, found = torch.get_num_threads(), []
    try:
        for threads in (1, 2, 3):
            torch.set_num_threads(threads)
            problem = make()
            x = torch.linspace(-1, 1, problem.dim, dtype=torch.float64)
            found.append([problem.metrics(problem.start() + h * x) for h in (0, 0.1)])
            assert torch.get_num_threads() == threads
    finally:
        torch.set_num_threads(before)
    assert found[0] == found[1] == found[2]


@pytest.mark.parametrize("make", [logistic, softmax])
def test_many_samples_in_blocks_and_by_client(make: Callable[[], Problem]):
    """Also of one client alone, whose samples are more than a block."""
    problem = make()
    x = torch.linspace(-0.1, 0.1, problem.dim, dtype=torch.float64)
    whole = problem.metrics(x)
    pieces = torch.cat([problem.pieces(x, k, 3) for k in range(3)])
    assert len(pieces) > 1 and problem.of_pieces(pieces, x) == whole
    step = 1e-6 * torch.eye(problem.dim, dtype=torch.float64)
    slope = [
        (problem.metrics(x + row)["loss"] - problem.metrics(x - row)["loss"]) / 2e-6 for row in step
    ]
    assert whole["grad_norm"] == pytest.approx(np.linalg.norm(slope), rel=1e-6)
    assert whole["gap"] == pytest.approx(
        whole["loss"] - problem.metrics(problem.optimum)["loss"], rel=1e-9
    )
    assert problem.metrics(problem.optimum)["grad_norm"] < 1e-12
