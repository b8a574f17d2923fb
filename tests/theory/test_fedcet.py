import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.reference import inequalities

from undrift.theory import fedcet
from undrift.theory.steps import STRICT

KNOWN = [
    (4.0, 4.0, 2, 0.01465),
    (1.0, 10.0, 1, 4.99e-3),
    (1.0, 10.0, 2, 6.25e-4),
    (1.0, 10.0, 5, 6.77e-5),
    (1.0, 10.0, 10, 1.88e-5),
]

curvatures = st.tuples(st.floats(1e-3, 1e3), st.floats(1, 50)).map(lambda t: (t[0], t[0] * t[1]))
taus = st.integers(1, 20)


def conditions(mu, L, tau, a):
    """Algorithm 1's left sides A and C: A > 0 is rho2 < 1, C > 0 is rho1 < 1."""
    B = fedcet.growth(tau)
    A = 1 - tau * mu * a + tau * L**2 * B * a * (tau * a - 2 / mu)
    C = (1 - tau * L * a) * tau * mu * a + tau**3 * L**4 * B * a**3 * (tau * a - 2 / mu)
    return A, C


def first(mu, L, tau):
    """alpha0, where Algorithm 1 starts."""
    B = fedcet.growth(tau)
    limits = 1 / (2 * tau * L), mu**2 / (2 * tau * B * L**3), mu / (5 * tau * B * L**2)
    return STRICT * min(limits)


def grid_search(mu, L, tau, h=None):
    """Algorithm 1 as printed, from alpha0 in steps of ``h``, 0.001 alpha0 in the paper."""
    start = first(mu, L, tau)
    h = 1e-3 * start if h is None else h
    taken = 0
    while min(conditions(mu, L, tau, start + taken * h)) > 0:
        taken += 1
    return start + (taken - 1) * h


def feasible(mu, L, tau, lr):
    """(30), written out from Corollary 1 independently of Algorithm 1's arrangement."""
    a, B2 = lr, tau**2 * (1 + 2 / tau) ** (2 * tau - 2)
    excess = 2 / (tau * mu * a) - 1
    first = (
        1 - tau * mu * a > 1 - (2 - tau * a * L) * tau * mu * a + excess * tau**2 * B2 * a**4 * L**4
    )
    return first and 1 - tau * mu * a > excess * B2 * L**2 * a**2


@pytest.mark.parametrize("mu, L, tau, lr", KNOWN)
def test_known_values(mu, L, tau, lr):
    assert fedcet.search(mu, L, tau) == pytest.approx(lr, rel=2e-3)
    assert grid_search(mu, L, tau) == pytest.approx(lr, rel=2e-3)


def test_first_by_hand():
    assert first(4.0, 4.0, 2) == pytest.approx(0.999 * min(1 / 16, 1 / 64, 1 / 160))
    assert first(1.0, 10.0, 2) == pytest.approx(0.999 * min(1 / 40, 1 / 16000, 1 / 4000))
    assert first(20.0, 1.0, 3) == pytest.approx(0.999 / 6)


def test_conditions_by_hand():
    # tau = 2: B = 4; mu = 1, L = 2, alpha = 0.01: tau alpha - 2/mu = -1.98
    A, C = conditions(1.0, 2.0, 2, 0.01)
    assert pytest.approx(1 - 0.02 - 2 * 4 * 4 * 0.01 * 1.98) == A
    assert pytest.approx(0.96 * 0.02 - 8 * 16 * 4 * 1e-6 * 1.98) == C


@pytest.mark.parametrize("tau, ratio", [(2, 0.64352), (3, 0.7982), (4, 0.8582), (5, 0.8885)])
def test_step_of_the_published_curves(tau, ratio):
    """The authors' code has mu = 2, L = 1.5 on Hessians 4I: rounds contract by (1-4 alpha)^tau."""
    assert (1 - 4 * fedcet.search(2.0, 1.5, tau)) ** tau == pytest.approx(ratio, abs=6e-5)


def test_the_published_step_in_the_spec_is_one_of_the_grids():
    assert fedcet.search(2.0, 1.5, 2) == pytest.approx(0.049457, abs=1e-6)
    assert grid_search(2.0, 1.5, 2) == pytest.approx(0.04944, abs=1e-6)


@given(curvatures, taus)
def test_feasible_below_and_not_above(curvature, tau):
    mu, L = curvature
    lr = fedcet.search(mu, L, tau)
    assert all(feasible(mu, L, tau, lr * s) for s in (1e-3, 0.1, 0.5, 0.9, 1 - 1e-6))
    assert not any(feasible(mu, L, tau, lr * s) for s in (1 + 1e-6, 1.1, 1.5))
    assert lr < 2 / (tau * L) and first(mu, L, tau) < lr


@given(st.floats(0.05, 50), taus)
def test_search_is_the_first_root_for_any_ratio(kappa, tau):
    """Against NumPy's roots of A (quadratic) and C/alpha (cubic), mu > L included."""
    mu, L, B = 1.0, kappa, (1 + 2 / tau) ** (2 * tau - 2)
    A = np.roots([tau**2 * L**2 * B, -tau * mu - 2 * tau * L**2 * B / mu, 1])
    C = np.roots([tau**4 * L**4 * B, -2 * tau**3 * L**4 * B / mu, -(tau**2) * L * mu, tau * mu])
    real = [r.real for r in [*A, *C] if abs(r.imag) < 1e-9 * abs(r) and r.real > 0]
    assert fedcet.search(mu, L, tau) == pytest.approx(min(real), rel=1e-7)


@given(curvatures, taus)
def test_conditions_are_the_rates_below_one(curvature, tau):
    mu, L = curvature
    for s in (0.3, 0.999, 1.001, 1.2):
        lr = s * fedcet.search(mu, L, tau)
        A, C = conditions(mu, L, tau, lr)
        rho1, rho2 = inequalities.fedcet_rates(mu, L, tau, lr, fedcet.weight(mu, lr))
        assert (A > 0, C > 0) == (rho2 < 1, rho1 < 1)
        assert (A > 0 and C > 0) == feasible(mu, L, tau, lr)


@settings(max_examples=30, deadline=None)
@given(curvatures, taus)
def test_grid_is_within_one_step(curvature, tau):
    mu, L = curvature
    h = 0.01 * first(mu, L, tau)
    assert 0 < fedcet.search(mu, L, tau) - grid_search(mu, L, tau, h) <= h


def test_weight_and_rates_by_hand():
    assert fedcet.weight(1.0, 0.1) == pytest.approx(1 / 8.2)
    rho1, rho2 = inequalities.fedcet_rates(1.0, 1.0, 1, 0.1, 1 / 8.2)
    assert rho1 == pytest.approx((1 - 1.9 * 0.1 + 19 * 1e-4) / 0.9)
    assert rho2 == pytest.approx((8.1 + 19 * 0.01 * 0.1) / (8.1 + 0.09))
    # tau = 2, B = 4, mu = 1, L = 2, alpha = 0.01: tau alpha = 0.02, 2/(tau mu alpha) - 1 = 99
    rho1, rho2 = inequalities.fedcet_rates(1.0, 2.0, 2, 0.01, 0.1)
    assert rho1 == pytest.approx((1 - 1.96 * 0.02 + 99 * 4 * 16 * 1.6e-7) / 0.98)
    assert rho2 == pytest.approx((9.99 + 99 * 4 * 4 * 4e-4 * 0.02) / (9.99 + 0.98 * 0.02))
    assert inequalities.fedcet_rate(1.0, 2.0, 2, 0.01, 0.1) == max(rho1, rho2)
    assert inequalities.fedcet_dual_weight(1.0, 2, 0.01, 0.1) == pytest.approx(
        0.02 / 0.98 * (9.99 + 0.98 * 0.02)
    )


@pytest.mark.parametrize("tau", [1, 2, 4])
@pytest.mark.parametrize("share", [0.5, 1.0])
def test_corollary_1_on_quadratics(tau, share):
    rng = np.random.default_rng(tau)
    N, d, mu, L = 4, 3, 1.0, 1.6
    Q = np.linalg.qr(rng.normal(size=(N, d, d)))[0]
    H = Q @ (np.eye(d) * rng.uniform(mu, L, (N, 1, d))) @ Q.transpose(0, 2, 1)
    b = rng.normal(size=(N, d)) * 5
    best = np.linalg.solve(H.mean(0), b.mean(0))

    def grad(x):
        return np.einsum("nij,nj->ni", H, x) - b

    lr = share * fedcet.search(mu, L, tau)
    c = fedcet.weight(mu, lr)
    dual = inequalities.fedcet_dual_weight(mu, tau, lr, c)
    rho1, rho2 = inequalities.fedcet_rates(mu, L, tau, lr, c)
    assert max(rho1, rho2) < 1

    x, e = rng.normal(size=(N, d)), rng.normal(size=(N, d)) * 3
    e -= e.mean(0)
    x0, e0 = ((x - best) ** 2).sum(), ((e + grad(np.tile(best, (N, 1)))) ** 2).sum()
    for k in range(1, 200):
        before = ((x - best) ** 2).sum(), ((e + grad(np.tile(best, (N, 1)))) ** 2).sum()
        for j in range(tau):
            g = grad(x)
            if j == tau - 1:
                z = x - lr * (g + e)
                e = e + c * (z - z.mean(0))
            x = x - lr * (g + e)
        after = ((x - best) ** 2).sum(), ((e + grad(np.tile(best, (N, 1)))) ** 2).sum()
        assert after[0] + dual * after[1] <= rho1 * before[0] + rho2 * dual * before[1] + 1e-12
        assert after[0] <= inequalities.fedcet_distance2(mu, L, tau, lr, c, k, x0, e0)
    assert math.sqrt(x0) > math.sqrt(after[0])


def test_bound_by_hand():
    rho, dual = (
        inequalities.fedcet_rate(1.0, 2.0, 2, 0.01, 0.1),
        inequalities.fedcet_dual_weight(1.0, 2, 0.01, 0.1),
    )
    assert inequalities.fedcet_distance2(1.0, 2.0, 2, 0.01, 0.1, 3, 5.0, 7.0) == pytest.approx(
        rho**3 * (5 + dual * 7)
    )
