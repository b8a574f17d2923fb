"""The test matrix, rows 1-11: the papers' methods, between independent references."""

import itertools

import numpy as np
import pytest

from . import averaging as avg
from . import correction as cor
from . import papers as pap
from .problem import mean, random_federation
from .trials import SEEDS, close, coins_for, every, local_grads, sq, start


# ------------------------------------------------------------------------------------------------
# problem
@every
def test_oracles_of_the_federations(fed):
    x, _ = start(fed)
    for i in range(fed.N):
        y = fed.solve(i, x, 0.7)
        assert np.linalg.norm(fed.grad(i, y) + 0.7 * y - x) < 1e-12
    assert np.linalg.norm(fed.mean_grad(fed.x_star)) < 1e-12
    step = 1e-6 * np.ones(fed.d)
    assert abs(fed.value(x + step) - fed.value(x - step) - 2 * step @ fed.mean_grad(x)) < 1e-9


def test_spectrum_and_dissimilarity():
    fed = random_federation(4, 5, 0.3, 7.0, seed=1)
    assert fed.mu == pytest.approx(0.3) and fed.smoothness == pytest.approx(7.0)
    assert fed.delta_a <= fed.delta_b <= fed.smoothness
    close_fed = random_federation(4, 5, 0.3, 7.0, seed=1, spread=0.05)
    assert close_fed.delta_b < 0.1 * fed.delta_b and close_fed.mu >= 0.3 - 1e-12


# ------------------------------------------------------------------------------------------------
# FedRecu 1-4
@every
@pytest.mark.parametrize("tau", [1, 2, 3, 5, 10])
def test_row01_fedrecu_is_its_tracked_form(fed, tau):
    x0, x_minus2 = start(fed)
    alpha = 8 / (13 * tau * fed.smoothness)
    t1, t2 = [], []
    literal = pap.fedrecu(fed, x0, 8, alpha=alpha, tau=tau, x_minus2=x_minus2, trace=t1)
    tracked = pap.fedrecu_tracked(fed, x0, 8, alpha=alpha, tau=tau, x_minus2=x_minus2, trace=t2)
    close(literal, tracked, 1e-12)
    for a, b in zip(t1[1:], t2, strict=True):  # every client at every iteration
        close(a["x"], b["x"], 1e-12)
    for s in t2:
        close(s["y"].mean(axis=0), s["g"].mean(axis=0), 1e-12)
    for s in t2[::tau]:  # y_i(k tau) = mean_j grad f_j(x(k tau))
        close(s["y"], np.tile(s["g"].mean(axis=0), (fed.N, 1)), 1e-12)


@every
@pytest.mark.parametrize("tau", [1, 2, 3, 5, 10])
def test_row02_fedrecu_is_fedlin_and_its_round_form(fed, tau):
    x0, x_minus2 = start(fed)
    alpha = 8 / (13 * tau * fed.smoothness)
    for kw in ({"x_minus2": x_minus2}, {}, {"x_minus1": x0}, {"x_minus1": x_minus2}):
        literal = pap.fedrecu(fed, x0, 8, alpha=alpha, tau=tau, **kw)
        close(literal, cor.fedlin(fed, literal[0], 8, eta=alpha, tau=tau), 1e-12)
        close(literal, pap.fedrecu_round(fed, literal[0], 8, alpha=alpha, tau=tau), 1e-12)
        close(literal, pap.fedrecu_tracked(fed, x0, 8, alpha=alpha, tau=tau, **kw), 1e-12)
    ls_code = pap.fedrecu(fed, x0, 1, alpha=alpha, tau=tau, x_minus1=x0)
    close(ls_code[0], x0 - alpha * fed.mean_grad(x0), 1e-12)


@every
def test_row03_fedrecu_tau_one_is_gd(fed):
    x0, x_minus2 = start(fed)
    alpha = 0.5 / fed.smoothness
    literal = pap.fedrecu(fed, x0, 25, alpha=alpha, tau=1, x_minus2=x_minus2)
    close(literal, avg.gd(fed, literal[0], 25, eta=alpha), 1e-12)


@every
@pytest.mark.parametrize("tau", [1, 2, 5, 10])
def test_row04_fedrecu_descends_convex(fed, tau):
    x0, x_minus2 = start(fed)
    for constant in (8 / 13, 8 / 17):
        big = fed.smoothness
        alpha = constant / (tau * big)
        points = pap.fedrecu(fed, x0, 40, alpha=alpha, tau=tau, x_minus2=x_minus2)
        f = np.array([fed.value(x) for x in points])
        gamma = alpha * tau - alpha**2 * big * ((3 * tau - 1) ** 2 / 8 + tau * (tau - 1) / 2)
        assert gamma > 0
        assert np.all(np.diff(f) <= 1e-9)
        for k in range(40):
            assert f[k + 1] <= f[k] - gamma * sq(fed.mean_grad(points[k])) + 1e-9


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("tau", [2, 5, 10])
def test_row04_fedrecu_descends_nonconvex(seed, tau):
    fed = random_federation(4, 5, -3.0, 3.0, seed=seed)
    alpha = 8 / (17 * tau * fed.smoothness)
    points = pap.fedrecu(fed, np.zeros(5), 12, alpha=alpha, tau=tau)
    gamma = 13 * alpha**2 * fed.smoothness * tau / 8
    for a, b in itertools.pairwise(points):
        assert fed.value(b) <= fed.value(a) - gamma * sq(fed.mean_grad(a)) + 1e-9


# ------------------------------------------------------------------------------------------------
# FedCET 5-6
@every
@pytest.mark.parametrize("tau", [1, 2, 3, 5])
def test_row05_fedcet_is_its_matrix_form(fed, tau):
    x0, x_minus2 = start(fed)
    alpha = 0.3 / (tau * fed.smoothness)
    for weight in (0.05, 0.4, 1 / tau):
        t1, t2 = [], []
        kw = {"alpha": alpha, "c": weight / alpha, "tau": tau, "x_minus2": x_minus2}
        close(
            pap.fedcet(fed, x0, 12, trace=t1, **kw),
            pap.fedcet_matrix(fed, x0, 12, trace=t2, **kw),
            1e-10,
        )
        for a, b in zip(t1[1:], t2, strict=True):
            close(a["x"], b["x"], 1e-10)
            assert np.max(np.abs(b["d"].sum(axis=0))) < 1e-10


@every
def test_row05_fedcet_fixed_point_and_gd(fed):
    x0, x_minus2 = start(fed)
    alpha, xs = 0.2 / fed.smoothness, fed.x_star
    trace = []
    fixed = pap.fedcet_matrix(
        fed,
        x0,
        6,
        alpha=alpha,
        c=0.3 / alpha,
        tau=3,
        x_minus1=xs,
        d_minus1=-local_grads(fed, xs),
        trace=trace,
    )
    close(fixed, np.tile(xs, (7, 1)), 1e-10)
    close(trace[-1]["d"], -local_grads(fed, xs), 1e-10)
    points = pap.fedcet(fed, x0, 20, alpha=alpha, c=1 / alpha, tau=1, x_minus2=x_minus2)
    close(points, avg.gd(fed, points[0], 20, eta=alpha), 1e-10)


def test_row06_fedcet_learning_rates_of_the_spec():
    for mu, big, tau, value in [
        (4, 4, 2, 0.01465),
        (1, 10, 1, 4.99e-3),
        (1, 10, 2, 6.25e-4),
        (1, 10, 5, 6.77e-5),
        (1, 10, 10, 1.88e-5),
    ]:
        assert pap.fedcet_learning_rate(mu, big, tau, h_fraction=1e-3) == pytest.approx(
            value, rel=3e-3
        )


@pytest.mark.parametrize("tau", [1, 2, 4])
def test_row06_fedcet_converges_with_the_searched_rate(tau):
    fed = random_federation(3, 2, 1.0, 1.3, seed=tau)
    alpha = pap.fedcet_learning_rate(fed.mu, fed.smoothness, tau)
    c = pap.fedcet_weight(fed.mu, alpha)
    x0, xs = np.ones(2), fed.x_star
    trace = []
    points = pap.fedcet(
        fed, x0, {1: 400, 2: 600, 4: 1200}[tau], alpha=alpha, c=c, tau=tau, trace=trace
    )
    assert np.linalg.norm(points[-1] - xs) < 1e-7 and np.linalg.norm(trace[-1]["x"] - xs) < 1e-6


@pytest.mark.parametrize("tau", [1, 2, 4, 8])
def test_row06_fedcet_weight_stability_limit(tau):
    fed = random_federation(3, 2, 0.5, 1.0, seed=4)
    alpha, limit = 1e-4, 4 / (tau + 2)
    for factor, stable in ((0.93, True), (1.07, False)):
        if factor * limit > 2:
            continue
        trace = []
        pap.fedcet_matrix(
            fed,
            np.ones(2),
            300,
            alpha=alpha,
            c=factor * limit / alpha,
            tau=tau,
            x_minus2=start(fed)[1],
            trace=trace,
        )
        gaps = [np.linalg.norm(s["x"] - s["x"].mean(axis=0)) for s in (trace[0], trace[-1])]
        assert (gaps[1] < gaps[0]) == stable


# ------------------------------------------------------------------------------------------------
# EXTRA 7
@every
@pytest.mark.parametrize("tau", [1, 2, 4])
def test_row07_extra_two_forms_agree(fed, tau):
    x0, _ = start(fed)
    alpha = 0.2 / fed.smoothness
    t1, t2 = [], []
    literal = cor.extra_local(fed, x0, 10, alpha=alpha, tau=tau, trace=t1)
    dual = cor.extra_dual(fed, x0, 10, alpha=alpha, tau=tau, trace=t2)
    assert literal.shape == (11, fed.d)
    close(literal, dual, 1e-10)
    close(t1[-1]["x"], t2[-1]["x"], 1e-10)
    assert all(np.max(np.abs(s["y"].sum(axis=0))) < 1e-9 for s in t2)


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("tau", [1, 2, 3, 4, 5, 6, 8, 10])
def test_row07_extra_converges_up_to_six_local_steps(tau, seed):
    fed = random_federation(4, 3, 0.2, 1.0, seed=seed)
    rounds = 1200 // tau
    trace = []
    points = cor.extra_local(fed, np.zeros(3), rounds, alpha=0.1, tau=tau, trace=trace)
    assert len(points) == rounds + 1
    error = np.linalg.norm(trace[-1]["x"] - fed.x_star)
    assert error < 1e-2 * np.linalg.norm(fed.x_star) if tau <= 6 else error > 1e3


# ------------------------------------------------------------------------------------------------
# DANE(+) 8-9
@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("spread", [0.1, 1.0])
def test_row08_dane_bounds(seed, spread):
    fed = random_federation(4, 5, 0.3, 5.0, seed=seed, spread=spread)
    x0, _ = start(fed)
    mu, lam, xs = fed.mu, fed.delta_a, fed.x_star
    points = pap.dane(fed, x0, 15, lam=lam)
    f = [fed.value(x) for x in points]
    for r in range(15):
        assert f[r + 1] - f[r] <= -(mu + lam) / 2 * sq(points[r + 1] - points[r]) + 1e-10  # (B.14)
        left = f[r + 1] - fed.value(xs) + mu / 2 * sq(points[r + 1] - xs)
        bound = mu / (2 * ((1 + mu / lam) ** (r + 1) - 1)) * sq(x0 - xs)
        assert (
            left <= bound + 1e-10 and bound <= lam / (2 * (r + 1)) * sq(x0 - xs) + 1e-10
        )  # (B.15)


@every
def test_row08_dane_coincidences(fed):
    x0, _ = start(fed)
    points = pap.dane(fed, x0, 8, lam=0.9)
    close(pap.dane_plus(fed, x0, 8, lam=0.9, solver="exact"), points, 1e-12)
    close(cor.sonata(fed, x0, 8, beta=0.9), points, 1e-12)
    close(cor.inexact_dane(fed, x0, 8, lam=0.9, gamma=0), points, 1e-12)
    tight = cor.inexact_dane(fed, x0, 8, lam=0.9, gamma=1e-10, eta=1 / (fed.smoothness + 0.9))
    close(tight, points, 1e-8)
    close(pap.dane(fed, fed.x_star, 3, lam=0.9), np.tile(fed.x_star, (4, 1)), 1e-10)
    one = type(fed)(
        [(fed.data if hasattr(fed, "data") else fed.quadratics)[0]] * 3,
        *([fed.mu] * hasattr(fed, "data")),
    )
    close(pap.dane(one, x0, 1, lam=0.0)[1], one.x_star, 1e-10)  # f_i = f, lam = 0: one round


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("solver", ["gd", "fgd"])
def test_row09_dane_plus_meets_theorem_4(seed, solver):
    fed = random_federation(4, 5, 0.3, 5.0, seed=seed, spread=0.3)
    x0, _ = start(fed)
    mu, lam, xs, rounds = fed.mu, 2 * fed.delta_a, fed.x_star, 12
    trace = []
    points = pap.dane_plus(
        fed,
        x0,
        rounds,
        lam=lam,
        solver=solver,
        mu=mu,
        smoothness=fed.smoothness,
        trace=trace,
        max_steps=2000,
    )
    best = np.inf
    for r in range(rounds):
        assert np.all(trace[r]["steps"] >= 1) and np.all(trace[r]["steps"] < 2000)
        for i in range(fed.N):  # Corollary 5
            y, h = trace[r]["x_local"][i], trace[r]["h"][i]
            gap = fed.grad(i, y) - h + lam * (y - points[r])
            assert sq(gap) <= lam * (mu + lam) / (8 * (r + 1) * (r + 2)) * sq(y - points[r])
        best = min(best, fed.value(points[r + 1]) - fed.value(xs))
        left = best + mu / 2 * mean([sq(y - xs) for y in trace[r]["x_local"]])
        assert left <= mu / ((1 + mu / lam) ** (r + 1) - 1) * sq(x0 - xs) + 1e-12


@pytest.mark.parametrize("seed", SEEDS)
def test_row09_dual_control_variate_meets_corollary_32(seed):
    fed = random_federation(4, 5, 0.3, 5.0, seed=seed)
    x0, _ = start(fed)
    mu, big, xs = fed.mu, fed.smoothness, fed.x_star
    lam = np.sqrt(mu * big)
    weight = (mu + big) / (mu * big * (mu + big) + 2 * mu * big * lam)
    rate = 1 - 2 * np.sqrt(mu) / (np.sqrt(big) + mu / np.sqrt(big) + 2 * np.sqrt(mu))
    trace = []
    points = pap.dane_plus(fed, x0, 40, lam=lam, solver="exact", control="dual", m=lam, trace=trace)
    target = local_grads(fed, xs)
    phi = [sq(points[r] - xs) + weight * sq(trace[r]["h"] - target) / fed.N for r in range(40)]
    assert all(phi[r + 1] <= rate * phi[r] * (1 + 1e-9) + 1e-14 for r in range(39))
    assert all(np.max(np.abs(s["h"].sum(axis=0))) < 1e-11 for s in trace)


@every
def test_row09_fixed_steps_and_random_averaging(fed):
    x0, _ = start(fed)
    picks = [r % fed.N for r in range(6)]
    exact = pap.dane_plus(fed, x0, 6, lam=1.0, solver="exact", average="rand", picks=picks)
    kw = {"lam": 1.0, "mu": fed.mu, "smoothness": fed.smoothness, "average": "rand", "picks": picks}
    close(pap.dane_plus(fed, x0, 6, solver="gd", steps=600, **kw), exact, 1e-9)
    close(pap.dane_plus(fed, x0, 6, solver="fgd", steps=300, **kw), exact, 1e-9)
    fixed = cor.inexact_dane(fed, x0, 6, lam=1.0, eta=1 / (fed.smoothness + 1.0), steps=3)
    close(
        pap.dane_plus(fed, x0, 6, lam=1.0, solver="gd", smoothness=fed.smoothness, steps=3),
        fixed,
        1e-12,
    )


# ------------------------------------------------------------------------------------------------
# FedRed 10-11
@every
def test_row10_fedred_limits(fed):
    x0, _ = start(fed)
    ones = [True] * 9
    close(pap.fedred(fed, x0, ones, eta=0.0, lam=0.8), pap.dane(fed, x0, 9, lam=0.8), 1e-9)
    eta, lam = 1.5 * fed.smoothness, 0.6
    gd = avg.gd(fed, x0, 9, eta=1 / (eta + lam))
    for reset in (False, True):
        close(pap.fedred_gd(fed, x0, ones, eta=eta, lam=lam, reset_local=reset), gd, 1e-9)


@every
@pytest.mark.parametrize("p", [0.2, 0.5])
def test_row10_fedred_without_reference_prox(fed, p):
    x0, _ = start(fed)
    eta = 1.2 * fed.smoothness
    coins = coins_for(p, 60)
    points = pap.fedred_gd(fed, x0, coins, eta=eta, lam=0.0, reset_local=True)
    ends = [k + 1 for k, coin in enumerate(coins) if coin]
    x, expected = x0, [x0]
    for length in np.diff([0, *ends]):  # FedLin with the geometric local steps the coins spell out
        x = cor.fedlin(fed, x, 1, eta=1 / eta, tau=int(length))[-1]
        expected.append(x)
    close(points, np.stack(expected), 1e-9)
    dual = pap.fedred_gd(
        fed, x0, coins, eta=eta, lam=0.0, control="dual", m=p * eta, reset_local=True
    )
    close(dual, cor.scaffnew(fed, x0, coins, gamma=1 / eta, p=p), 1e-9)


@every
def test_row10_fedpd_oracle_two_is_the_fedred_step(fed):
    x0, _ = start(fed)
    gamma, eta = 0.5 / fed.smoothness, 0.8
    trace = []
    cor.fedpd(fed, x0, 3, eta=eta, steps=1, oracle="II", gamma=gamma, trace=trace)
    s, after = trace[1], trace[2]
    for i in range(fed.N):
        bar = (s["x"][i] / gamma + s["x0i"][i] / eta - (fed.grad(i, s["x"][i]) + s["lam"][i])) / (
            1 / gamma + 1 / eta
        )
        close(after["x"][i], bar, 1e-12)


@pytest.mark.parametrize("seed", SEEDS)
def test_row11_fedred_gd_one_step_lyapunov(seed):
    fed = random_federation(4, 5, 0.3, 5.0, seed=seed, spread=0.4)
    mu, lam, xs = fed.mu, fed.delta_a, fed.x_star
    rng = np.random.default_rng(seed)
    for scale in (1.05, 2.0, 6.0):
        eta = scale * fed.smoothness
        p = (lam + mu / 2) / (eta - mu / 2)
        for _ in range(20):
            xt, local = rng.standard_normal(5), rng.standard_normal((4, 5)) * 3
            trace = []
            pap.fedred_gd(fed, xt, [True], eta=eta, lam=lam, x_local=local, trace=trace)
            new = trace[0]["x"]
            bar = new.mean(axis=0)
            left = (
                2 / (eta - mu / 2) * (fed.value(bar) - fed.value(xs))
                + p * sq(bar - xs)
                + (1 - p) * sq(xt - xs)
                + sq(new - xs) / 4
            )
            assert left <= (1 - mu / (2 * eta - mu)) * (sq(xt - xs) + sq(local - xs) / 4) + 1e-9


@pytest.mark.parametrize("seed", SEEDS)
def test_row11_fedred_converges(seed):
    fed = random_federation(4, 5, 0.5, 3.0, seed=seed, spread=0.4)
    eta, lam = 2 * fed.smoothness, fed.delta_a
    p = (lam + fed.mu / 2) / (eta + fed.mu / 2)
    coins = [*coins_for(p, 600, seed), True]
    for method in (pap.fedred, pap.fedred_gd):
        for reset in (False, True):
            points = method(fed, np.zeros(5), coins, eta=eta, lam=lam, reset_local=reset)
            assert len(points) == 1 + sum(coins)
            assert np.linalg.norm(points[-1] - fed.x_star) < 1e-3 * np.linalg.norm(fed.x_star)
