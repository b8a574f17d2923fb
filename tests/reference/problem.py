"""Small federations with exact gradients and regularised solves, and shared helpers."""

from dataclasses import dataclass
from functools import cached_property

import numpy as np


@dataclass
class Federation:
    """Clients f_i(x) = x'H_i x / 2 - q_i'x, a list of (H_i, q_i); f is their uniform mean."""

    quadratics: list

    @property
    def N(self):
        return len(self.quadratics)

    @property
    def d(self):
        return len(self.quadratics[0][1])

    @cached_property
    def h_bar(self):
        return sum(h for h, _ in self.quadratics) / self.N

    @cached_property
    def x_star(self):
        return np.linalg.solve(self.h_bar, sum(q for _, q in self.quadratics) / self.N)

    @cached_property
    def mu(self):
        """Largest mu for which every f_i is mu-convex."""
        return min(np.linalg.eigvalsh(h)[0] for h, _ in self.quadratics)

    @cached_property
    def smoothness(self):
        """Smallest L for which every f_i is L-smooth."""
        return max(np.abs(np.linalg.eigvalsh(h)).max() for h, _ in self.quadratics)

    @cached_property
    def delta_a(self):
        """Averaged Hessian dissimilarity, paper 001 Definition 2: ||mean (H_i - H)^2||^(1/2)."""
        gaps = [h - self.h_bar for h, _ in self.quadratics]
        return float(np.sqrt(np.linalg.norm(sum(g @ g for g in gaps) / self.N, 2)))

    @cached_property
    def delta_b(self):
        """Bounded Hessian dissimilarity, paper 001 Definition 1: max ||H_i - H||."""
        return max(np.linalg.norm(h - self.h_bar, 2) for h, _ in self.quadratics)

    def grad(self, i, x):
        h, q = self.quadratics[i]
        return h @ x - q

    def client_value(self, i, x):
        h, q = self.quadratics[i]
        return 0.5 * x @ h @ x - q @ x

    def value(self, x):
        return sum(self.client_value(i, x) for i in range(self.N)) / self.N

    def mean_grad(self, x):
        return sum(self.grad(i, x) for i in range(self.N)) / self.N

    def solve(self, i, v, lam):
        """argmin_y f_i(y) - <v, y> + (lam/2)|y|^2, i.e. grad f_i(y) + lam*y = v."""
        h, q = self.quadratics[i]
        return np.linalg.solve(h + lam * np.eye(self.d), q + v)


def random_federation(N, d, mu, L, seed, spread=1.0, shift=1.0):
    """Random quadratics whose Hessian spectra lie in [mu, L] (both attained at spread=1; mu may be
    negative).

    ``spread`` in [0, 1] interpolates every H_i towards one common Hessian, ``shift`` scales the
    spread of the q_i.
    """
    rng = np.random.default_rng(seed)

    def hessian():
        basis, _ = np.linalg.qr(rng.standard_normal((d, d)))
        spectrum = np.concatenate([[mu], rng.uniform(mu, L, max(d - 2, 0)), [L]])[-d:]
        h = (basis * spectrum) @ basis.T
        return (h + h.T) / 2

    common, q_common = hessian(), rng.standard_normal(d)
    return Federation(
        [
            ((1 - spread) * common + spread * hessian(), q_common + shift * rng.standard_normal(d))
            for _ in range(N)
        ]
    )


@dataclass
class LogisticFederation:
    """f_i(x) = mean_j log(1 + exp(-b_j a_j'x)) + (mu/2)|x|^2, given as (A_i, b_i), b in {-1, 1}."""

    data: list
    mu: float

    @property
    def N(self):
        return len(self.data)

    @property
    def d(self):
        return self.data[0][0].shape[1]

    @cached_property
    def smoothness(self):
        return self.mu + max(np.linalg.norm(a, 2) ** 2 / (4 * len(b)) for a, b in self.data)

    @cached_property
    def x_star(self):
        x = np.zeros(self.d)
        for _ in range(60):
            x = x - np.linalg.solve(
                sum(self.hessian(i, x) for i in range(self.N)) / self.N, self.mean_grad(x)
            )
        return x

    def grad(self, i, x):
        a, b = self.data[i]
        return -a.T @ (b / (1 + np.exp(b * (a @ x)))) / len(b) + self.mu * x

    def hessian(self, i, x):
        a, b = self.data[i]
        s = 1 / (1 + np.exp(-b * (a @ x)))
        return (a.T * (s * (1 - s))) @ a / len(b) + self.mu * np.eye(self.d)

    def value(self, x):
        losses = [np.mean(np.logaddexp(0, -b * (a @ x))) for a, b in self.data]
        return sum(losses) / self.N + 0.5 * self.mu * x @ x

    def mean_grad(self, x):
        return sum(self.grad(i, x) for i in range(self.N)) / self.N

    def solve(self, i, v, lam):
        """Newton on f_i(y) - <v, y> + (lam/2)|y|^2, the step halved while the residual grows."""
        y = np.zeros(self.d)
        for _ in range(100):
            r = self.grad(i, y) - v + lam * y
            step = np.linalg.solve(self.hessian(i, y) + lam * np.eye(self.d), r)
            t = 1.0
            size, trial = np.linalg.norm(r), y - step
            while t > 1e-6 and np.linalg.norm(self.grad(i, trial) - v + lam * trial) > size:
                t /= 2
                trial = y - t * step
            y = trial
            if np.linalg.norm(step) <= 1e-15 * (1 + np.linalg.norm(y)):
                break
        return y


def random_logistic(N, d, n, mu, seed):
    """A heterogeneous logistic federation: one labelling vector per client."""
    rng = np.random.default_rng(seed)
    data = []
    for _ in range(N):
        a = rng.standard_normal((n, d)) + 0.5 * rng.standard_normal(d)
        b = np.where(a @ rng.standard_normal(d) + 0.3 * rng.standard_normal(n) > 0, 1.0, -1.0)
        data.append((a, b))
    return LogisticFederation(data, mu)


def mean(vectors):
    """Uniform mean of a list of d-vectors."""
    vectors = list(vectors)
    return sum(vectors) / len(vectors)


def cohort_of(fed, cohorts, t):
    """S_t: all clients unless a list of index lists is given."""
    return list(range(fed.N)) if cohorts is None else list(cohorts[t])


def steps_of(steps, i):
    """Local steps of client i: an int for all or a list per client."""
    return int(steps) if np.ndim(steps) == 0 else int(steps[i])


def at(value, t):
    """A hyper-parameter that is constant (scalar) or given per round (sequence)."""
    return value if np.ndim(value) == 0 else value[t]


def note(trace, **state):
    """Append copies of a state to an optional list of dicts."""
    if trace is not None:
        trace.append({name: np.array(value, dtype=float) for name, value in state.items()})
