"""Every rule against a number computed by hand."""

import numpy as np
import pytest
from tests.reference import inequalities

from undrift.theory import NoRule, bounds, steps
from undrift_papers import theorems

ROOT6, ROOT5 = 2.449489742783178, 2.23606797749979

HAND = [
    (steps.gd(4.0), 0.25),
    (steps.fedavg(2.0, 10), 0.05),
    (steps.fedrecu_convex(2.0, 10), 8 / 260),
    (steps.fedrecu_nonconvex(2.0, 10), 8 / 340),
    (steps.fedrecu_convex_stochastic(2.0, 10), 0.999 / 120),
    (steps.fedrecu_nonconvex_stochastic(2.0, 10), 0.999 / 260),
    (steps.scaffold_convex(1.5, 2), 1 / 243),
    (steps.scaffold_convex(1.5, 2, server_lr=4.0), 1 / 972),
    (steps.scaffold_strongly_convex(1.5, 1.0, 2), 1 / 243),
    (steps.scaffold_strongly_convex(1.0, 6.0, 2), 1 / 180),
    (steps.scaffold_strongly_convex(1.5, 1.0, 2, fraction=0.1), 0.1 / 30),
    (steps.scaffold_strongly_convex(1.5, 1.0, 2, server_lr=2.0, fraction=0.1), 0.1 / 60),
    (steps.scaffold_nonconvex(2.0, 10), 1 / 480),
    (steps.scaffold_nonconvex(2.0, 10, server_lr=2.0, fraction=1 / 8), 1 / 3840),
    (steps.fedlin_convex(2.0, 10), 1 / 200),
    (steps.fedlin_nonconvex(2.0, 10), 1 / 520),
    (steps.fedtrack(1.5, 2), 1 / 54),
    (steps.scaffnew_lr(4.0), 0.25),
    (steps.scaffnew_p(1.0, 0.25), 0.5),
    (steps.extra(2.0, 5), 1 / 20),
    (steps.dane_lam(3.0), 3.0),
    (steps.daneplus_lam(3.0), 6.0),
    (steps.local_solver_lr(10.0, 6.0), 1 / 16),
    (steps.daneplus_dual_lam(0.4, 10.0), 2.0),
    (steps.fedred_exact_eta(10.0, 3.0), 20.0),
    (steps.fedred_exact_eta(10.0, 25.0), 25.0),
    (steps.fedred_exact_eta_nonconvex(10.0, 4.0), 20.0),
    (steps.fedred_exact_eta_nonconvex(10.0, 6.0), 24.0),
    (steps.fedred_exact_p(0.4, 20.0, 3.0), 3.2 / 20.2),
    (steps.fedred_exact_p_nonconvex(20.0, 4.0), 0.2),
    (steps.fedred_gd_eta(10.0, 0.4, 3.0), 10.0),
    (steps.fedred_gd_eta(10.0, 0.4, 9.9), 10.3),
    (steps.fedred_gd_eta(10.0, 0.4, 3.0, noise=2.0), 12.0),
    (steps.fedred_gd_p(0.4, 10.0, 3.0), 3.2 / 9.8),
    (steps.fedred_gd_eta_nonconvex(10.0, 4.0), 60.0),
    (steps.fedred_gd_eta_nonconvex(1.0, 0.5, sigma=2.0, iterations=8, gap=2.0), 8.0),
    (steps.fedred_gd_eta_nonconvex(10.0, 12.0), 72.0),
    (steps.fedred_gd_p_nonconvex(10.0, 4.0), 0.4),
    (steps.fedred_gd_p_nonconvex(10.0, 12.0), 1.0),
    (steps.fedred_dual_m(0.25, 10.0), 2.5),
    (inequalities.fedspeed_lr(2.0, 12, lam=10.0), 1 / 384),
    (inequalities.fedspeed_lr(2.0, 12, lam=0.001), 0.002),
    (inequalities.fedspeed_rho(2.0, alpha=0.5), 1 / ROOT6),
    (inequalities.fedspeed_steps(0.1, 10.0), 100),
    (inequalities.fedspeed_steps(0.3, 1.0), 4),
    (steps.fedpd_eta(2.0), 0.999 * (ROOT5 - 1) / 8),
    (steps.fedpd_eta_variance_reduced(2.0, local=4, period=9, batch=4), 0.999 / 42),
    (steps.fedpd_eta_variance_reduced(2.0, local=4, period=9, batch=None), 0.999 / 24),
    (steps.fedpd_gamma(0.999), 5.0),
    (inequalities.fedacg_lr(2.0, 5, lam=0.8, dissimilarity=3.0), 0.04 / 6400),
    (inequalities.fedacg_lr(2.0, 5, lam=0.8), 0.04 / 1280),
    (theorems.svrp_eta(0.5, 2.0), 1 / 16),
]


@pytest.mark.parametrize("row", range(len(HAND)))
def test_value(row):
    ours, by_hand = HAND[row]
    assert ours == pytest.approx(by_hand, rel=1e-12)


@pytest.mark.parametrize("rule, guarantee", [
    (steps.fedrecu_convex_stochastic, theorems.fedrecu_convex_stochastic),
    (steps.fedrecu_nonconvex_stochastic, theorems.fedrecu_nonconvex_stochastic),
])  # fmt: skip
def test_fedrecu_stochastic_steps_lie_just_below_where_the_guarantee_fails(rule, guarantee):
    lr = rule(2.0, 10)
    assert guarantee(2.0, 10, lr, 1, 1.0) > 0
    assert guarantee(2.0, 10, lr / 0.998, 1, 1.0) < 0
    assert guarantee(2.0, 10, lr / 2, 1, 1.0) == pytest.approx(
        min(guarantee(2.0, 10, lr * s / 100, 1, 1.0) for s in range(1, 100)), rel=1e-3
    )


def test_scaffnew_p_makes_the_rate_best():
    mu, lr = 0.3, 0.5
    best = steps.scaffnew_p(mu, lr)
    assert bounds.scaffnew_rate(mu, lr, best) == pytest.approx(1 - lr * mu)
    assert bounds.scaffnew_rate(mu, lr, 0.99 * best) > 1 - lr * mu


def test_daneplus_dual_lam_makes_the_rate_best():
    best = steps.daneplus_dual_lam(0.3, 7.0)
    rate = inequalities.daneplus_dual_rate(0.3, 7.0, best)
    assert all(
        rate < inequalities.daneplus_dual_rate(0.3, 7.0, best * s) for s in (0.9, 0.99, 1.01, 1.1)
    )


def test_fedspeed_limits_leave_nothing_of_kappa():
    L, K, alpha = 2.0, 7, 0.6
    lr, rho = inequalities.fedspeed_lr(L, K, lam=10.0), inequalities.fedspeed_rho(L, alpha)
    assert inequalities.fedspeed_kappa(L, K, lr, 0.0, alpha) == pytest.approx(0, abs=1e-12)
    assert inequalities.fedspeed_kappa(L, K, 0.0, rho, alpha) == pytest.approx(0, abs=1e-12)
    assert inequalities.fedspeed_kappa(L, K, lr, rho, alpha) == pytest.approx(-0.5)


def extra_radius(H, steps_, lr):
    """Spectral radius of a round of EXTRA on quadratics with Hessians ``H [N, d, d]``."""
    N, d = H.shape[:2]
    G = np.zeros((N * d, N * d))
    for i in range(N):
        G[i * d : (i + 1) * d, i * d : (i + 1) * d] = H[i]
    eye, J = np.eye(N * d), np.kron(np.full((N, N), 1 / N), np.eye(d))

    def iteration(W):
        mix = (W + eye) / 2
        return np.block([[2 * mix - lr * G, lr * G - mix], [eye, 0 * eye]])

    round_ = iteration(J) @ np.linalg.matrix_power(iteration(eye), steps_ - 1)
    # d eigenvalues are 1: the invariant sum_i [x_i(t) - x_i(t-1) + lr g_i(t-1)], which is 0 on
    # every run.
    return max(abs(v) for v in sorted(np.linalg.eigvals(round_), key=lambda v: abs(v - 1))[d:])


@pytest.mark.parametrize("K", [1, 2, 3, 4, 5, 6])
def test_extra_step_is_stable(K):
    rng = np.random.default_rng(K)
    for _ in range(30):
        Q = np.linalg.qr(rng.normal(size=(4, 3, 3)))[0]
        H = Q @ (np.eye(3) * rng.uniform(0.05, 1, (4, 1, 3))) @ Q.transpose(0, 2, 1)
        assert extra_radius(H, K, steps.extra(1.0, K)) < 1


@pytest.mark.parametrize("K", [7, 8, 10])
def test_extra_refuses_where_no_step_is_stable(K):
    H = np.array([np.diag([1.0, 1e-3])] * 2)
    assert all(extra_radius(H, K, lr) > 1.1 for lr in (1e-4, 1e-3, 1e-2, 0.1, 1.0))
    with pytest.raises(NoRule):
        steps.extra(1.0, K)
