"""The test matrix (rows 1-19): what must hold between methods, checked purely between the independent references."""

import itertools

import numpy as np
import pytest

from . import averaging as avg
from . import correction as cor
from . import papers as pap
from .fedspeed_acg import fedacg, fedspeed
from .problem import mean, random_federation, random_logistic

SEEDS = [0, 1, 2]
CASES = [(3, 4, 0.5, 4.0), (5, 6, 0.2, 2.0), (2, 3, 1.0, 10.0)]  # N, d, mu, L
FEDS = [random_federation(*case, seed=seed) for case, seed in zip(CASES, SEEDS, strict=True)]
FEDS.append(random_logistic(4, 3, 20, 0.3, seed=7))
IDS = ["quad3x4", "quad5x6", "quad2x3", "logistic"]
every = pytest.mark.parametrize("fed", FEDS, ids=IDS)


def start(fed, seed=11):
    rng = np.random.default_rng(seed)
    return rng.standard_normal(fed.d), rng.standard_normal((fed.N, fed.d))


def close(a, b, tol):
    assert a.shape == b.shape
    assert np.max(np.abs(a - b)) <= tol * max(1.0, np.max(np.abs(b)))


def cohorts_for(fed, rounds, size, seed=5):
    rng = np.random.default_rng(seed)
    return [sorted(rng.choice(fed.N, size, replace=False).tolist()) for _ in range(rounds)]


def coins_for(p, count, seed=3):
    return [bool(c) for c in np.random.default_rng(seed).random(count) < p]


def local_grads(fed, x):
    return np.stack([fed.grad(i, x) for i in range(fed.N)])


def sq(x):
    return float(np.sum(np.asarray(x) ** 2))


# ------------------------------------------------------------------------------------------------------- problem
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


# ----------------------------------------------------------------------------------------------------- FedRecu 1-4
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


# ------------------------------------------------------------------------------------------------------ FedCET 5-6
@every
@pytest.mark.parametrize("tau", [1, 2, 3, 5])
def test_row05_fedcet_is_its_matrix_form(fed, tau):
    x0, x_minus2 = start(fed)
    alpha = 0.3 / (tau * fed.smoothness)
    for weight in (0.05, 0.4, 1 / tau):
        t1, t2 = [], []
        kw = {"alpha": alpha, "c": weight / alpha, "tau": tau, "x_minus2": x_minus2}
        close(pap.fedcet(fed, x0, 12, trace=t1, **kw), pap.fedcet_matrix(fed, x0, 12, trace=t2, **kw), 1e-10)
        for a, b in zip(t1[1:], t2, strict=True):
            close(a["x"], b["x"], 1e-10)
            assert np.max(np.abs(b["d"].sum(axis=0))) < 1e-10


@every
def test_row05_fedcet_fixed_point_and_gd(fed):
    x0, x_minus2 = start(fed)
    alpha, xs = 0.2 / fed.smoothness, fed.x_star
    trace = []
    fixed = pap.fedcet_matrix(
        fed, x0, 6, alpha=alpha, c=0.3 / alpha, tau=3, x_minus1=xs, d_minus1=-local_grads(fed, xs), trace=trace
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
        assert pap.fedcet_learning_rate(mu, big, tau, h_fraction=1e-3) == pytest.approx(value, rel=3e-3)


@pytest.mark.parametrize("tau", [1, 2, 4])
def test_row06_fedcet_converges_with_the_searched_rate(tau):
    fed = random_federation(3, 2, 1.0, 1.3, seed=tau)
    alpha = pap.fedcet_learning_rate(fed.mu, fed.smoothness, tau)
    c = pap.fedcet_weight(fed.mu, alpha)
    x0, xs = np.ones(2), fed.x_star
    trace = []
    points = pap.fedcet(fed, x0, {1: 400, 2: 600, 4: 1200}[tau], alpha=alpha, c=c, tau=tau, trace=trace)
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
            fed, np.ones(2), 300, alpha=alpha, c=factor * limit / alpha, tau=tau, x_minus2=start(fed)[1], trace=trace
        )
        gaps = [np.linalg.norm(s["x"] - s["x"].mean(axis=0)) for s in (trace[0], trace[-1])]
        assert (gaps[1] < gaps[0]) == stable


# -------------------------------------------------------------------------------------------------------- EXTRA 7
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


# ---------------------------------------------------------------------------------------------------- DANE(+) 8-9
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
        assert left <= bound + 1e-10 and bound <= lam / (2 * (r + 1)) * sq(x0 - xs) + 1e-10  # (B.15)


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
    one = type(fed)([(fed.data if hasattr(fed, "data") else fed.quadratics)[0]] * 3, *([fed.mu] * hasattr(fed, "data")))
    close(pap.dane(one, x0, 1, lam=0.0)[1], one.x_star, 1e-10)  # f_i = f, lam = 0: one round


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("solver", ["gd", "fgd"])
def test_row09_dane_plus_meets_theorem_4(seed, solver):
    fed = random_federation(4, 5, 0.3, 5.0, seed=seed, spread=0.3)
    x0, _ = start(fed)
    mu, lam, xs, rounds = fed.mu, 2 * fed.delta_a, fed.x_star, 12
    trace = []
    points = pap.dane_plus(
        fed, x0, rounds, lam=lam, solver=solver, mu=mu, smoothness=fed.smoothness, trace=trace, max_steps=2000
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
    close(pap.dane_plus(fed, x0, 6, lam=1.0, solver="gd", smoothness=fed.smoothness, steps=3), fixed, 1e-12)


# ----------------------------------------------------------------------------------------------------- FedRed 10-11
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
    dual = pap.fedred_gd(fed, x0, coins, eta=eta, lam=0.0, control="dual", m=p * eta, reset_local=True)
    close(dual, cor.scaffnew(fed, x0, coins, gamma=1 / eta, p=p), 1e-9)


@every
def test_row10_fedpd_oracle_two_is_the_fedred_step(fed):
    x0, _ = start(fed)
    gamma, eta = 0.5 / fed.smoothness, 0.8
    trace = []
    cor.fedpd(fed, x0, 3, eta=eta, steps=1, oracle="II", gamma=gamma, trace=trace)
    s, after = trace[1], trace[2]
    for i in range(fed.N):
        bar = (s["x"][i] / gamma + s["x0i"][i] / eta - (fed.grad(i, s["x"][i]) + s["lam"][i])) / (1 / gamma + 1 / eta)
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


# --------------------------------------------------------------------------------- FedSpeed, FedDyn, FedPD, FedADMM
@every
@pytest.mark.parametrize("steps", [None, 1, 7])
def test_row12_fedspeed_feddyn_fedpd_fedadmm_coincide(fed, steps):
    x0, _ = start(fed)
    lam, eta_l = 1.3 / fed.smoothness, 0.2 / fed.smoothness
    points = fedspeed(fed, x0, 15, eta_l=eta_l, lam=lam, rho=0.0, steps=steps)
    close(points, cor.feddyn(fed, x0, 15, eta_l=eta_l, alpha=1 / lam, steps=steps), 1e-10)
    close(points, cor.fedpd(fed, x0, 15, eta=lam, eta1=eta_l, steps=steps, start="server"), 1e-10)
    for server in ("delta", "all", "active"):
        close(points, cor.fedadmm(fed, x0, 15, eta_l=eta_l, rho=1 / lam, steps=steps, server=server), 1e-10)
    close(points, fedspeed(fed, x0, 15, eta_l=eta_l, lam=lam, rho=0.0, steps=steps, server_dual="all"), 1e-10)
    if steps is not None:
        close(points, fedspeed(fed, x0, 15, eta_l=eta_l, lam=lam, rho=0.5, alpha=0.0, steps=steps), 1e-10)
    if steps is None:
        close(points, cor.fedpd(fed, x0, 15, eta=lam, start="own"), 1e-10)


@every
def test_row12_partial_participation(fed):
    x0, _ = start(fed)
    lam, eta_l = 1.3 / fed.smoothness, 0.2 / fed.smoothness
    kw = {"eta_l": eta_l, "steps": [2 + i for i in range(fed.N)], "cohorts": cohorts_for(fed, 12, max(1, fed.N - 1))}
    trace = []
    dyn = cor.feddyn(fed, x0, 12, alpha=1 / lam, trace=trace, **kw)
    close(fedspeed(fed, x0, 12, lam=lam, server_dual="all", **kw), dyn, 1e-10)
    for s in trace:
        close(s["h"], s["d"].mean(axis=0), 1e-10)
    close(fedspeed(fed, x0, 12, lam=lam, **kw), cor.fedadmm(fed, x0, 12, rho=1 / lam, server="active", **kw), 1e-10)
    # the two servers do differ once clients are missing
    assert np.max(np.abs(fedspeed(fed, x0, 12, lam=lam, **kw) - dyn)) > 1e-3


@every
def test_row12_exact_local_solves_converge(fed):
    x0, _ = start(fed)
    points = cor.feddyn(fed, x0, 400, alpha=np.sqrt(fed.mu * fed.smoothness))
    assert np.linalg.norm(points[-1] - fed.x_star) < 1e-8
    rounds = 150
    coins = [*coins_for(0.7, rounds - 1), True]
    eta = 0.2 / fed.smoothness
    skipped = cor.fedpd(fed, x0, rounds, eta=eta, eta1=0.1 / fed.smoothness, steps=5, coins=coins)
    assert len(skipped) == 1 + sum(coins)
    assert np.linalg.norm(skipped[-1] - fed.x_star) < np.linalg.norm(x0 - fed.x_star)
    trace = []
    exact = cor.fedpd(fed, x0, 12, eta=eta, coins=coins[:12], trace=trace)
    assert len(exact) == 1 + sum(coins[:12]) < 13
    for coin, s in zip(coins, trace, strict=False):  # lam_i = -grad f_i(x_i); a skip keeps x_i + eta lam_i
        close(s["lam"], -np.stack([fed.grad(i, s["x"][i]) for i in range(fed.N)]), 1e-10)
        own = s["x"] + eta * s["lam"]
        close(s["x0i"], np.tile(own.mean(axis=0), (fed.N, 1)) if coin else own, 1e-10)


@every
@pytest.mark.parametrize("normalise", [False, True])
def test_row13_fedspeed_identities(fed, normalise):
    x0, _ = start(fed)
    lam, eta_l, k_local = 1.1 / fed.smoothness, 0.15 / fed.smoothness, 6
    trace = []
    fedspeed(fed, x0, 5, eta_l=eta_l, lam=lam, rho=0.1, alpha=0.7, steps=k_local, normalise=normalise, trace=trace)
    gamma = 1 - (1 - eta_l / lam) ** k_local
    weights = [eta_l / lam * (1 - eta_l / lam) ** (k_local - 1 - k) for k in range(k_local)]
    assert sum(weights) == pytest.approx(gamma, abs=1e-14)
    for s in trace:
        for i in range(fed.N):
            ema = sum(w * g for w, g in zip(weights, s["g"][i], strict=True))
            close(s["ends"][i] - s["x"], -lam * ema + gamma * lam * s["before"][i], 1e-12)  # (2)
            close(s["after"][i], (1 - gamma) * s["before"][i] + ema, 1e-12)  # (3)


@every
def test_row13_fedspeed_ablations_and_fixed_point(fed):
    x0, _ = start(fed)
    lam, eta_l, xs = 1.1 / fed.smoothness, 0.15 / fed.smoothness, fed.x_star
    kw = {"eta_l": eta_l, "steps": 5, "cohorts": cohorts_for(fed, 9, max(1, fed.N - 1))}
    close(fedspeed(fed, x0, 9, lam=lam, correction=False, **kw), avg.fedprox(fed, x0, 9, mu=1 / lam, **kw), 1e-12)
    close(fedspeed(fed, x0, 9, lam=np.inf, correction=False, **kw), avg.fedavg(fed, x0, 9, **kw), 1e-12)
    ghat = local_grads(fed, xs)
    exact = fedspeed(fed, xs, 4, eta_l=eta_l, lam=lam, rho=0.0, steps=5, ghat0=ghat)
    close(exact, np.tile(xs, (5, 1)), 1e-12)
    biased = fedspeed(fed, xs, 4, eta_l=eta_l, lam=lam, rho=0.1 / fed.smoothness, steps=5, ghat0=ghat)
    assert np.linalg.norm(biased[-1] - xs) > 1e-5
    trace = []
    fedspeed(fed, x0, 3, lam=lam, trace=trace)  # exact local solves: ghat_i = grad f_i(x_K)
    for s in trace:
        close(s["after"], np.stack([fed.grad(i, s["ends"][i]) for i in range(fed.N)]), 1e-10)


@every
@pytest.mark.parametrize("steps", [None, 4])
def test_row14_fedadmm_invariant(fed, steps):
    x0, _ = start(fed)
    rho = 0.8 * fed.smoothness
    trace = []
    cor.fedadmm(
        fed,
        x0,
        20,
        eta_l=0.2 / fed.smoothness,
        rho=rho,
        steps=steps,
        server="all",
        cohorts=cohorts_for(fed, 20, max(1, fed.N // 2)),
        trace=trace,
    )
    for s in trace:
        close(s["theta"], (s["w"] + s["y"] / rho).mean(axis=0), 1e-10)


# ------------------------------------------------------------------------------------------- averaging family, 15, 18
@every
def test_row15_fedacg(fed):
    x0, _ = start(fed)
    eta = 0.1 / fed.smoothness
    kw = {"steps": 4, "cohorts": cohorts_for(fed, 10, max(1, fed.N - 1))}
    trace = []
    points = fedacg(fed, x0, 10, eta=eta, lam=0.8, beta=0.3, trace=trace, **kw)
    for s, theta in zip(trace, points[1:], strict=True):
        close(theta, s["ends"].mean(axis=0), 1e-10)
    close(fedacg(fed, x0, 10, eta=eta, lam=0.0, **kw), avg.fedavg(fed, x0, 10, eta_l=eta, **kw), 1e-10)
    prox = avg.fedprox(fed, x0, 10, eta_l=eta, mu=0.3, **kw)
    close(fedacg(fed, x0, 10, eta=eta, lam=0.0, beta=0.3, **kw), prox, 1e-10)
    theta, m, nesterov = x0, np.zeros(fed.d), [x0]
    for _ in range(10):
        m = 0.8 * m - eta * fed.mean_grad(theta + 0.8 * m)
        theta = theta + m
        nesterov.append(theta)
    close(fedacg(fed, x0, 10, eta=eta, lam=0.8, beta=5.0, steps=1), np.stack(nesterov), 1e-10)


@every
def test_row15_server_momentum_limits(fed):
    x0, _ = start(fed)
    eta = 0.1 / fed.smoothness
    kw = {"eta_l": eta, "steps": 4, "cohorts": cohorts_for(fed, 10, max(1, fed.N - 1))}
    plain = avg.fedavg(fed, x0, 10, **kw)
    close(avg.fedavgm(fed, x0, 10, beta=0.0, **kw), plain, 1e-10)
    close(avg.fedcm(fed, x0, 10, alpha=1.0, **kw), plain, 1e-10)
    close(avg.fedprox(fed, x0, 10, mu=0.0, **kw), plain, 1e-12)
    close(avg.fedavg(fed, x0, 10, eta_l=eta, eta_g=1.7, steps=1), avg.gd(fed, x0, 10, eta=1.7 * eta), 1e-12)
    x, x_old, ball = x0, x0, [x0]
    for _ in range(10):
        x, x_old = x - eta * fed.mean_grad(x) + 0.8 * (x - x_old), x
        ball.append(x)
    close(avg.fedavgm(fed, x0, 10, eta_l=eta, beta=0.8, steps=1), np.stack(ball), 1e-10)
    x, delta, ema = x0, np.zeros(fed.d), [x0]
    for _ in range(10):
        delta = 0.3 * fed.mean_grad(x) + 0.7 * delta
        x = x - eta * delta
        ema.append(x)
    close(avg.fedcm(fed, x0, 10, eta_l=eta, alpha=0.3, steps=1), np.stack(ema), 1e-10)
    big = 1e9  # beta1 = 0, tau -> inf with eta_g = tau; v_0 = 0, with v_0 = tau^2 the step is halved at first
    for method, extra in ((avg.fedadam, {"beta1": 0.0}), (avg.fedyogi, {"beta1": 0.0}), (avg.fedadagrad, {})):
        close(method(fed, x0, 10, eta_g=big, tau=big, v0=0.0, **extra, **kw), plain, 1e-7)


@every
def test_adaptive_servers_by_hand(fed):
    x0, _ = start(fed)
    kw = {"eta_l": 0.1 / fed.smoothness, "steps": 3}
    delta = avg.fedavg(fed, x0, 1, **kw)[1] - x0
    rules = {
        avg.fedadam: 0.99e-6 + 0.01 * delta**2,
        avg.fedyogi: 1e-6 - 0.01 * delta**2 * np.sign(1e-6 - delta**2),
        avg.fedadagrad: 1e-6 + delta**2,
    }
    for method, v in rules.items():
        expected = x0 + 0.1 * 0.1 * delta / (np.sqrt(v) + 1e-3)
        close(method(fed, x0, 1, eta_g=0.1, beta1=0.9, **kw)[1], expected, 1e-12)


@every
def test_row18_fedavg_and_fedprox_are_biased(fed):
    x0, _ = start(fed)
    eta = 0.3 / fed.smoothness
    for points in (
        avg.fedavg(fed, x0, 150, eta_l=eta, steps=8),
        avg.fedprox(fed, x0, 150, eta_l=eta, mu=0.1 * fed.smoothness, steps=8),
        avg.fedprox(fed, x0, 100, mu=0.1 * fed.smoothness),
    ):
        assert np.linalg.norm(points[-1] - points[-2]) < 1e-6  # settled
        assert np.linalg.norm(points[-1] - fed.x_star) > 1e-3
    assert np.linalg.norm(avg.fedavg(fed, x0, 1000, eta_l=eta, steps=1)[-1] - fed.x_star) < 1e-6


# ------------------------------------------------------------------------------------------------- SCAFFOLD family 16
@every
def test_row16_scaffold_options(fed):
    x0, _ = start(fed)
    eta = 0.1 / fed.smoothness
    cohorts = cohorts_for(fed, 12, max(1, fed.N - 1))
    kw = {"eta_l": eta, "cohorts": cohorts}
    close(
        cor.scaffold(fed, x0, 12, steps=1, option="I", **kw),
        cor.scaffold(fed, x0, 12, steps=1, option="II", **kw),
        1e-10,
    )
    trace = []
    two = cor.scaffold(fed, x0, 12, steps=5, trace=trace, **kw)
    for s in trace:
        close(s["ci"][s["members"].astype(int)], s["local_mean"], 1e-10)
        close(s["c"], s["ci"].mean(axis=0), 1e-10)
    close(cor.scaffold_m(fed, x0, 12, steps=5, beta=1.0, gamma=5 * eta, **kw), two, 1e-10)
    close(cor.feddc(fed, x0, 12, steps=5, alpha=0.0, drift=False, **kw), two, 1e-10)
    frozen = cor.scaffold_m(fed, x0, 12, steps=5, beta=0.3, gamma=5 * eta, freeze=True, **kw)
    close(frozen, avg.fedcm(fed, x0, 12, steps=5, alpha=0.3, **kw), 1e-10)
    uneven = cor.scaffold(fed, x0, 12, steps=[1 + i for i in range(fed.N)], eta_g=0.8, **kw)
    assert np.all(np.isfinite(uneven))


@pytest.mark.parametrize("seed", SEEDS)
def test_row16_exact_convergence_with_partial_participation(seed):
    fed = random_federation(4, 3, 0.6, 2.0, seed=seed)
    eta, rounds = 0.1 / fed.smoothness, 900
    cohorts = cohorts_for(fed, rounds, 2, seed)
    for option in ("I", "II"):
        points = cor.scaffold(fed, np.zeros(3), rounds, eta_l=eta, steps=4, option=option, cohorts=cohorts)
        assert np.linalg.norm(points[-1] - fed.x_star) < 1e-9


@pytest.mark.parametrize("seed", SEEDS)
def test_feddc_code_is_fast_and_paper_is_slow(seed):
    # the literal g_i rule also ends at x* (h_i -> -grad f_i(x*)/alpha) but at a rate of about 1 - alpha K eta_l
    fed = random_federation(4, 3, 0.6, 2.0, seed=seed)
    kw = {"eta_l": 0.1, "alpha": 0.1, "steps": 5}
    code = cor.feddc(fed, np.zeros(3), 150, **kw)
    literal = cor.feddc(fed, np.zeros(3), 1000, variant="paper", **kw)
    assert np.linalg.norm(code[-1] - fed.x_star) < 1e-9
    assert np.linalg.norm(literal[150] - fed.x_star) > 1e-4
    assert np.linalg.norm(literal[-1] - fed.x_star) < 1e-8


# ------------------------------------------------------------------------------------- Scaffnew, SVRP, CE-LGD, Mime 17
@pytest.mark.parametrize("seed", SEEDS)
def test_row17_scaffnew_lyapunov(seed):
    fed = random_federation(4, 5, 0.3, 5.0, seed=seed)
    mu, gamma, xs = fed.mu, 1 / fed.smoothness, fed.x_star
    p = np.sqrt(mu / fed.smoothness)
    target = local_grads(fed, xs)

    def psi(s):
        return sq(s["x"] - xs) + (gamma / p) ** 2 * sq(s["h"] - target)

    rng = np.random.default_rng(seed)
    for _ in range(25):  # E[Psi+ | state] <= (1 - min(gamma mu, p^2)) Psi from arbitrary states with sum h = 0
        local, h = 3 * rng.standard_normal((4, 5)), rng.standard_normal((4, 5))
        h = h - h.mean(axis=0)
        outcome = []
        for coin in (True, False):
            trace = []
            cor.scaffnew(fed, xs, [coin], gamma=gamma, p=p, x_local=local, h0=h, trace=trace)
            outcome.append(psi(trace[0]))
        bound = (1 - min(gamma * mu, p**2)) * psi({"x": local, "h": h})
        assert p * outcome[0] + (1 - p) * outcome[1] <= bound + 1e-9
    points = cor.scaffnew(fed, np.zeros(5), [*coins_for(p, 800, seed), True], gamma=gamma, p=p)
    assert np.linalg.norm(points[-1] - xs) < 1e-6
    close(cor.scaffnew(fed, np.ones(5), [True] * 9, gamma=gamma, p=1.0), avg.gd(fed, np.ones(5), 9, eta=gamma), 1e-10)


@every
def test_row17_svrp_and_ce_lgd(fed):
    x0, _ = start(fed)
    picks = np.random.default_rng(1).integers(fed.N, size=9).tolist()
    eta = 0.7
    rand = pap.dane_plus(fed, x0, 9, lam=1 / eta, solver="exact", average="rand", picks=picks)
    close(cor.svrp(fed, x0, 9, eta=eta, picks=picks, coins=[True] * 9), rand, 1e-9)
    step, k_local = 0.5 / fed.smoothness, 6
    trace = []
    points = cor.ce_lgd(fed, x0, 9, eta=step, beta=1.0, steps=k_local, picks=picks, trace=trace)
    for r in range(9):
        lin = []
        cor.fedlin(fed, points[r], 1, eta=step, tau=k_local, trace=lin)
        close(trace[r]["path"], np.stack(lin[0]["paths"][picks[r]]), 1e-9)
    cohorts = cohorts_for(fed, 9, max(1, fed.N - 1))
    trace = []
    points_s = cor.ce_lgd(fed, x0, 9, eta=step, beta=1.0, steps=k_local, picks=picks, cohorts=cohorts, trace=trace)
    for r in range(1, 9):  # beta = 1: FedLin's local path with the cohort's gradient
        lin, g0 = [], mean([fed.grad(i, points_s[r]) for i in cohorts[r]])
        cor.fedlin(fed, points_s[r], 1, eta=step, tau=k_local, g0=g0, trace=lin)
        close(trace[r]["path"], np.stack(lin[0]["paths"][picks[r]]), 1e-9)
    # with all clients v_r = grad f(x_r) for every beta
    close(cor.ce_lgd(fed, x0, 9, eta=step, beta=0.2, steps=k_local, picks=picks), points, 1e-9)
    close(cor.ce_lgd(fed, x0, 9, eta=step, beta=0.4, steps=1, picks=picks), avg.gd(fed, x0, 9, eta=step), 1e-10)


@pytest.mark.parametrize("seed", SEEDS)
def test_row17_svrp_converges(seed):
    fed = random_federation(4, 3, 1.0, 2.0, seed=seed, spread=0.5)
    rng = np.random.default_rng(seed)
    count = 1500
    points = cor.svrp(
        fed,
        np.zeros(3),
        count,
        eta=fed.mu / (2 * fed.delta_a**2),
        picks=rng.integers(4, size=count).tolist(),
        coins=coins_for(0.25, count, seed),
    )
    assert np.linalg.norm(points[-1] - fed.x_star) < 1e-9


@every
def test_mime_limits(fed):
    x0, _ = start(fed)
    eta = 0.2 / fed.smoothness
    cohorts = cohorts_for(fed, 8, max(1, fed.N - 1))
    lin = cor.fedlin(fed, x0, 8, eta=eta, tau=4)
    close(cor.mime(fed, x0, 8, eta=eta, steps=4), lin, 1e-10)
    close(
        cor.mimelite(fed, x0, 8, eta=eta, steps=4, cohorts=cohorts),
        avg.fedavg(fed, x0, 8, eta_l=eta, steps=4, cohorts=cohorts),
        1e-10,
    )
    one = cor.mime(fed, x0, 8, eta=eta, beta=0.6, steps=1)  # K = 1: EMA momentum on grad f, m one round old
    x, m, ema = x0, np.zeros(fed.d), [x0]
    for _ in range(8):
        g = fed.mean_grad(x)
        m = 0.4 * g + 0.6 * m
        x = x - eta * m
        ema.append(x)
    close(one, np.stack(ema), 1e-10)
    # MimeMVR in Mime form is FedLin when m is refreshed before the local phase (or a = 1), not with the stale m
    for a in (0.2, 1.0):
        close(cor.mimemvr(fed, x0, 8, eta=eta, a=a, steps=4, refresh="fresh"), lin, 1e-10)
    close(cor.mimemvr(fed, x0, 8, eta=eta, a=1.0, steps=4), lin, 1e-10)
    assert np.max(np.abs(cor.mimemvr(fed, x0, 8, eta=eta, a=0.2, steps=4) - lin)) > 1e-6
    lite = cor.mimemvr(fed, x0, 250, eta=eta, a=0.3, steps=4, refresh="fresh", lite=True)
    assert np.linalg.norm(lite[-1] - fed.x_star) > 1e-4
    adam = cor.mime(fed, x0, 2, eta=eta, steps=1, beta=0.5, optimizer="adam", eps=2.0)
    g0 = fed.mean_grad(x0)
    x1 = x0 - eta * 0.5 * g0 / 2.0
    x2 = x1 - eta * (0.5 * fed.mean_grad(x1) + 0.25 * g0) / (np.sqrt(0.01 * g0**2) + 2.0)
    close(adam[1:], np.stack([x1, x2]), 1e-12)


# ------------------------------------------------------------------------------------------------------- FedLin 19
@every
def test_fedlin_limits(fed):
    x0, _ = start(fed)
    eta = 0.3 / fed.smoothness
    lin = cor.fedlin(fed, x0, 8, eta=eta, tau=4)
    close(cor.fedlin(fed, x0, 8, eta_bar=4 * eta, tau=4), lin, 1e-12)
    close(cor.fedlin(fed, x0, 8, eta=eta, tau=4, k_client=fed.d, k_server=fed.d), lin, 1e-12)
    close(cor.fedlin(fed, x0, 8, eta=eta, tau=1), avg.gd(fed, x0, 8, eta=eta), 1e-12)
    close(cor.fedtrack(fed, x0, 8, eta=eta, tau=4), lin, 1e-12)
    idle = cor.fedtrack(fed, x0, 8, eta=eta, tau=4, zero_first=True)
    close(idle[1:], lin[:-1], 1e-12)  # g = 0 in the first round leaves every client at x0
    uneven = cor.fedlin(fed, x0, 700, eta_bar=0.5 / fed.smoothness, tau=[1 + 2 * i for i in range(fed.N)])
    assert np.linalg.norm(uneven[-1] - fed.x_star) < 1e-8


def test_top_k():
    assert np.array_equal(cor.top_k(np.array([1.0, -3.0, 2.0, 0.5]), 2), [0.0, -3.0, 2.0, 0.0])


@pytest.mark.parametrize("seed", SEEDS)
def test_row19_fedlin_top_k(seed):
    fed = random_federation(4, 4, 0.5, 2.0, seed=seed)
    tau, xs = 3, fed.x_star
    server = cor.fedlin(fed, np.zeros(4), 700, eta=0.1 / fed.smoothness, tau=tau, k_server=2)
    assert np.linalg.norm(server[-1] - xs) < 1e-10
    floors = []
    for scale, rounds in ((0.4, 400), (0.05, 1200)):
        eta = scale / (tau * fed.smoothness)
        points = cor.fedlin(fed, np.zeros(4), rounds, eta=eta, tau=tau, k_client=2)
        floors.append(np.mean(np.linalg.norm(points[-100:] - xs, axis=1)))
    assert floors[0] > 1e-5 and floors[1] < 0.5 * floors[0]
