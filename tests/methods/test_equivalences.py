"""How methods reduce to one another; rows are those of tests/reference."""

import numpy as np
import pytest
import torch

import undrift.methods as um
from tests.methods.world import federation, points, problem_of, start
from undrift.engines import Simulate
from undrift.problems import build

SEEDS = range(3)


def world(seed):
    fed = federation(seed)
    return fed, start(fed, seed + 10), fed.smoothness


def close(a, b, tol):
    np.testing.assert_allclose(a, b, rtol=0, atol=tol)


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("tau", [1, 2, 3, 5, 10])
def test_row_2_fedrecu_is_fedlin(seed, tau):
    fed, x0, L = world(seed)
    lr = 8 / (13 * tau * L)
    close(
        points(um.FedRecu(lr=lr), fed, x0, 30, steps=tau),
        points(um.FedLin(lr=lr), fed, x0, 30, steps=tau),
        1e-12,
    )


def test_row_2_holds_with_mini_batches():
    """FedRecu reuses the mini-batch of x(k tau) in its first local step; so does our FedLin."""
    from undrift.check.federations import least_squares

    problem = least_squares()
    lr = 1 / (10 * 3 * problem.constants.L)
    a = Simulate(um.FedRecu(lr=lr), problem, steps=3, batch=2)
    b = Simulate(um.FedLin(lr=lr), problem, steps=3, batch=2)
    for _ in range(20):
        a.run_round()
        b.run_round()
    close(a.x, b.x, 1e-12)
    assert problem.metrics(a.x)["grad_norm"] > 1e-6


@pytest.mark.parametrize("seed", SEEDS)
def test_row_3_fedrecu_with_one_step_is_gd_in_one_exchange(seed):
    fed, x0, L = world(seed)
    close(
        points(um.FedRecu(lr=0.5 / L), fed, x0, 20), points(um.GD(lr=0.5 / L), fed, x0, 20), 1e-12
    )
    engine = Simulate(um.FedRecu(lr=0.5 / L), problem_of(fed), steps=1)
    engine.run_round()
    assert (engine.ledger.vectors_up, engine.ledger.vectors_down, engine.ledger.syncs) == (1, 1, 1)


@pytest.mark.parametrize("tau", [1, 2, 5])
def test_row_5_fedcet_invariants(tau):
    fed, x0, L = world(0)
    lr = 0.2 / (tau * L)
    engine = Simulate(
        um.FedCET(lr=lr, c=0.4 / (tau * lr)), problem_of(fed), steps=tau, x0=torch.as_tensor(x0)
    )
    for _ in range(40):
        engine.run_round()
        close(engine.clients.d.sum(0), 0, 1e-10)
    star = torch.as_tensor(fed.x_star)
    duals = torch.as_tensor(np.stack([-fed.grad(i, fed.x_star) for i in range(fed.N)]))
    still = Simulate(um.FedCET(lr=lr, c=0.4 / (tau * lr)), problem_of(fed), steps=tau, x0=star)
    tensors = {"server.z": star, "client.z": star.repeat(fed.N, 1), "client.d": duals}
    still.restore(tensors, still.snapshot()[1])
    still.run_round()
    close(still.x, star, 1e-12)
    close(still.clients.d, duals, 1e-12)


def test_row_5_fedcet_full_averaging_is_gd():
    fed, x0, L = world(1)
    lr = 0.5 / L
    got = points(um.FedCET(lr=lr, c=1 / lr), fed, x0, 21)
    close(got[1:], points(um.GD(lr=lr), fed, got[1], 20), 1e-10)


@pytest.mark.parametrize("tau", [1, 2, 4])
def test_row_6_fedcet_converges_with_the_searched_step(tau):
    fed = federation(2, mu=2.0, L=3.0)
    problem = problem_of(fed)
    method = um.FedCET(lr="theory", c="theory")
    from undrift.core.options import RunOptions
    from undrift.runs.api import resolve

    method = resolve(method, problem, RunOptions(steps=tau))
    engine = Simulate(method, problem, steps=tau)
    first = problem.metrics(engine.x)["distance"]
    for _ in range(3000):
        engine.run_round()
    assert problem.metrics(engine.x)["distance"] < 0.2 * first


@pytest.mark.parametrize("tau", [2, 4])
def test_row_6_fedcet_stability_limit_of_the_weight(tau):
    """In the limit of small steps it is stable iff c lr < 4 / (tau + 2)."""
    fed, _, L = world(0)
    lr, limit = 1e-4 / L, 4 / (tau + 2)
    for factor, grows in ((0.95, False), (1.05, True)):
        engine = Simulate(um.FedCET(lr=lr, c=factor * limit / lr), problem_of(fed), steps=tau)
        sizes = []
        for _ in range(600):
            engine.run_round()
            sizes.append(float((engine.clients.z - engine.x).norm()))
        assert (sizes[-1] > 100 * sizes[10]) == grows


@pytest.mark.parametrize(
    ("tau", "converges"), [(1, True), (2, True), (5, True), (8, False), (10, False)]
)
def test_row_7_extra_and_local_updates(tau, converges):
    problem = build("quadratic", clients=6, dim=5, mu=0.2, L=1.0, seed=1)
    engine = Simulate(um.EXTRA(lr=0.1), problem, steps=tau)
    first = problem.metrics(engine.x)["grad_norm"]
    for _ in range(1500):
        engine.run_round()
        last = problem.metrics(engine.x)["grad_norm"]
        if not last < 1e6 * first:
            break
    assert (last < 1e-9) if converges else (not last < 1e3 * first)


def test_row_10_fedred_limits():
    fed, x0, L = world(2)
    lam = 1.7
    exact = points(um.FedRed(eta=1e-12, lam=lam, p=1.0, solver="exact"), fed, x0, 15)
    close(exact, points(um.DANE(lam=lam), fed, x0, 15), 1e-9)
    for reset in (False, True):
        one = points(um.FedRed(eta=L, lam=lam, p=1.0, reset_local=reset), fed, x0, 15)
        close(one, points(um.GD(lr=1 / (L + lam)), fed, x0, 15), 1e-9)


@pytest.mark.parametrize("p", [0.3, 0.7])
def test_row_10_without_the_reference_prox(p):
    fed, x0, L = world(0)
    dual = points(
        um.FedRedDual(eta=L, lam=0.0, p=p, m=p * L, reset_local=True), fed, x0, 40, seed=5
    )
    close(dual, points(um.Scaffnew(lr=1 / L, p=p), fed, x0, 40, seed=5), 1e-9)
    red = Simulate(
        um.FedRed(eta=L, lam=0.0, p=p, reset_local=True),
        problem_of(fed),
        seed=5,
        x0=torch.as_tensor(x0),
    )
    x = torch.as_tensor(x0)
    for _ in range(15):  # FedLin with as many local steps as the coin gave
        before = red.ledger.iterations
        red.run_round()
        lin = Simulate(
            um.FedLin(lr=1 / L), problem_of(fed), steps=red.ledger.iterations - before, x0=x
        )
        lin.run_round()
        x = lin.x
        close(red.x, x, 1e-9)


@pytest.mark.parametrize("seed", SEEDS)
def test_row_16_scaffold(seed):
    fed, x0, L = world(seed)
    one = points(um.Scaffold(lr=0.2 / L, option="I"), fed, x0, 20, cohort=3)
    close(one, points(um.Scaffold(lr=0.2 / L, option="II"), fed, x0, 20, cohort=3), 1e-10)
    engine = Simulate(um.Scaffold(lr=0.1 / L), problem_of(fed), steps=4, x0=torch.as_tensor(x0))
    y = np.tile(x0, (fed.N, 1))
    means = np.zeros_like(y)
    for _ in range(4):
        g = np.stack([fed.grad(i, y[i]) for i in range(fed.N)])
        means, y = means + g / 4, y - 0.1 / L * g
    engine.run_round()
    close(engine.clients.c, means, 1e-10)


@pytest.mark.whole
def test_row_16_scaffold_is_exact_with_partial_participation():
    fed, _, L = world(1)
    engine = Simulate(um.Scaffold(lr=0.05 / L), problem_of(fed), steps=4, cohort=2)
    for _ in range(6000):
        engine.run_round()
    assert np.linalg.norm(engine.x.numpy() - fed.x_star) < 1e-10


@pytest.mark.parametrize("method", [um.FedAvg, um.FedProx])
def test_row_18_averaging_alone_is_biased(method):
    fed, x0, L = world(0)
    given = {"mu": 0.5} if method is um.FedProx else {}
    end = points(method(lr=0.1 / L, **given), fed, x0, 800, steps=5)[-1]
    assert np.linalg.norm(end - fed.x_star) > 1e-3


@pytest.mark.whole
def test_row_19_where_fedlin_may_compress():
    fed, x0, L = world(0)
    star = fed.x_star
    server = points(um.FedLinTopK(lr=0.05 / L, k_server=2), fed, x0, 1500, steps=4)[-1]
    assert np.linalg.norm(server - star) < 1e-9
    floors = []
    for lr in (0.05 / L, 0.005 / L):
        trail = points(um.FedLinTopK(lr=lr, k_server=None, k_client=2), fed, x0, 3000, steps=4)
        floors.append(np.linalg.norm(trail[-200:] - star, axis=1).mean())
    assert floors[0] > 1e-4
    assert floors[1] < 0.3 * floors[0]


@pytest.mark.parametrize("seed", SEEDS)
def test_fedavg_and_fedprox_reductions(seed):
    fed, x0, L = world(seed)
    close(
        points(um.FedAvg(lr=0.3 / L, server_lr=0.8), fed, x0, 20),
        points(um.GD(lr=0.24 / L), fed, x0, 20),
        1e-12,
    )
    close(
        points(um.FedProx(lr=0.1 / L, mu=0.0), fed, x0, 20, steps=4, cohort=3),
        points(um.FedAvg(lr=0.1 / L), fed, x0, 20, steps=4, cohort=3),
        1e-12,
    )
    close(
        points(um.Scaffnew(lr=0.3 / L, p=1.0), fed, x0, 20),
        points(um.GD(lr=0.3 / L), fed, x0, 20),
        1e-12,
    )


def test_dane_solves_identical_clients_in_one_round():
    fed, x0, _ = world(0)
    same = type(fed)([fed.quadratics[0]] * 3)
    close(points(um.DANE(lam=0.0), same, x0, 1)[1], same.x_star, 1e-10)


@pytest.mark.parametrize("seed", SEEDS)
def test_row_12_four_names_of_one_recursion(seed):
    fed, x0, L = world(seed)
    lr, lam = 0.1 / L, 2.5
    speed = points(um.FedSpeed(lr=lr, lam=lam, rho=0.0), fed, x0, 30, steps=5)
    close(points(um.FedSpeed(lr=lr, lam=lam, alpha=0.0), fed, x0, 30, steps=5), speed, 1e-10)
    close(points(um.FedDyn(lr=lr, alpha=1 / lam), fed, x0, 30, steps=5), speed, 1e-10)
    close(points(um.FedPD(lr=lr, eta=lam, from_server=True), fed, x0, 30, steps=5), speed, 1e-10)
    close(points(um.FedADMM(lr=lr, rho=1 / lam, rule="delta"), fed, x0, 30, steps=5), speed, 1e-10)
    close(
        points(
            um.FedSpeed(lr=lr, lam=lam, rho=0.0, server_dual="all"), fed, x0, 30, steps=5, cohort=3
        ),
        points(um.FedDyn(lr=lr, alpha=1 / lam), fed, x0, 30, steps=5, cohort=3),
        1e-10,
    )


def test_row_12_on_logistic_regression():
    problem = build(
        "logistic", data="breast-cancer", clients=6, partition="dirichlet", beta=0.3, l2=0.01
    )
    L = problem.constants.L
    lr, lam = 0.3 / L, 3.0
    methods = [
        um.FedSpeed(lr=lr, lam=lam, rho=0.0),
        um.FedDyn(lr=lr, alpha=1 / lam),
        um.FedPD(lr=lr, eta=lam, from_server=True),
        um.FedADMM(lr=lr, rho=1 / lam),
    ]
    engines = [Simulate(m, problem, steps=5) for m in methods]
    for _ in range(40):
        for engine in engines:
            engine.run_round()
        for engine in engines[1:]:
            close(engine.x, engines[0].x, 1e-10)


@pytest.mark.parametrize("seed", SEEDS)
def test_row_13_fedspeed_identities(seed):
    """One round from a random correction: the moving averages (2) and (3) along the path."""
    fed, x0, L = world(seed)
    lr, lam, K, rho, alpha = 0.1 / L, 2.5, 6, 0.05, 0.7
    dual = np.random.default_rng(seed).normal(size=(fed.N, fed.d))
    method = um.FedSpeed(lr=lr, lam=lam, rho=rho, alpha=alpha, normalise=False)
    engine = Simulate(method, problem_of(fed), steps=K, x0=torch.as_tensor(x0))
    start_state = {
        "server.x": torch.as_tensor(x0),
        "server.g": torch.zeros(fed.d, dtype=torch.float64),
    }
    engine.restore(start_state | {"client.g": torch.as_tensor(dual)}, engine.snapshot()[1])
    engine.run_round()
    weights = lr / lam * (1 - lr / lam) ** np.arange(K - 1, -1, -1)
    gamma = 1 - (1 - lr / lam) ** K
    for i in range(fed.N):
        y, total = x0, np.zeros(fed.d)
        for k in range(K):
            g1 = fed.grad(i, y)
            g = (1 - alpha) * g1 + alpha * fed.grad(i, y + rho * g1)
            total = total + weights[k] * g
            y = y - lr * (g - dual[i] + (y - x0) / lam)
        close(engine.ends[i] - torch.as_tensor(x0), -lam * total + gamma * lam * dual[i], 1e-12)
        close(engine.clients.g[i], (1 - gamma) * dual[i] + total, 1e-12)


def test_row_14_fedadmm_keeps_its_invariant():
    fed, _, L = world(0)
    rho = 0.6
    engine = Simulate(
        um.FedADMM(lr=0.1 / L, rho=rho, rule="all"), problem_of(fed), steps=4, cohort=2
    )
    for _ in range(30):
        engine.run_round()
        close(engine.x, (engine.clients.w + engine.clients.y / rho).mean(0), 1e-10)


@pytest.mark.parametrize("seed", SEEDS)
def test_row_15_momentum(seed):
    fed, x0, L = world(seed)
    lr = 0.1 / L
    partial = {"steps": 4, "cohort": 3}
    average = points(um.FedAvg(lr=lr), fed, x0, 20, **partial)
    close(points(um.FedACG(lr=lr, lam=0.0, beta=0.0), fed, x0, 20, **partial), average, 1e-10)
    close(points(um.FedAvgM(lr=lr, beta=0.0), fed, x0, 20, **partial), average, 1e-10)
    close(points(um.FedCM(lr=lr, alpha=1.0), fed, x0, 20, **partial), average, 1e-10)
    prox = points(um.FedProx(lr=lr, mu=0.4), fed, x0, 20, **partial)
    close(points(um.FedACG(lr=lr, lam=0.0, beta=0.4), fed, x0, 20, **partial), prox, 1e-10)
    theta, m, heavy, h = x0, 0 * x0, x0, 0 * x0
    nesterov, ball = [x0], [x0]
    for _ in range(20):
        m = 0.8 * m - lr * fed.mean_grad(theta + 0.8 * m)
        theta = theta + m
        h = 0.8 * h - lr * fed.mean_grad(heavy)
        heavy = heavy + h
        nesterov.append(theta)
        ball.append(heavy)
    close(points(um.FedACG(lr=lr, lam=0.8, beta=0.3), fed, x0, 20), nesterov, 1e-10)
    close(points(um.FedAvgM(lr=lr, beta=0.8), fed, x0, 20), ball, 1e-10)
    engine = Simulate(um.FedACG(lr=lr, lam=0.8), problem_of(fed), x0=torch.as_tensor(x0), **partial)
    for _ in range(10):
        engine.run_round()
        close(engine.x, engine.ends.mean(0), 1e-10)


def test_row_16_scaffold_m_without_momentum_is_scaffold():
    fed, x0, L = world(0)
    lr, K = 0.1 / L, 4
    partial = {"steps": K, "cohort": 3}
    close(
        points(um.ScaffoldM(lr=lr, gamma=K * lr, beta=1.0), fed, x0, 25, **partial),
        points(um.Scaffold(lr=lr), fed, x0, 25, **partial),
        1e-10,
    )


def test_row_17_svrp_is_daneplus_and_celgd_walks_like_fedlin():
    fed, x0, L = world(1)
    lam = 2.0
    close(
        points(um.SVRP(eta=1 / lam, p=1.0), fed, x0, 20, seed=4),
        points(um.DANEPlus(lam=lam, lr=1.0, solver="exact", average="rand"), fed, x0, 20, seed=4),
        1e-9,
    )
    walk = Simulate(um.CELGD(lr=0.2 / L), problem_of(fed), steps=5, seed=4, x0=torch.as_tensor(x0))
    from undrift.core.streams import Streams

    lin = Simulate(um.FedLin(lr=0.2 / L), problem_of(fed), steps=5, x0=torch.as_tensor(x0))
    lin.run_round()
    walk.run_round()
    close(walk.x, lin.ends[int(Streams(4).at("one", 0).integers(fed.N))], 1e-9)


def test_mimemvr_renewed_first_is_fedlin():
    fed, x0, L = world(0)
    lr = 0.1 / L
    lin = points(um.FedLin(lr=lr), fed, x0, 25, steps=4)
    close(points(um.MimeMVR(lr=lr, a=0.4, fresh=True), fed, x0, 25, steps=4), lin, 1e-9)
    close(points(um.MimeMVR(lr=lr, a=1.0), fed, x0, 25, steps=4), lin, 1e-9)


def test_fedopt_with_large_tau_is_fedavg():
    fed, x0, L = world(0)
    tau = 1e9
    adam = um.FedAdam(
        lr=0.1 / L, beta1=0.0, beta2=1.0, tau=tau, server_lr=2 * tau
    )  # v stays tau^2: half the step
    close(
        points(adam, fed, x0, 15, steps=3),
        points(um.FedAvg(lr=0.1 / L), fed, x0, 15, steps=3),
        1e-6,
    )


def test_accelerated_server_serves_any_client_rule():
    """X + ACG: the client rule of FedProx under the server of FedACG."""
    from undrift.core import Positive, registry
    from undrift.methods.fedacg import AcceleratedServer

    class ProxACG(AcceleratedServer):
        lr: Positive
        mu: Positive

        def work(self, me, got, f):
            return me, self.Up(
                dy=f.sgd(got.x, self.lr, lambda y, grad: grad(y), prox=self.mu) - got.x
            )

    registry.pop("ProxACG")
    fed, x0, L = world(0)
    close(
        points(ProxACG(lr=0.1 / L, mu=0.4, lam=0.8), fed, x0, 15, steps=4, cohort=3),
        points(um.FedACG(lr=0.1 / L, beta=0.4, lam=0.8), fed, x0, 15, steps=4, cohort=3),
        1e-12,
    )


def test_inexact_dane_keeps_its_promise():
    """|y - y*| <= gamma |x - y*| for every client, in every round."""
    fed, x0, L = world(0)
    lam, gamma = 1.5, 0.3
    method = um.InexactDANE(lam=lam, lr=1 / (L + lam), mu=fed.mu, gamma=gamma)
    engine = Simulate(method, problem_of(fed), steps=1000, x0=torch.as_tensor(x0))
    for _ in range(8):
        x = engine.x.numpy().copy()
        engine.run_round()
        g = [fed.grad(i, x) for i in range(fed.N)]
        for i in range(fed.N):
            best = fed.solve(i, g[i] - sum(g) / fed.N + lam * x, lam)
            assert (
                np.linalg.norm(engine.ends[i].numpy() - best)
                <= gamma * np.linalg.norm(x - best) + 1e-12
            )
    exact = points(um.InexactDANE(lam=lam, lr=1.0, solver="exact"), fed, x0, 10)
    close(exact, points(um.DANE(lam=lam), fed, x0, 10), 1e-12)
