"""The test matrix, rows 12-19: averaging and correction, between independent references."""

import numpy as np
import pytest

from . import averaging as avg
from . import correction as cor
from . import papers as pap
from .fedspeed_acg import fedacg, fedspeed
from .problem import mean, random_federation
from .trials import SEEDS, close, cohorts_for, coins_for, every, local_grads, sq, start


# --------------------------------------------------------------------------------- FedSpeed,
# FedDyn, FedPD, FedADMM
@every
@pytest.mark.parametrize("steps", [None, 1, 7])
def test_row12_fedspeed_feddyn_fedpd_fedadmm_coincide(fed, steps):
    x0, _ = start(fed)
    lam, eta_l = 1.3 / fed.smoothness, 0.2 / fed.smoothness
    points = fedspeed(fed, x0, 15, eta_l=eta_l, lam=lam, rho=0.0, steps=steps)
    close(points, cor.feddyn(fed, x0, 15, eta_l=eta_l, alpha=1 / lam, steps=steps), 1e-10)
    close(points, cor.fedpd(fed, x0, 15, eta=lam, eta1=eta_l, steps=steps, start="server"), 1e-10)
    for server in ("delta", "all", "active"):
        close(
            points,
            cor.fedadmm(fed, x0, 15, eta_l=eta_l, rho=1 / lam, steps=steps, server=server),
            1e-10,
        )
    close(
        points,
        fedspeed(fed, x0, 15, eta_l=eta_l, lam=lam, rho=0.0, steps=steps, server_dual="all"),
        1e-10,
    )
    if steps is not None:
        close(
            points,
            fedspeed(fed, x0, 15, eta_l=eta_l, lam=lam, rho=0.5, alpha=0.0, steps=steps),
            1e-10,
        )
    if steps is None:
        close(points, cor.fedpd(fed, x0, 15, eta=lam, start="own"), 1e-10)


@every
def test_row12_partial_participation(fed):
    x0, _ = start(fed)
    lam, eta_l = 1.3 / fed.smoothness, 0.2 / fed.smoothness
    kw = {
        "eta_l": eta_l,
        "steps": [2 + i for i in range(fed.N)],
        "cohorts": cohorts_for(fed, 12, max(1, fed.N - 1)),
    }
    trace = []
    dyn = cor.feddyn(fed, x0, 12, alpha=1 / lam, trace=trace, **kw)
    close(fedspeed(fed, x0, 12, lam=lam, server_dual="all", **kw), dyn, 1e-10)
    for s in trace:
        close(s["h"], s["d"].mean(axis=0), 1e-10)
    close(
        fedspeed(fed, x0, 12, lam=lam, **kw),
        cor.fedadmm(fed, x0, 12, rho=1 / lam, server="active", **kw),
        1e-10,
    )
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
    for coin, s in zip(
        coins, trace, strict=False
    ):  # lam_i = -grad f_i(x_i); a skip keeps x_i + eta lam_i
        close(s["lam"], -np.stack([fed.grad(i, s["x"][i]) for i in range(fed.N)]), 1e-10)
        own = s["x"] + eta * s["lam"]
        close(s["x0i"], np.tile(own.mean(axis=0), (fed.N, 1)) if coin else own, 1e-10)


@every
@pytest.mark.parametrize("normalise", [False, True])
def test_row13_fedspeed_identities(fed, normalise):
    x0, _ = start(fed)
    lam, eta_l, k_local = 1.1 / fed.smoothness, 0.15 / fed.smoothness, 6
    trace = []
    fedspeed(
        fed,
        x0,
        5,
        eta_l=eta_l,
        lam=lam,
        rho=0.1,
        alpha=0.7,
        steps=k_local,
        normalise=normalise,
        trace=trace,
    )
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
    close(
        fedspeed(fed, x0, 9, lam=lam, correction=False, **kw),
        avg.fedprox(fed, x0, 9, mu=1 / lam, **kw),
        1e-12,
    )
    close(
        fedspeed(fed, x0, 9, lam=np.inf, correction=False, **kw),
        avg.fedavg(fed, x0, 9, **kw),
        1e-12,
    )
    ghat = local_grads(fed, xs)
    exact = fedspeed(fed, xs, 4, eta_l=eta_l, lam=lam, rho=0.0, steps=5, ghat0=ghat)
    close(exact, np.tile(xs, (5, 1)), 1e-12)
    biased = fedspeed(
        fed, xs, 4, eta_l=eta_l, lam=lam, rho=0.1 / fed.smoothness, steps=5, ghat0=ghat
    )
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


# ------------------------------------------------------------------------------------------------
# averaging family, 15, 18
@every
def test_row15_fedacg(fed):
    x0, _ = start(fed)
    eta = 0.1 / fed.smoothness
    kw = {"steps": 4, "cohorts": cohorts_for(fed, 10, max(1, fed.N - 1))}
    trace = []
    points = fedacg(fed, x0, 10, eta=eta, lam=0.8, beta=0.3, trace=trace, **kw)
    for s, theta in zip(trace, points[1:], strict=True):
        close(theta, s["ends"].mean(axis=0), 1e-10)
    close(
        fedacg(fed, x0, 10, eta=eta, lam=0.0, **kw), avg.fedavg(fed, x0, 10, eta_l=eta, **kw), 1e-10
    )
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
    close(
        avg.fedavg(fed, x0, 10, eta_l=eta, eta_g=1.7, steps=1),
        avg.gd(fed, x0, 10, eta=1.7 * eta),
        1e-12,
    )
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
    # beta1 = 0, tau -> inf with eta_g = tau; v_0 = 0: with v_0 = tau^2 the first step is halved
    big = 1e9
    for method, extra in (
        (avg.fedadam, {"beta1": 0.0}),
        (avg.fedyogi, {"beta1": 0.0}),
        (avg.fedadagrad, {}),
    ):
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


# ------------------------------------------------------------------------------------------------
# SCAFFOLD family 16
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
        points = cor.scaffold(
            fed, np.zeros(3), rounds, eta_l=eta, steps=4, option=option, cohorts=cohorts
        )
        assert np.linalg.norm(points[-1] - fed.x_star) < 1e-9


@pytest.mark.parametrize("seed", SEEDS)
def test_feddc_code_is_fast_and_paper_is_slow(seed):
    # the literal g_i rule also ends at x* (h_i -> -grad f_i(x*)/alpha) but at a rate of about 1 -
    # alpha K eta_l
    fed = random_federation(4, 3, 0.6, 2.0, seed=seed)
    kw = {"eta_l": 0.1, "alpha": 0.1, "steps": 5}
    code = cor.feddc(fed, np.zeros(3), 150, **kw)
    literal = cor.feddc(fed, np.zeros(3), 1000, variant="paper", **kw)
    assert np.linalg.norm(code[-1] - fed.x_star) < 1e-9
    assert np.linalg.norm(literal[150] - fed.x_star) > 1e-4
    assert np.linalg.norm(literal[-1] - fed.x_star) < 1e-8


# ------------------------------------------------------------------------------------- Scaffnew,
# SVRP, CE-LGD, Mime 17
@pytest.mark.parametrize("seed", SEEDS)
def test_row17_scaffnew_lyapunov(seed):
    fed = random_federation(4, 5, 0.3, 5.0, seed=seed)
    mu, gamma, xs = fed.mu, 1 / fed.smoothness, fed.x_star
    p = np.sqrt(mu / fed.smoothness)
    target = local_grads(fed, xs)

    def psi(s):
        return sq(s["x"] - xs) + (gamma / p) ** 2 * sq(s["h"] - target)

    rng = np.random.default_rng(seed)
    for _ in range(
        25
    ):  # E[Psi+ | state] <= (1 - min(gamma mu, p^2)) Psi from arbitrary states with sum h = 0
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
    close(
        cor.scaffnew(fed, np.ones(5), [True] * 9, gamma=gamma, p=1.0),
        avg.gd(fed, np.ones(5), 9, eta=gamma),
        1e-10,
    )


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
    points_s = cor.ce_lgd(
        fed, x0, 9, eta=step, beta=1.0, steps=k_local, picks=picks, cohorts=cohorts, trace=trace
    )
    for r in range(1, 9):  # beta = 1: FedLin's local path with the cohort's gradient
        lin, g0 = [], mean([fed.grad(i, points_s[r]) for i in cohorts[r]])
        cor.fedlin(fed, points_s[r], 1, eta=step, tau=k_local, g0=g0, trace=lin)
        close(trace[r]["path"], np.stack(lin[0]["paths"][picks[r]]), 1e-9)
    # with all clients v_r = grad f(x_r) for every beta
    close(cor.ce_lgd(fed, x0, 9, eta=step, beta=0.2, steps=k_local, picks=picks), points, 1e-9)
    close(
        cor.ce_lgd(fed, x0, 9, eta=step, beta=0.4, steps=1, picks=picks),
        avg.gd(fed, x0, 9, eta=step),
        1e-10,
    )


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
    one = cor.mime(
        fed, x0, 8, eta=eta, beta=0.6, steps=1
    )  # K = 1: EMA momentum on grad f, m one round old
    x, m, ema = x0, np.zeros(fed.d), [x0]
    for _ in range(8):
        g = fed.mean_grad(x)
        m = 0.4 * g + 0.6 * m
        x = x - eta * m
        ema.append(x)
    close(one, np.stack(ema), 1e-10)
    # MimeMVR in Mime form is FedLin when m is refreshed before the local phase (or a = 1), not with
    # the stale m
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


# ------------------------------------------------------------------------------------------------
# FedLin 19
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
    uneven = cor.fedlin(
        fed, x0, 700, eta_bar=0.5 / fed.smoothness, tau=[1 + 2 * i for i in range(fed.N)]
    )
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
