"""Each inequality against a hand value and NumPy transcriptions of the methods."""

import itertools
import math

import numpy as np
import pytest
from tests.reference import inequalities

from undrift.theory import bounds, steps
from undrift_papers import theorems

SEEDS = range(8)


class Quadratics:
    """f_i(x) = x' H_i x / 2 - b_i' x, spectra in [mu, L], more alike as ``spread`` shrinks."""

    def __init__(self, seed, mu, L, N=4, d=3, spread=1.0):
        rng = np.random.default_rng(seed)
        Q = np.linalg.qr(rng.normal(size=(N + 1, d, d)))[0]
        H = Q @ (np.eye(d) * rng.uniform(mu, L, (N + 1, 1, d))) @ Q.transpose(0, 2, 1)
        self.H = (1 - spread) * H[-1] + spread * H[:-1]
        self.b = rng.normal(size=(N, d)) * 3
        self.N, self.rng, spectra = N, rng, np.linalg.eigvalsh(self.H)
        self.mu, self.L = spectra.min(), abs(spectra).max()
        gap = self.H - self.H.mean(0)
        self.delta_A = math.sqrt(np.linalg.norm((gap @ gap).mean(0), 2))
        self.delta_B = max(np.linalg.norm(g, 2) for g in gap)
        self.best = np.linalg.solve(self.H.mean(0), self.b.mean(0))
        self.star = np.tile(self.best, (N, 1))

    def grad(self, X):
        """grad f_i at row i, or at one common point."""
        return np.einsum("nij,nj->ni", self.H, np.broadcast_to(X, self.b.shape)) - self.b

    def gap(self, x):
        return (x - self.best) @ self.H.mean(0) @ (x - self.best) / 2

    def solve(self, v, lam):
        """argmin f_i(y) - <v_i, y> + (lam/2) |y|^2."""
        H = self.H + lam * np.eye(len(self.best))
        return np.linalg.solve(H, (self.b + v)[..., None])[..., 0]

    def start(self):
        return self.best + 5 * self.rng.normal(size=len(self.best))

    def points(self):
        return self.star + 5 * self.rng.normal(size=self.star.shape)


def sq(v):
    return (v * v).sum()


def mean_sq(X):
    return (X * X).sum(-1).mean()


# --- hand values
# ------------------------------------------------------------------------------------------------

HAND = [
    (bounds.gd(2.0, 0.25, 3, 8.0), 1.0),
    (bounds.gd(2.0, 0.6, 2, 8.0), 0.0),
    (bounds.fedrecu_descent_convex(2.0, 1, 0.1), 0.1 - 0.01 * 2 * 0.5),
    (bounds.fedrecu_descent_convex(2.0, 3, 0.1), 0.3 - 0.02 * (8 + 3)),
    (inequalities.fedrecu_descent_nonconvex(2.0, 3, 0.1), 0.3 - 0.02 * (8 + 6)),
    (bounds.fedrecu_linear(0.5, 0.1), 0.9),
    (theorems.fedrecu_average(2.0, 3, 0.1, 4, 13.0), 8 / 0.24),
    (theorems.fedrecu_convex_stochastic(2.0, 2, 0.01, 5, 10.0), 2 / (0.04 - 0.0096)),
    (
        theorems.fedrecu_convex_stochastic(2.0, 2, 0.01, 5, 10.0, sigma=3.0),
        (2 + 0.1224) / (0.04 - 0.0096),
    ),
    (theorems.fedrecu_nonconvex_stochastic(2.0, 2, 0.01, 5, 10.0), 2 / (0.01 - 0.0052)),
    (
        theorems.fedrecu_nonconvex_stochastic(2.0, 2, 0.01, 5, 10.0, sigma=3.0),
        2 / 0.0048 + 0.3168 / 0.0096,
    ),
    (inequalities.dane_decrease(1.0, 3.0), 2.0),
    (bounds.dane(1.0, 2.0, 2, 10.0), 4.0),
    (bounds.dane(0.0, 2.0, 4, 10.0), 2.5),
    (bounds.dane(1.0, 0.0, 4, 10.0), 0.0),
    (bounds.daneplus(1.0, 2.0, 2, 10.0), 8.0),
    (bounds.daneplus(0.0, 2.0, 4, 10.0), 5.0),
    (bounds.daneplus(1.0, 2.0, 2, 10.0, errors2=3.0), 10.0),
    (theorems.daneplus_accuracy(1.0, 3.0, 0), 0.75),
    (theorems.daneplus_accuracy(1.0, 3.0, 2), 0.125),
    (theorems.daneplus_nonconvex(3.0, 2.0, 9, 1.0), 12.0),
    (theorems.daneplus_nonconvex(3.0, 3.0, 8, 2.0, errors2=4.0), 25.0),
    (inequalities.daneplus_dual_weight(1.0, 4.0, 2.0), 5 / 36),
    (inequalities.daneplus_dual_weight(1.0, 3.0, 1.0), 4 / 10),
    (inequalities.daneplus_dual_rate(1.0, 4.0, 2.0), 5 / 9),
    (inequalities.daneplus_dual_rate(1.0, 4.0, 1.0), 5 / 7),
    (inequalities.daneplus_dual_rate(1.0, 4.0, 4.0), 20 / 28),
    (inequalities.fedred_exact_step(2.0, 3.0).gap, 0.5),
    (inequalities.fedred_exact_step(2.0, 3.0).contraction, 0.75),
    (inequalities.fedred_exact(2.0, 2.0, 2, 10.0), 8.0),
    (inequalities.fedred_exact(0.0, 2.0, 4, 10.0), 5.0),
    (inequalities.fedred_exact_nonconvex(2.0, 30, 4.0), 40.0),
    (inequalities.fedred_gd_step(2.0, 3.0).gap, 1.0),
    (inequalities.fedred_gd_step(2.0, 3.0).contraction, 0.5),
    (bounds.fedred_gd(2.0, 4.0, 2, 10.0), 8.0),
    (bounds.fedred_gd(0.0, 2.0, 4, 10.0), 5.0),
    (bounds.fedred_gd(2.0, 4.0, 2, 10.0, L=2.0), 8.0),
    (bounds.fedred_gd(2.0, 4.0, 2, 10.0, L=2.0, sigma=2.0), 9.0),
    (theorems.fedred_gd_nonconvex(2.0, 8, 4.0), 96.0),
    (theorems.fedred_gd_nonconvex(2.0, 8, 4.0, sigma=3.0), 168.0),
    (bounds.scaffnew_weight(0.5, 0.25), 4.0),
    (bounds.scaffnew_rate(0.1, 0.5, 0.5), 0.95),
    (bounds.scaffnew_rate(1.0, 0.5, 0.5), 0.75),
    (inequalities.fedspeed_kappa(2.0, 3, 0.001, 0.1, 0.5), 0.5 - 0.03 - 0.018432),
    (inequalities.fedspeed_floor(2.0, 3, 0.01, 0.0, 0.5, 10.0, 2.0, 3.0) * (0.5 - 1.8432), 56.832),
    (inequalities.fedspeed_floor(2.0, 3, 0.0, 0.1, 0.5, 10.0, 2.0, 3.0) * 0.47, 3.1),
]


@pytest.mark.parametrize("row", range(len(HAND)))
def test_value(row):
    ours, by_hand = HAND[row]
    assert ours == pytest.approx(by_hand, rel=1e-12)


@pytest.mark.parametrize("mu, L", [(0.1, 1.0), (2.0, 2.0), (1e-4, 50.0)])
def test_corollary_32_as_printed(mu, L):
    lam = steps.daneplus_dual_lam(mu, L)
    rate = 1 - 2 * math.sqrt(mu) / (math.sqrt(L) + mu / math.sqrt(L) + 2 * math.sqrt(mu))
    weight = (mu + L) / (mu * L * (mu + L) + 2 * mu * L * math.sqrt(mu * L))
    assert inequalities.daneplus_dual_rate(mu, L, lam) == pytest.approx(rate)
    assert inequalities.daneplus_dual_weight(mu, L, lam) == pytest.approx(weight)


@pytest.mark.parametrize("tau", [1, 2, 5, 10, 100])
@pytest.mark.parametrize("share", [1.0, 0.5])
def test_fedrecu_theorem_2s_constant(tau, share):
    """The paper's gamma = 13 alpha^2 L tau/8 is a lower estimate, equal at tau = 1."""
    L = 3.0
    lr = share * steps.fedrecu_nonconvex(L, tau)
    gamma, paper = inequalities.fedrecu_descent_nonconvex(L, tau, lr), 13 * lr**2 * L * tau / 8
    assert gamma >= paper * (1 - 1e-12) and theorems.fedrecu_average(
        L, tau, lr, 7, 2.0
    ) == pytest.approx(2 / (paper * 7))
    if tau == 1 and share == 1:
        assert gamma == pytest.approx(paper)


@pytest.mark.parametrize("rounds", [1, 10, 10_000])
def test_limits_in_mu_and_overflow(rounds):
    for bound in (bounds.dane, bounds.daneplus, inequalities.fedred_exact, bounds.fedred_gd):
        assert bound(1e-9, 2.0, rounds, 3.0) == pytest.approx(
            bound(0.0, 2.0, rounds, 3.0), rel=1e-4
        )
        assert 0 <= bound(1.0, 2.0, rounds, 3.0) <= bound(0.0, 2.0, rounds, 3.0)


# --- FedRecu
# ------------------------------------------------------------------------------------------------


def fedrecu_round(f, x, lr, tau):
    g = f.grad(x)
    Y = np.tile(x, (f.N, 1))
    for _ in range(tau):
        Y = Y - lr * (f.grad(Y) - g + g.mean(0))
    return Y.mean(0)


@pytest.mark.parametrize("tau", [1, 2, 5])
@pytest.mark.parametrize("mu, step, descent", [
    (0.05, steps.fedrecu_convex, bounds.fedrecu_descent_convex),
    (-0.3, steps.fedrecu_nonconvex, inequalities.fedrecu_descent_nonconvex),
])  # fmt: skip
def test_fedrecu_descent(tau, mu, step, descent):
    for seed in SEEDS:
        f = Quadratics(seed, mu, 1.0)
        bottom = np.linalg.eigvalsh(f.H.mean(0)).min()
        lr = step(f.L, tau)
        gamma = descent(f.L, tau, lr)
        x, norms = f.start(), []
        first = f.gap(x)
        for _ in range(20):
            g, new = f.grad(x).mean(0), fedrecu_round(f, x, lr, tau)
            assert f.gap(new) <= f.gap(x) - gamma * sq(g) + 1e-10
            if bottom > 0:
                assert f.gap(new) <= bounds.fedrecu_linear(bottom, gamma) * f.gap(x) + 1e-10
            norms.append(sq(g))
            x = new
        if bottom > 0 and mu < 0:
            assert np.mean(norms) <= theorems.fedrecu_average(f.L, tau, lr, 20, first)


def test_fedrecu_descent_is_exact_for_one_step():
    f = Quadratics(0, 2.0, 2.0)
    x, lr = f.start(), 0.3
    drop = f.gap(x) - f.gap(fedrecu_round(f, x, lr, 1))
    for descent in (bounds.fedrecu_descent_convex, inequalities.fedrecu_descent_nonconvex):
        assert drop == pytest.approx(descent(2.0, 1, lr) * sq(f.grad(x).mean(0)))


def test_fedrecu_theorem_3_without_noise():
    f = Quadratics(3, 0.01, 1.0)
    lr, x = steps.fedrecu_convex_stochastic(f.L, 4) / 2, f.start()
    distance2, seen = sq(x - f.best), []
    for k in range(1, 30):
        seen.append(x)
        x = fedrecu_round(f, x, lr, 4)
        assert f.gap(np.mean(seen, 0)) <= theorems.fedrecu_convex_stochastic(
            f.L, 4, lr, k, distance2
        )


# --- DANE and DANE+
# ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("spread", [0.1, 0.5, 1.0])
def test_dane(spread):
    for seed in SEEDS:
        f = Quadratics(seed, 0.02, 1.0, spread=spread)
        lam = steps.dane_lam(f.delta_A)
        x = f.start()
        distance2 = sq(x - f.best)
        for r in range(1, 25):
            g = f.grad(x)
            new = f.solve(g - g.mean(0) + lam * x, lam).mean(0)
            assert (
                f.gap(new) <= f.gap(x) - inequalities.dane_decrease(f.mu, lam) * sq(new - x) + 1e-10
            )
            x = new
            assert (
                f.gap(x) + f.mu / 2 * sq(x - f.best) <= bounds.dane(f.mu, lam, r, distance2) + 1e-10
            )


@pytest.mark.parametrize("spread", [0.1, 1.0])
def test_daneplus_theorem_4(spread):
    for seed in SEEDS:
        f = Quadratics(seed, 0.02, 1.0, spread=spread)
        lam = steps.daneplus_lam(f.delta_A)
        lr = steps.local_solver_lr(f.L, lam)
        x = f.start()
        distance2, lowest = sq(x - f.best), math.inf
        for r in range(15):
            if sq(x - f.best) < 1e-16:
                break  # the stopping rule cannot be met below rounding
            g = f.grad(x)
            h, Y = g - g.mean(0), np.tile(x, (f.N, 1))
            accuracy = theorems.daneplus_accuracy(f.mu, lam, r)
            open_ = np.ones(f.N, bool)
            while open_.any():
                Y = np.where(open_[:, None], Y - lr * (f.grad(Y) - h + lam * (Y - x)), Y)
                F = f.grad(Y) - h + lam * (Y - x)
                open_ = (F * F).sum(1) > accuracy * ((Y - x) ** 2).sum(1)
            x = Y.mean(0)
            lowest = min(lowest, f.gap(x))
            left = lowest + f.mu / 2 * mean_sq(Y - f.best)
            assert left <= bounds.daneplus(f.mu, lam, r + 1, distance2) + 1e-10


def test_daneplus_accuracies_sum_to_theorem_4s_budget():
    mu, lam = 0.3, 2.0
    total = sum(theorems.daneplus_accuracy(mu, lam, r) for r in range(10_000))
    assert total == pytest.approx(lam * (mu + lam) / 8, rel=1e-3) and total <= lam * (mu + lam) / 8


def test_daneplus_theorem_1_with_a_random_client():
    for seed in SEEDS:
        f = Quadratics(seed, -0.2, 1.0, spread=0.3)
        if np.linalg.eigvalsh(f.H.mean(0)).min() <= 0:
            continue
        lam = steps.daneplus_lam(f.delta_B)
        x, norms = f.start(), []
        first = f.gap(x)
        for r in range(1, 15):
            g = f.grad(x)
            x = f.solve(g - g.mean(0) + lam * x, lam)[f.rng.integers(f.N)]
            norms.append(sq(f.grad(x).mean(0)))
            assert min(norms) <= theorems.daneplus_nonconvex(f.delta_B, 2.0, r, first)


@pytest.mark.parametrize("factor", [1.0, 0.4, 3.0])
def test_daneplus_dual_contracts(factor):
    for seed in SEEDS:
        f = Quadratics(seed, 0.05, 1.0)
        lam = factor * steps.daneplus_dual_lam(f.mu, f.L)
        rate, weight = (
            inequalities.daneplus_dual_rate(f.mu, f.L, lam),
            inequalities.daneplus_dual_weight(f.mu, f.L, lam),
        )
        x, h = f.start(), f.points()
        h -= h.mean(0)
        for _ in range(20):
            before = sq(x - f.best) + weight * mean_sq(h - f.grad(f.star))
            Y = f.solve(h + lam * x, lam)
            x = Y.mean(0)
            h = h + lam * (x - Y)
            assert sq(x - f.best) + weight * mean_sq(h - f.grad(f.star)) <= rate * before + 1e-12


# --- FedRed
# ------------------------------------------------------------------------------------------------


def fedred_step(f, x, Y, eta, lam, exact):
    g = f.grad(x)
    h = g - g.mean(0)
    if exact:
        return f.solve(h + eta * Y + lam * x, eta + lam)
    return (eta * Y + lam * x - (f.grad(Y) - h)) / (eta + lam)


def fedred_numbers(f, exact):
    lam = f.delta_A
    if exact:
        eta = steps.fedred_exact_eta(f.L, lam)
        return (
            eta,
            lam,
            steps.fedred_exact_p(f.mu, eta, lam),
            inequalities.fedred_exact_step(f.mu, eta),
        )
    eta = steps.fedred_gd_eta(f.L, f.mu, lam)
    return eta, lam, steps.fedred_gd_p(f.mu, eta, lam), inequalities.fedred_gd_step(f.mu, eta)


@pytest.mark.parametrize("exact", [False, True])
@pytest.mark.parametrize("reset", [False, True])
def test_fedred_one_step(exact, reset):
    """From any state; the coin's expectation is taken exactly."""
    for seed in range(40):
        f = Quadratics(seed, 0.05, 1.0, spread=(0.1, 0.6, 1.0)[seed % 3])
        eta, lam, p, one = fedred_numbers(f, exact)
        assert 0 < p <= 1
        x, Y = f.start(), f.points() * f.rng.choice([0.1, 1.0])
        new = fedred_step(f, x, Y, eta, lam, exact)
        mean = new.mean(0)
        moved = mean_sq(np.tile(mean, (f.N, 1)) - f.star) if reset else mean_sq(new - f.star)
        left = one.gap * f.gap(mean) + p * (sq(mean - f.best) + moved)
        left += (1 - p) * (sq(x - f.best) + mean_sq(new - f.star))
        assert left <= one.contraction * (sq(x - f.best) + mean_sq(Y - f.star)) + 1e-9


@pytest.mark.parametrize("exact", [False, True])
def test_fedred_one_step_is_tight(exact):
    """Equal clients at x*, reference point elsewhere: the coin alone brings it home."""
    f = Quadratics(1, 0.4, 1.0, spread=0.0)
    eta, lam, p, one = fedred_numbers(f, exact)
    x = f.start()
    new = fedred_step(f, x, f.star, eta, lam, exact)
    assert lam == pytest.approx(0, abs=1e-8) and new == pytest.approx(f.star)
    assert (1 - p) * sq(x - f.best) == pytest.approx(one.contraction * sq(x - f.best), rel=1e-6)


@pytest.mark.parametrize(
    "exact, bound", [(False, bounds.fedred_gd), (True, inequalities.fedred_exact)]
)
def test_fedred_after_k_iterations(exact, bound):
    """Theorems 7 and 9, in exact expectation: all coin sequences."""
    for seed in range(3):
        f = Quadratics(seed, 0.1, 1.0, N=3, d=2, spread=0.5)
        eta, lam, p, one = fedred_numbers(f, exact)
        x0 = f.start()
        for K in (1, 3, 6):
            weights = one.contraction ** -np.arange(1.0, K + 1)
            expected = 0.0
            for coins in itertools.product([0, 1], repeat=K):
                x, Y, means = x0, np.tile(x0, (f.N, 1)), []
                for coin in coins:
                    Y = fedred_step(f, x, Y, eta, lam, exact)
                    means.append(Y.mean(0))
                    x = Y.mean(0) if coin else x
                left = f.gap(np.average(means, axis=0, weights=weights))
                left += f.mu / 4 * (sq(x - f.best) + mean_sq(Y - f.star))
                expected += math.prod(p if coin else 1 - p for coin in coins) * left
            assert expected <= bound(f.mu, eta, K, sq(x0 - f.best))


# --- Scaffnew
# ------------------------------------------------------------------------------------------------


def scaffnew_expected(f, X, h, lr, p):
    """(Psi, E Psi+) from any state with sum_i h_i = 0."""
    weight, star = bounds.scaffnew_weight(lr, p), f.grad(f.star)

    def psi(X, h):
        return sq(X - f.star) + weight * sq(h - star)

    Y = X - lr * (f.grad(X) - h)
    mean = np.tile(Y.mean(0), (f.N, 1))
    return psi(X, h), p * psi(mean, h + p / lr * (mean - Y)) + (1 - p) * psi(Y, h)


@pytest.mark.parametrize("share", [0.3, 1.0, 2.0])
def test_scaffnew_rate(share):
    for seed in range(40):
        f = Quadratics(seed, 0.05, 1.0)
        lr = steps.scaffnew_lr(f.L)
        p = min(share * steps.scaffnew_p(f.mu, lr), 1.0)
        X, h = f.points(), f.points() * f.rng.choice([0.01, 1.0])
        h -= h.mean(0)
        before, after = scaffnew_expected(f, X, h, lr, p)
        assert after <= bounds.scaffnew_rate(f.mu, lr, p) * before + 1e-9


@pytest.mark.parametrize("p", [0.05, 0.2])
def test_scaffnew_rate_is_tight_in_p(p):
    """At x* with wrong h the expected Psi shrinks by exactly 1 - p^2."""
    f = Quadratics(2, 0.5, 1.0)
    h = f.points()
    before, after = scaffnew_expected(f, f.star, h - h.mean(0), 1 / f.L, p)
    assert after == pytest.approx(bounds.scaffnew_rate(f.mu, 1 / f.L, p) * before)
