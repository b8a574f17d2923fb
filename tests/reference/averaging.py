"""GD, FedAvg, FedProx and the server-side optimisers."""

import numpy as np

from .problem import at, cohort_of, mean, note, steps_of


def gd(fed, x0, rounds, *, eta):
    """x <- x - eta * mean_i grad f_i(x)."""
    x = np.array(x0, float)
    points = [x.copy()]
    for t in range(rounds):
        x = x - at(eta, t) * mean([fed.grad(i, x) for i in range(fed.N)])
        points.append(x.copy())
    return np.stack(points)


def _local_sgd(fed, i, x, eta_l, steps):
    """K plain gradient steps of client i from x."""
    xi = x.copy()
    for _ in range(steps_of(steps, i)):
        xi = xi - eta_l * fed.grad(i, xi)
    return xi


def fedavg(fed, x0, rounds, *, eta_l, steps, eta_g=1.0, cohorts=None):
    """x <- x + eta_g * mean_S(x_i - x) after K local steps."""
    x = np.array(x0, float)
    points = [x.copy()]
    for t in range(rounds):
        ends = [_local_sgd(fed, i, x, at(eta_l, t), steps) for i in cohort_of(fed, cohorts, t)]
        x = x + eta_g * mean([xi - x for xi in ends])
        points.append(x.copy())
    return np.stack(points)


def fedprox(fed, x0, rounds, *, eta_l=None, mu, steps=None, eta_g=1.0, cohorts=None):
    """FedAvg on f_i(y) + (mu/2)|y - x^t|^2; steps=None solves it exactly."""
    x = np.array(x0, float)
    points = [x.copy()]
    for t in range(rounds):
        ends = []
        for i in cohort_of(fed, cohorts, t):
            if steps is None:
                xi = fed.solve(i, mu * x, mu)
            else:
                xi = x.copy()
                for _ in range(steps_of(steps, i)):
                    xi = xi - at(eta_l, t) * (fed.grad(i, xi) + mu * (xi - x))
            ends.append(xi)
        x = x + eta_g * mean([xi - x for xi in ends])
        points.append(x.copy())
    return np.stack(points)


def fedavgm(fed, x0, rounds, *, eta_l, beta, steps, eta_g=1.0, cohorts=None, trace=None):
    """Delta = mean_S(x_i - x); m <- beta m + Delta; x <- x + eta_g m."""
    x = np.array(x0, float)
    m = np.zeros(fed.d)
    points = [x.copy()]
    for t in range(rounds):
        ends = [_local_sgd(fed, i, x, at(eta_l, t), steps) for i in cohort_of(fed, cohorts, t)]
        delta = mean([xi - x for xi in ends])
        m = beta * m + delta
        x = x + eta_g * m
        note(trace, m=m)
        points.append(x.copy())
    return np.stack(points)


def _fedopt(
    fed,
    x0,
    rounds,
    rule,
    *,
    eta_l,
    eta_g,
    steps,
    beta1=0.9,
    tau=1e-3,
    v0=None,
    cohorts=None,
    trace=None,
):
    """FedOpt: m <- beta1 m + (1-beta1) D; v <- rule(v, D^2); x <- x + eta_g m/(sqrt v + tau)."""
    x = np.array(x0, float)
    m = np.zeros(fed.d)
    v = np.full(fed.d, tau**2 if v0 is None else v0, dtype=float)
    points = [x.copy()]
    for t in range(rounds):
        ends = [_local_sgd(fed, i, x, at(eta_l, t), steps) for i in cohort_of(fed, cohorts, t)]
        delta = mean([xi - x for xi in ends])
        m = beta1 * m + (1 - beta1) * delta
        v = rule(v, delta**2)
        x = x + eta_g * m / (np.sqrt(v) + tau)
        note(trace, m=m, v=v)
        points.append(x.copy())
    return np.stack(points)


def fedadam(fed, x0, rounds, *, beta2=0.99, **options):
    """v <- beta2 v + (1 - beta2) Delta^2, no bias correction, v_0 = tau^2 unless given."""

    def rule(v, square):
        return beta2 * v + (1 - beta2) * square

    return _fedopt(fed, x0, rounds, rule, **options)


def fedyogi(fed, x0, rounds, *, beta2=0.99, **options):
    """v <- v - (1 - beta2) Delta^2 sign(v - Delta^2)."""

    def rule(v, square):
        return v - (1 - beta2) * square * np.sign(v - square)

    return _fedopt(fed, x0, rounds, rule, **options)


def fedadagrad(fed, x0, rounds, *, beta1=0.0, **options):
    """v <- v + Delta^2."""

    def rule(v, square):
        return v + square

    return _fedopt(fed, x0, rounds, rule, beta1=beta1, **options)


def fedcm(fed, x0, rounds, *, eta_l, alpha, steps, eta_g=1.0, cohorts=None, trace=None):
    """x_i <- x_i - eta_l(alpha g_i + (1-alpha) Delta); Delta+ = mean_S(x-x_i)/(eta_l K); x <- x -
    eta_g eta_l K Delta+.

    ``steps`` is one int K; Delta+ is normalised with the eta_l of the round that produced it.
    """
    x = np.array(x0, float)
    delta = np.zeros(fed.d)
    k_local = int(steps)
    points = [x.copy()]
    for t in range(rounds):
        eta = at(eta_l, t)
        ends = []
        for i in cohort_of(fed, cohorts, t):
            xi = x.copy()
            for _ in range(k_local):
                xi = xi - eta * (alpha * fed.grad(i, xi) + (1 - alpha) * delta)
            ends.append(xi)
        delta = mean([x - xi for xi in ends]) / (eta * k_local)
        x = x - eta_g * eta * k_local * delta
        note(trace, delta=delta)
        points.append(x.copy())
    return np.stack(points)
