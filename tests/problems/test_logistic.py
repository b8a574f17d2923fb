"""Logistic regression: the pooled loss, extreme scores, its optimum, and refusals."""

import math
from decimal import Decimal, localcontext

import numpy as np
import pytest
import torch
from scipy import sparse
from scipy.optimize import minimize

from tests.problems.cases import logistic
from undrift.problems import LeastSquares, Logistic, Softmax
from undrift.problems.logistic import divergence
from undrift.problems.regression import NotConverged


def data(total=40, dim=3, seed=0):
    rng = np.random.default_rng(seed)
    a = rng.standard_normal((total, dim))
    y = np.where(a @ np.ones(dim) + rng.standard_normal(total) > 0, 1.0, -1.0)
    return a, y, np.split(rng.permutation(total), [5, 20])


def test_f_is_the_pooled_loss_however_it_is_split():
    a, y, parts = data()
    x = np.array([0.3, -1.0, 2.0])
    pooled = np.logaddexp(0, -y * (a @ x)).mean() + x @ x / 80
    for split in (parts, [np.arange(40)], np.array_split(np.arange(40), 7)):
        assert Logistic(a, y, split).metrics(torch.as_tensor(x))["loss"] == pytest.approx(
            pooled, rel=1e-14
        )


def test_optimum_against_scipy():
    a, y, parts = data()
    problem = Logistic(a, y, parts, l2=0.01)

    def loss(x):
        return np.logaddexp(0, -y * (a @ x)).mean() + 0.005 * x @ x

    want = minimize(loss, np.zeros(3), tol=1e-12)
    np.testing.assert_allclose(problem.optimum, want.x, atol=1e-5)
    x = problem.optimum.numpy()
    assert np.linalg.norm(-(y / (1 + np.exp(y * (a @ x)))) @ a / 40 + 0.01 * x) < 1e-14
    assert loss(x) <= want.fun + 1e-15


@pytest.mark.parametrize("score", [25.0, 800.0])
def test_extreme_scores_neither_overflow_nor_round(score):
    """torch's softplus is linear beyond 20, which would lose exp(-25)."""
    problem = Logistic([[1.0]], [1.0], [[0]], l2=0.0)
    for x in (score, -score):
        at = problem.metrics(torch.tensor([x], dtype=torch.float64))
        assert at["loss"] == pytest.approx(
            max(-x, 0) + math.log1p(math.exp(-score)), rel=1e-15, abs=0
        )
        assert at["grad_norm"] == pytest.approx(
            math.exp(-max(x, 0)) / (1 + math.exp(-score)), rel=1e-14, abs=1e-300
        )


def bregman(t, s):
    """softplus(t) - softplus(s) - softplus'(s) (t - s) of two floats, in 60 digits."""
    with localcontext(prec=60):
        t, s = Decimal(t), Decimal(s)
        return (1 + t.exp()).ln() - (1 + s.exp()).ln() - (t - s) / (1 + (-s).exp())


def test_divergence_against_sixty_digits():
    s = np.array([-30.0, -3.0, 0.0, 2.0, 15.0, 30.0, 1.0, -2.0])
    for step in (1e-9, -1e-3, 0.5, -0.999, 1.001, -4.0, 40.0):
        t = s + step
        want = np.array(
            [float(bregman(*pair)) for pair in zip(t.tolist(), s.tolist(), strict=True)]
        )
        trust = 4e-16 * (1 + np.abs(s) + np.abs(t)) if abs(step) > 1 else 0.0
        got = divergence(torch.as_tensor(t), torch.as_tensor(s)).numpy()
        np.testing.assert_array_less(np.abs(got - want), 1e-11 * want + trust)


def test_accuracy():
    problem = Logistic([[1.0], [2.0], [-1.0], [0.0]], [1, 1, 1, -1], [[0, 1, 2, 3]])
    assert problem.metrics(torch.tensor([1.0]))["accuracy"] == (2 + 0.5) / 4
    assert problem.metrics(torch.tensor([-1.0]))["accuracy"] == (1 + 0.5) / 4
    assert problem.metrics(torch.tensor([0.0]))["accuracy"] == 0.5


def test_unequal_clients_are_padded_only_while_it_is_cheap():
    padded, apart = logistic((3, 8, 5)).problem.at(), logistic((1, 1, 40, 1, 1, 2)).problem.at()
    assert padded.stack.shape == (3, 8, 4) and not padded.held.wasteful
    assert apart.held.wasteful
    apart.grad(torch.zeros(6, 4, dtype=torch.float64))
    apart.solve(torch.zeros(6, 4, dtype=torch.float64), 1.0)
    assert "stack" not in vars(apart)


def test_equal_clients_are_a_view():
    f = logistic((5, 5, 5, 5)).problem.at()
    assert f.stack.data_ptr() == f.rows.data_ptr()


def test_solve_does_not_depend_on_the_neighbours():
    problem = logistic((30, 8, 5)).problem
    v = torch.randn(3, 4, dtype=torch.float64)
    together = problem.at().solve(v, 0.01)
    alone = torch.cat([problem.at(np.array([i])).solve(v[i : i + 1], 0.01) for i in range(3)])
    torch.testing.assert_close(together, alone, rtol=1e-13, atol=1e-13)


def test_large_clients_are_solved_one_by_one():
    a, y, _ = data(6000, 40)
    problem = Logistic(a, y, [np.arange(3000), np.arange(3000, 6000)])
    f, v = problem.at(), torch.randn(2, 40, dtype=torch.float64)
    assert f._large
    z = f.solve(v, 1.0)
    torch.testing.assert_close(f.grad(z) + z, v, rtol=1e-12, atol=1e-12)
    assert "stack" in vars(f.apart[0])


def test_badly_scaled_data_still_converge():
    a, y, parts = data()
    a = a * [1e4, 1.0, 1e-3]
    problem = Logistic(a, y, parts)
    assert problem.metrics(problem.optimum)["grad_norm"] < 1e-10
    v = torch.randn(3, 3, dtype=torch.float64)
    z = problem.at().solve(v, 1e-4)
    assert (problem.at().grad(z) + 1e-4 * z - v).norm(dim=1).max() < 1e-8


def test_separable_data_without_regularisation_have_no_optimum():
    problem = Logistic([[1.0], [-1.0]], [1, -1], [[0], [1]], l2=0.0)
    assert problem.optimum is None
    assert problem.constants.delta_A is None and pytest.approx(0.25) == problem.constants.L
    assert problem.metrics(torch.zeros(1)).keys() == {"loss", "grad_norm", "accuracy"}
    with pytest.raises(NotConverged, match="raise l2 or lam"):
        problem.at().solve(torch.zeros(2, 1, dtype=torch.float64), 0.0)


def test_smoothness_is_attained_where_scores_vanish():
    """At x = 0 every weight of a Hessian is 1/4."""
    case = logistic()
    eigenvalues = [
        np.linalg.eigvalsh(
            torch.func.hessian(lambda z, i=i: case.value(i, z))(torch.zeros(4, dtype=torch.float64))
        )
        for i in range(3)
    ]
    assert pytest.approx(np.max(eigenvalues)) == case.problem.constants.L
    assert case.problem.constants.mu == case.problem.constants.mu_mean == 1 / 16


@pytest.mark.parametrize(
    ("features", "labels", "parts", "l2", "message"),
    [
        ([[1.0], [2.0]], [1, 2], [[0, 1]], None, "-1 or"),
        ([[1.0], [2.0], [3.0]], [1, 0, -1], [[0, 1, 2]], None, "-1 or"),
        ([[1.0], [2.0]], [1, -1, 1], [[0, 1]], None, "do not go with labels"),
        ([[1.0], [2.0]], [1, -1], [[0, 1], []], None, "at least one sample"),
        ([[1.0], [2.0]], [1, -1], [], None, "at least one client"),
        ([[1.0], [2.0]], [1, -1], [[0, 2]], None, "whole numbers from 0 to 1"),
        ([[1.0], [2.0]], [1, -1], [[0, -1]], None, "whole numbers from 0 to 1"),
        ([[1.0], [2.0]], [1, -1], [[0], [0, 1]], None, "at most once"),
        ([[1.0], [2.0]], [1, -1], [[0, 1]], -1.0, "l2"),
        ([[1.0], [np.inf]], [1, -1], [[0, 1]], None, "finite"),
    ],
)
def test_refusals(features, labels, parts, l2, message):
    with pytest.raises(ValueError, match=message):
        Logistic(features, labels, parts, l2)


def test_a_mini_batch_without_samples_leaves_the_regularisation():
    """Beside a client that has some, whose gradient is that of the formula."""
    a, y, parts = data()
    problem, points = Logistic(a, y, parts, l2=0.1), torch.ones(3, 3, dtype=torch.float64)
    drawn = torch.tensor([[0, 2], [-1, -1], [1, -1]])
    found = problem.at().grad(points, drawn).numpy()
    for own, part, taken in zip(found, parts, ([0, 2], [], [1]), strict=True):
        rows = part[taken]
        slopes = -y[rows] / (1 + np.exp(y[rows] * a[rows].sum(1))) @ a[rows]
        share = 3 * len(part) / 40  # f is the pooled loss: clients weigh what they hold
        np.testing.assert_allclose(own, share * slopes / max(len(rows), 1) + 0.1, rtol=1e-13)


@pytest.mark.parametrize("labels", [[0, 1, 1, 0], [False, True, True, False], [-1, 1, 1, -1]])
def test_classes_may_be_numbered_from_zero(labels):
    rows = np.arange(8.0).reshape(4, 2)
    problem = Logistic(rows, labels, [[0, 1], [2, 3]])
    assert problem.digest() == Logistic(rows, [-1.0, 1, 1, -1], [[0, 1], [2, 3]]).digest()


@pytest.mark.parametrize("kind", [sparse.csr_matrix, sparse.coo_array])
def test_sparse_matrices_are_the_same_as_dense_ones(kind, monkeypatch):
    rows, parts = np.array([[0.0, 2.0], [1.0, 0.0], [0.0, 0.0]]), [[0], [1, 2]]
    pairs = [
        (Logistic(kind(rows), [1, 0, 1], parts), Logistic(rows, [1, 0, 1], parts)),
        (Softmax(kind(rows), [2, 0, 1], parts), Softmax(rows, [2, 0, 1], parts)),
        (
            LeastSquares([kind(rows), kind(rows + 1)], np.ones((2, 3))),
            LeastSquares([rows, rows + 1], np.ones((2, 3))),
        ),
    ]
    for thin, full in pairs:
        assert thin.digest() == full.digest()
    monkeypatch.setattr("undrift.data.files.LARGEST", 40)
    with pytest.raises(ValueError, match="features has 3 rows of 2 columns, more than"):
        Logistic(kind(rows), [1, 0, 1], parts)
