"""Quadratics and least squares: shapes, singular and indefinite cases, exact constants."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from undrift.problems import LeastSquares, Quadratic, build


def test_lists_arrays_and_tensors():
    A, q = [[[2.0, 0.0], [0.0, 1.0]]], [[2.0, 3.0]]
    for kind in (lambda a: a, np.array, torch.tensor, lambda a: np.array(a, dtype=np.float32)):
        assert Quadratic(kind(A), kind(q)).optimum.tolist() == [1.0, 3.0]
        assert LeastSquares(kind(A), kind(q)).optimum.tolist() == [1.0, 3.0]


@pytest.mark.parametrize("kind", [np.array, torch.tensor])
def test_data_are_copied(kind):
    A, q = kind([[2.0, 1.0]]), kind([[2.0, 3.0]])
    problem = Quadratic(A, q)
    A[:], q[:] = 0, 0
    assert problem.optimum.tolist() == [1.0, 3.0]
    assert problem.at().grad(torch.zeros(1, 2, dtype=torch.float64)).tolist() == [[-2.0, -3.0]]


@pytest.mark.parametrize(
    ("A", "q", "rest", "message"),
    [
        (np.ones((2, 3)), np.ones((2, 4)), {}, "does not go with A"),
        (np.ones((2, 3, 3)), np.ones((2, 4, 3)), {}, "does not go with A"),
        (np.ones(3), np.ones(3), {}, "does not go with A"),
        (np.ones((0, 3)), np.ones((0, 3)), {}, "does not go with A"),
        (np.array([[[1.0, 1.0], [0.0, 1.0]]]), np.ones((1, 2)), {}, "not symmetric"),
        (np.full((1, 2), np.nan), np.ones((1, 2)), {}, "A holds numbers that are not finite"),
        ([[1.0], [1.0, 2.0]], np.ones((2, 1)), {}, "A is not an array of numbers"),
        (np.ones((1, 2)), np.ones((1, 2)), {"c": np.ones(3)}, "does not go with A"),
        (np.ones((1, 2)), np.ones((1, 2)), {"beta": -1.0}, "beta"),
    ],
)
def test_wrong_shapes(A, q, rest, message):
    with pytest.raises(ValueError, match=message):
        Quadratic(A, q, **rest)


def test_wrong_shapes_of_least_squares():
    with pytest.raises(ValueError, match="does not go with b"):
        LeastSquares(np.ones((2, 3)), np.ones(2))
    with pytest.raises(ValueError, match="does not go with b"):
        LeastSquares(np.ones((2, 3, 4)), np.ones((3, 2)))


@pytest.mark.parametrize("dense", [True, False])
def test_singular_convex_problems_measure_the_distance_to_all_minimisers(dense):
    turn = np.linalg.qr(np.random.default_rng(0).standard_normal((3, 3)))[0] if dense else np.eye(3)
    H = np.array([4.0, 1.0, 0.0])
    least, null = turn @ [0.5, -2.0, 0.0], turn @ [0.0, 0.0, 1.0]
    A = (turn * H) @ turn.T if dense else H
    problem = Quadratic(A[None], (turn @ [2.0, -2.0, 0.0])[None])
    np.testing.assert_allclose(problem.optimum, least, atol=1e-14)
    at = problem.metrics(torch.as_tensor(least + 7 * null))
    assert at["distance"] == pytest.approx(0, abs=1e-13) and at["gap"] == pytest.approx(
        0, abs=1e-13
    )
    away = problem.metrics(torch.as_tensor(least + 7 * null + turn @ [3.0, 4.0, 0.0]))
    assert away["distance"] == pytest.approx(5) and away["gap"] == pytest.approx(0.5 * (4 * 9 + 16))
    assert problem.constants.mu == 0


def test_no_optimum_where_f_has_no_lower_bound():
    flat = Quadratic([[1.0, 0.0]], [[1.0, 1.0]])
    saddle = Quadratic([[1.0, -1.0]], [[0.0, 0.0]])
    for problem in (flat, saddle):
        assert problem.optimum is None
        assert problem.metrics(torch.ones(2, dtype=torch.float64)).keys() == {"loss", "grad_norm"}
    assert saddle.constants.mu == -1 and saddle.constants.L == 1


def test_indefinite_clients_of_a_convex_mean():
    problem = Quadratic([[3.0], [-1.0]], [[2.0], [0.0]])
    assert problem.optimum.tolist() == [1.0]
    v = torch.ones(2, 1, dtype=torch.float64)
    with pytest.raises(ValueError, match="raise lam"):
        problem.at().solve(v, 0.5)
    assert problem.at().solve(v, 2.0).tolist() == [[0.6], [1.0]]
    dense = Quadratic([[[3.0]], [[-1.0]]], [[2.0], [0.0]])
    with pytest.raises(ValueError, match="raise lam"):
        dense.at().solve(v, 0.5)


@pytest.mark.parametrize("dense", [True, False])
def test_nonconvex_term_has_curvature_from_minus_half_beta_to_twice_beta(dense):
    H = np.array([[2.0, 5.0], [1.0, 3.0]])
    problem = Quadratic(H[..., None] * np.eye(2) if dense else H, np.zeros((2, 2)), beta=8.0)
    grid = np.linspace(-3, 3, 601)
    points = torch.as_tensor(np.stack([grid, grid], 1))
    slopes = torch.stack([problem.at().grad(x.expand(2, -1)) for x in points]).diff(dim=0) / (
        grid[1] - grid[0]
    )
    assert problem.constants.L == 5 + 16 == pytest.approx(float(slopes.max()), rel=1e-2)
    assert problem.constants.mu == 1 - 4 == pytest.approx(float(slopes.min()), rel=1e-2)
    assert problem.constants.mu_mean == 1.5 - 4 and problem.constants.L_mean == 4 + 16
    assert problem.constants.delta_B == 1 == pytest.approx(problem.constants.delta_A)


@given(st.integers(1, 6), st.integers(1, 5), st.integers(0, 1000))
@settings(max_examples=25, deadline=None)
def test_constants_are_the_eigenvalues(clients, dim, seed):
    rng = np.random.default_rng(seed)
    A = rng.standard_normal((clients, dim, dim))
    A = A + A.swapaxes(1, 2)
    c = Quadratic(A, rng.standard_normal((clients, dim))).constants
    values = np.linalg.eigvals(A).real
    mean = np.linalg.eigvals(A.mean(0)).real
    assert (c.mu, c.L) == pytest.approx((values.min(), np.abs(values).max()), rel=1e-9, abs=1e-12)
    assert (c.mu_mean, c.L_mean) == pytest.approx(
        (mean.min(), np.abs(mean).max()), rel=1e-9, abs=1e-12
    )


def test_least_squares_constants():
    rng = np.random.default_rng(0)
    for rows, dim in ((6, 3), (3, 6)):
        A = rng.standard_normal((4, rows, dim))
        problem = LeastSquares(A, rng.standard_normal((4, rows)))
        assert pytest.approx(max(np.linalg.norm(a, 2) ** 2 for a in A)) == problem.constants.L
        assert problem.constants.mu == (
            0 if dim > rows else pytest.approx(min(np.linalg.norm(a, -2) ** 2 for a in A))
        )
        stacked = np.linalg.lstsq(A.reshape(-1, dim), problem.b.reshape(-1).numpy(), rcond=None)[0]
        np.testing.assert_allclose(problem.optimum, stacked, atol=1e-12)


def test_solve_reuses_the_factor_of_one_lam_only():
    problem = build("quadratic", clients=3, dim=4)
    f, v = problem.at(), torch.randn(3, 4, dtype=torch.float64)
    for lam in (0.5, 0.5, 3.0, 0.5):
        want = np.stack(
            [
                np.linalg.solve(problem.hessian(i) + lam * np.eye(4), problem.q[i] + v[i])
                for i in range(3)
            ]
        )
        np.testing.assert_allclose(f.solve(v, lam), want, rtol=1e-12)


def test_only_what_is_used_is_gathered():
    """Full gradients copy no samples of the cohort, and mini-batches no Hessians."""
    rng = np.random.default_rng(0)
    rows = LeastSquares(rng.random((4, 5, 3)), rng.random((4, 5)))
    parts = Quadratic(np.ones((4, 2, 3)), rng.random((4, 2, 3)))
    for problem in (rows, parts):
        y = torch.zeros(2, 3, dtype=torch.float64)
        stochastic, exact = problem.at(np.array([0, 2])), problem.at(np.array([0, 2]))
        stochastic.grad(y, torch.tensor([[0], [1]]))
        exact.grad(y)
        assert "rows" in vars(exact) and "rows" not in vars(stochastic)
