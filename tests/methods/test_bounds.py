"""The papers' inequalities on the library's runs: rows 4, 8, 9, 11, 17, and FedCET's rate."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import undrift.methods as um
from tests.methods.world import federation, gap, points, problem_of, start
from tests.reference import inequalities
from undrift.engines import Simulate
from undrift.problems.quadratic import Quadratic
from undrift.theory import bounds, fedcet, steps

feds = st.builds(
    federation,
    seed=st.integers(0, 10_000),
    N=st.integers(2, 6),
    d=st.integers(1, 5),
    mu=st.floats(0.1, 1.0),
    L=st.floats(1.5, 20.0),
)
few = settings(max_examples=25, deadline=None)


@few
@given(fed=feds, tau=st.integers(1, 8))
def test_fedrecu_descends(fed, tau):
    L = fed.smoothness
    lr = steps.fedrecu_convex(L, tau)
    gamma = bounds.fedrecu_descent_convex(L, tau, lr)
    trail = points(um.FedRecu(lr=lr), fed, start(fed), 15, steps=tau)
    gaps = np.array([gap(fed, x) for x in trail])
    squares = np.array([np.sum(fed.mean_grad(x) ** 2) for x in trail])
    assert gamma > 0
    assert (gaps[1:] <= gaps[:-1] - gamma * squares[:-1] + 1e-9 * gaps[0]).all()


@few
@given(seed=st.integers(0, 10_000), tau=st.integers(1, 8))
def test_fedrecu_descends_on_nonconvex_clients(seed, tau):
    """Indefinite Hessians: Theorem 2's step, descent, and bound on the mean squared gradient."""
    rng = np.random.default_rng(seed)
    a = rng.normal(size=(4, 3, 3))
    problem = Quadratic((a + a.transpose(0, 2, 1)) / 2, rng.normal(size=(4, 3)))
    L = problem.constants.L
    lr = steps.fedrecu_nonconvex(L, tau)
    gamma = inequalities.fedrecu_descent_nonconvex(L, tau, lr)
    assert gamma >= 13 * lr**2 * L * tau / 8 * (1 - 1e-12)
    engine = Simulate(um.FedRecu(lr=lr), problem, steps=tau, x0=torch.as_tensor(rng.normal(size=3)))
    rows = [problem.metrics(engine.x)]
    for _ in range(12):
        engine.run_round()
        rows.append(problem.metrics(engine.x))
        descent = rows[-2]["loss"] - rows[-1]["loss"]
        assert descent >= gamma * rows[-2]["grad_norm"] ** 2 - 1e-9 * (1 + abs(rows[-2]["loss"]))


@few
@given(fed=feds)
def test_dane_decrease_and_bound(fed):
    lam, mu, x0, rounds = max(fed.delta_a, 1e-6), fed.mu, start(fed), 12
    trail = points(um.DANE(lam=lam), fed, x0, rounds)
    gaps = np.array([gap(fed, x) for x in trail])
    moves = np.sum(np.diff(trail, axis=0) ** 2, axis=1)
    slack = 1e-10 * (1 + gaps[0])
    assert (gaps[1:] <= gaps[:-1] - inequalities.dane_decrease(mu, lam) * moves + slack).all()
    far = np.sum((x0 - fed.x_star) ** 2)
    for r in range(1, rounds + 1):
        left = gaps[r] + mu / 2 * np.sum((trail[r] - fed.x_star) ** 2)
        assert left <= bounds.dane(mu, lam, r, far) + slack


@few
@given(fed=feds, solver=st.sampled_from(["gd", "fgd"]))
def test_daneplus_theorem_4(fed, solver):
    L, mu, x0, rounds = fed.smoothness, fed.mu, start(fed), 8
    lam = max(2 * fed.delta_a, 1e-3 * L)
    method = um.DANEPlus(lam=lam, lr=1 / (L + lam), mu=mu, solver=solver)
    engine = Simulate(method, problem_of(fed), steps=5000, x0=torch.as_tensor(x0))
    far, best = np.sum((x0 - fed.x_star) ** 2), np.inf
    for r in range(1, rounds + 1):
        engine.run_round()
        best = min(best, gap(fed, engine.x.numpy()))
        spread = mu / 2 * float((engine.ends - torch.as_tensor(fed.x_star)).square().sum(1).mean())
        assert best + spread <= bounds.daneplus(mu, lam, r, far) + 1e-10 * (1 + far)


@few
@given(fed=feds)
def test_daneplus_dual_corollary_32(fed):
    L, mu, x0 = fed.smoothness, fed.mu, start(fed)
    lam = steps.daneplus_dual_lam(mu, L)
    rate, weight = (
        inequalities.daneplus_dual_rate(mu, L, lam),
        inequalities.daneplus_dual_weight(mu, L, lam),
    )
    engine = Simulate(
        um.DANEPlusDual(lam=lam, m=lam, lr=1.0, solver="exact"),
        problem_of(fed),
        x0=torch.as_tensor(x0),
    )
    stars = np.stack([fed.grad(i, fed.x_star) for i in range(fed.N)])

    def potential():
        h = (engine.clients.h_my + lam * engine.x).numpy()
        return np.sum((engine.x.numpy() - fed.x_star) ** 2) + weight * np.mean(
            np.sum((h - stars) ** 2, axis=1)
        )

    values = [potential()]
    for _ in range(12):
        engine.run_round()
        values.append(potential())
        assert values[-1] <= rate * values[-2] + 1e-10 * values[0]


@few
@given(fed=feds, seed=st.integers(0, 1000))
def test_fedred_gd_one_step_lyapunov_from_any_state(fed, seed):
    """Row 11: one local step, as p = 1 forces it; the inequality has the coin's expectation."""
    rng = np.random.default_rng(seed)
    mu, L, lam = fed.mu, fed.smoothness, fed.delta_a
    if lam + mu > L:
        return
    eta = 1.01 * L
    p = (lam + mu / 2) / (eta - mu / 2)
    x, y = rng.normal(size=fed.d), rng.normal(size=(fed.N, fed.d))
    engine = Simulate(um.FedRed(eta=eta, lam=lam, p=1.0), problem_of(fed), x0=torch.as_tensor(x))
    engine.restore(
        {"server.x": torch.as_tensor(x), "client.y": torch.as_tensor(y)}, engine.snapshot()[1]
    )
    engine.run_round()
    new = engine.clients.y.numpy()
    mean, star = new.mean(0), fed.x_star
    step = inequalities.fedred_gd_step(mu, eta)

    def far(a):
        return np.sum((a - star) ** 2, axis=-1)

    left = step.gap * gap(fed, mean) + p * far(mean) + (1 - p) * far(x) + far(new).mean()
    right = step.contraction * (far(x) + far(y).mean())
    assert left <= right + 1e-9 * (1 + right)


@few
@given(fed=feds, p=st.floats(0.15, 1.0))
def test_scaffnew_rate_in_expectation(fed, p):
    """Row 17: the exact expectation over the coin, of one iteration from a random state."""
    mu, L = fed.mu, fed.smoothness
    lr = 1 / L
    rng = np.random.default_rng(0)
    h = rng.normal(size=(fed.N, fed.d))
    h -= h.mean(0)
    x, star = rng.normal(size=(fed.N, fed.d)), fed.x_star
    duals = np.stack([fed.grad(i, star) for i in range(fed.N)])
    weight = bounds.scaffnew_weight(lr, p)

    def potential(x, h):
        return np.sum((x - star) ** 2) + weight * np.sum((h - duals) ** 2)

    local = x - lr * (np.stack([fed.grad(i, x[i]) for i in range(fed.N)]) - h)
    mean = np.tile(local.mean(0), (fed.N, 1))
    expected = p * potential(mean, h + p / lr * (mean - local)) + (1 - p) * potential(local, h)
    assert expected <= bounds.scaffnew_rate(mu, lr, p) * potential(x, h) + 1e-9
    engine = Simulate(um.Scaffnew(lr=lr, p=p), problem_of(fed))
    state = {
        "server.x": torch.as_tensor(star),
        "client.y": torch.as_tensor(x),
        "client.h": torch.as_tensor(h),
    }
    engine.restore(
        state, engine.snapshot()[1]
    )  # the library's own update of h, read off after a round
    engine.run_round()
    np.testing.assert_allclose(engine.clients.h, h + p / lr * (star - x), atol=1e-9)


@pytest.mark.parametrize("tau", [1, 2, 4])
def test_fedcet_corollary_1(tau):
    """From any dual start the distance stays under rho^k times the first potential."""
    fed = federation(4, mu=2.0, L=2.5)
    mu, L = fed.mu, fed.smoothness
    lr = 0.8 * fedcet.search(mu, L, tau)
    c = fedcet.weight(mu, lr)
    engine = Simulate(
        um.FedCET(lr=lr, c=c), problem_of(fed), steps=tau, x0=torch.as_tensor(start(fed))
    )
    duals = np.stack([-fed.grad(i, fed.x_star) for i in range(fed.N)])
    engine.run_round()

    def clients():
        """x_i and d_i as the next round will see them."""
        off = engine.clients.z - engine.x
        return (engine.clients.z - c * lr * off).numpy(), (engine.clients.d + c * off).numpy()

    x, d = clients()
    far, dual = np.sum((x - fed.x_star) ** 2), np.sum((d - duals) ** 2)
    assert inequalities.fedcet_rate(mu, L, tau, lr, c) < 1
    for k in range(1, 400):
        engine.run_round()
        x, _ = clients()
        assert np.sum((x - fed.x_star) ** 2) <= inequalities.fedcet_distance2(
            mu, L, tau, lr, c, k, far, dual
        ) * (1 + 1e-9)
