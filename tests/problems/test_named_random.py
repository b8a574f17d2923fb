"""Named random problems have the properties their papers state."""

from functools import partial

import numpy as np
import pytest
import torch

from undrift.core.params import BadParameters
from undrift.problems import build

random_quadratic = partial(build, "quadratic")
fedred_quadratic = partial(build, "fedred")
fedcet_quadratic = partial(build, "fedcet")
random_least_squares = partial(build, "least-squares")
fedprox_softmax = partial(build, "softmax-synthetic")


@pytest.mark.parametrize("heterogeneity", [0.0, 1.0])
def test_random_quadratic_spans_its_interval(heterogeneity):
    c = random_quadratic(clients=6, dim=5, mu=0.5, L=8.0, heterogeneity=heterogeneity).constants
    assert (c.mu, c.L) == pytest.approx((0.5, 8.0))
    assert (c.delta_B > 1) == bool(heterogeneity) == (c.delta_B > 1e-12)


def test_spread_moves_the_local_minimisers():
    def centres(spread):
        problem = random_quadratic(clients=200, dim=3, spread=spread)
        return problem.at().solve(torch.zeros(200, 3, dtype=torch.float64), 0.0)

    assert centres(0.0).std(0).max() < 1e-12
    np.testing.assert_allclose(centres(2.0).std(0), 2.0, rtol=0.2)


KINDS = ("strong", "convex", "nonconvex")


@pytest.mark.parametrize("seed", [0, 1])
@pytest.mark.parametrize("kind", KINDS)
def test_fedred(kind, seed):
    problem = fedred_quadratic(kind=kind, seed=seed)
    c, A, H = problem.constants, problem.components[0], problem.H.numpy()
    assert (problem.clients, problem.samples, problem.dim) == (5, [10] * 5, 1000)
    assert (A.abs().amax(-1) == 100).all()
    gaps = np.abs(H - H.mean(0)).max(1)
    paper_delta_A = np.sqrt((gaps**2).mean())
    assert 4.5 < paper_delta_A < 5.5 and 4.5 < c.delta_B < 6.5
    assert c.delta_B == pytest.approx(gaps.max()) and 2.8 < c.delta_A < 3.8
    assert c.L / paper_delta_A > 18 and c.L / c.delta_B > 15
    if kind == "strong":
        assert (A.amin(-1) == 1).all() and c.mu == c.mu_mean == 1 and c.L == 100
    if kind == "convex":
        assert (A >= 0).all() and 0 <= c.mu < 1e-6 and 0 < c.mu_mean < 1e-6
        np.testing.assert_allclose(H.mean(0)[:20] / 2.0 ** np.arange(-21, -1), 1, atol=0.5)
    if kind == "nonconvex":
        assert problem.beta == 400 and c.mu < -190 and c.L == 900
        assert (A.amin(-1) < 0).all() and (H.mean(0) > 0).all()
    assert (problem.optimum is None) == (kind == "nonconvex")


def test_fedred_has_the_half_and_the_centres_of_the_paper():
    problem = fedred_quadratic(kind="nonconvex", clients=2, components=3, dim=4)
    A, q = (part.numpy() for part in problem.components)
    b, x = q / A, np.array([0.5, -1.0, 2.0, 3.0])
    assert (b >= 0).all() and (b <= 10).all()
    want = (0.5 * A * (x - b) ** 2).sum(-1).mean() + 400 * (x**2 / (1 + x**2)).sum()
    assert problem.metrics(torch.as_tensor(x))["loss"] == pytest.approx(want)


def test_fedcet_with_equal_hessians():
    problem = fedcet_quadratic()
    b = problem.components[1].numpy() / 2
    assert problem.clients == 10 and problem.samples == [10] * 10 and problem.dim == 60
    assert np.abs(b).max() <= 10 and np.abs(b).max() > 9.9
    c = problem.constants
    assert c.L == c.mu == 4 and c.delta_B == 0
    np.testing.assert_allclose(problem.optimum, b.mean((0, 1)) / 2, rtol=1e-12)
    x = np.full(60, 0.3)
    want = ((x - b) ** 2).sum(-1).mean() + (x**2).sum()
    assert problem.metrics(torch.as_tensor(x))["loss"] == pytest.approx(want)


def test_fedcet_with_different_hessians_has_drift():
    problem = fedcet_quadratic(hessians="different")
    c = problem.constants
    assert 2 <= c.mu < 2.1 and 8 < c.L < 12 and c.delta_B > 3
    grads = problem.at().grad(problem.optimum.expand(10, -1))
    assert grads.norm(dim=1).min() > 1 and grads.mean(0).norm() < 1e-12
    # Ten gradient steps of every client from x* move their mean away from it.
    y = problem.optimum.expand(10, -1)
    for _ in range(10):
        y = y - 0.05 * problem.at().grad(y)
    assert (y.mean(0) - problem.optimum).norm() > 0.1


def test_least_squares_constants_near_the_printed_ones():
    """About 146.7 in the Frobenius norm and 146.1 in the spectral one."""
    problem = random_least_squares()
    assert (problem.clients, problem.samples[0], problem.dim) == (20, 50, 10)
    assert 0 <= problem.A.min() < 0.01 and 0.99 < problem.A.max() <= 1
    frobenius = max(np.linalg.norm(problem.hessian(i)) for i in range(problem.clients))
    assert frobenius == pytest.approx(146.7, rel=0.03)
    assert frobenius - problem.constants.L == pytest.approx(0.6, abs=0.2)


@pytest.mark.parametrize(
    "make", [random_quadratic, fedred_quadratic, fedcet_quadratic, random_least_squares]
)
def test_seeds(make):
    x = make().start() + 1
    assert make(seed=3).metrics(x) == make(seed=3).metrics(x) != make(seed=4).metrics(x)


@pytest.mark.parametrize(
    ("make", "parameters", "field"),
    [
        (random_quadratic, {"mu": 2.0, "L": 1.0}, "mu"),
        (random_quadratic, {"heterogeneity": 1.5}, "heterogeneity"),
        (fedred_quadratic, {"kind": "weak"}, "kind"),
        (fedred_quadratic, {"dim": 1}, "dim"),
        (fedcet_quadratic, {"hessians": "some"}, "hessians"),
        (fedprox_softmax, {"sizes": "power"}, "sizes"),
    ],
)
def test_refusals_name_the_parameter(make, parameters, field):
    with pytest.raises(BadParameters) as caught:
        make(**parameters)
    assert set(caught.value.problems) == {field}


def _clients(problem):
    """Features and labels of each client."""
    ends = np.cumsum(problem.samples)[:-1]
    return np.split(problem.table.rows[:-1, :-1].numpy(), ends), np.split(
        problem.table.labels[:-1].numpy(), ends
    )


def test_fedprox_features_have_the_stated_moments():
    problem = fedprox_softmax(clients=600, samples=40, features=8, beta=3.0)
    features, labels = _clients(problem)
    centres = np.stack([x.mean(0) for x in features])
    np.testing.assert_allclose(centres.mean(1).std(), np.sqrt(9 + 1 / 8), rtol=0.1)
    np.testing.assert_allclose(
        (centres - centres.mean(1, keepdims=True)).std(), np.sqrt(7 / 8), rtol=0.1
    )
    spread = np.mean([x.var(0, ddof=1) for x in features], axis=0)
    np.testing.assert_allclose(spread, np.arange(1, 9) ** -1.2, rtol=0.05)
    assert set(np.concatenate(labels)) == set(range(10)) and problem.dim == 90


def test_fedprox_labels_come_from_a_linear_model_of_each_client():
    """Two classes: a client's samples can be separated, all of them together cannot."""
    problem = fedprox_softmax(clients=40, samples=6, features=8, classes=2)
    for x, y in zip(*_clients(problem), strict=True):
        side = np.where(y == 1, 1.0, -1.0)
        weights = np.linalg.pinv(np.hstack([x, np.ones((6, 1))])) @ side
        assert ((np.hstack([x, np.ones((6, 1))]) @ weights) * side > 0).all()
    assert problem.metrics(problem.optimum)["accuracy"] < 0.95


def test_fedprox_sizes():
    sizes = (
        np.array(fedprox_softmax(clients=300, samples=5, features=2, sizes="lognormal").samples) - 5
    )
    assert (
        sizes.min() >= 0
        and abs(np.log(sizes[sizes > 0]).mean() - 4) < 0.5
        and np.log(sizes[sizes > 0]).std() > 1
    )


def test_fedprox_is_a_pure_function_also_beyond_what_is_drawn_at_once():
    first, again, other = (
        fedprox_softmax(clients=1100, samples=2, features=3, seed=s).table for s in (0, 0, 1)
    )
    assert torch.equal(first.rows, again.rows) and torch.equal(first.labels, again.labels)
    assert not torch.equal(first.rows, other.rows)
    rows = first.rows[:-1]
    assert len(rows.unique(dim=0)) == len(rows) == 2200
