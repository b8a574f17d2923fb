"""InexactDANE, SONATA, Mime, MimeLite, MimeMVR, CE-LGD and SVRP; re-exported by correction.py."""

import numpy as np

from .problem import at, cohort_of, mean, note, steps_of


def inexact_dane(fed, x0, rounds, *, lam, gamma=None, eta=None, steps=None, trace=None):
    """InexactDANE: GD on the DANE subproblem until |w - w*| <= gamma |x - w*|, or ``steps``."""
    x = np.array(x0, float)
    points = [x.copy()]
    for _ in range(rounds):
        g = [fed.grad(i, x) for i in range(fed.N)]
        ends, counts = [], []
        for i in range(fed.N):
            h = g[i] - mean(g)
            exact = fed.solve(i, h + lam * x, lam)
            w, k = x.copy(), 0
            if steps is None and gamma == 0:
                w = exact
            else:
                while True:
                    if steps is not None and k == steps:
                        break
                    if steps is None and np.linalg.norm(w - exact) <= gamma * np.linalg.norm(
                        x - exact
                    ):
                        break
                    w = w - eta * (fed.grad(i, w) - h + lam * (w - x))
                    k += 1
            ends.append(w)
            counts.append(k)
        x = mean(ends)
        note(trace, steps=counts)
        points.append(x.copy())
    return np.stack(points)


def sonata(fed, x0, rounds, *, beta, alpha=1.0):
    """SONATA, star: xhat_i = argmin of the surrogate; x += alpha mean(xhat_i - x)."""
    x = np.array(x0, float)
    points = [x.copy()]
    for _ in range(rounds):
        g = [fed.grad(i, x) for i in range(fed.N)]
        hats = [fed.solve(i, -(mean(g) - g[i]) + beta * x, beta) for i in range(fed.N)]
        x = x + alpha * mean([xh - x for xh in hats])
        points.append(x.copy())
    return np.stack(points)


def mime(
    fed,
    x0,
    rounds,
    *,
    eta,
    steps,
    beta=0.0,
    beta2=0.99,
    eps=1e-3,
    eta_g=1.0,
    optimizer="momentum",
    lite=False,
    cohorts=None,
    trace=None,
):
    """Mime (lite=False) / MimeLite: y <- y - eta U(g, s) with s frozen, then s <- V(c, s), c =
    mean_S grad.

    momentum: U = (1-beta)g + beta m, m <- (1-beta)c + beta m. adam: U further divided by sqrt(v) +
    eps (v frozen),
    v <- beta2 v + (1-beta2) c^2; m_0 = v_0 = 0, no bias correction.
    """
    x = np.array(x0, float)
    m, v = np.zeros(fed.d), np.zeros(fed.d)
    points = [x.copy()]
    for t in range(rounds):
        members = cohort_of(fed, cohorts, t)
        c = mean([fed.grad(i, x) for i in members])
        ends = []
        for i in members:
            y = x.copy()
            for _ in range(steps_of(steps, i)):
                g = fed.grad(i, y) if lite else fed.grad(i, y) - fed.grad(i, x) + c
                u = (1 - beta) * g + beta * m
                y = y - at(eta, t) * (u if optimizer == "momentum" else u / (np.sqrt(v) + eps))
            ends.append(y)
        x = x + eta_g * mean([y - x for y in ends])
        m = (1 - beta) * c + beta * m
        v = beta2 * v + (1 - beta2) * c**2
        note(trace, m=m, v=v, c=c)
        points.append(x.copy())
    return np.stack(points)


def mimelite(fed, x0, rounds, **kw):
    """Mime without the local SVRG correction."""
    return mime(fed, x0, rounds, lite=True, **kw)


def mimemvr(
    fed,
    x0,
    rounds,
    *,
    eta,
    a,
    steps,
    lite=False,
    refresh="stale",
    eta_g=1.0,
    m0=None,
    cohorts=None,
    trace=None,
):
    """MimeMVR: y <- y - eta[a gt(y) + (1-a) m + (1-a)(g_i(y) - g_i(x))], m <- a c(x) + (1-a)(m +
    c(x) - c(x_prev)).

    m_0 = grad f(x0) unless given; refresh "stale": m is updated after the local phase of the round,
    "fresh": before it.
    """
    x = np.array(x0, float)
    x_prev = x.copy()
    m = mean([fed.grad(i, x) for i in range(fed.N)]) if m0 is None else np.array(m0, float)
    points = [x.copy()]
    for t in range(rounds):
        members = cohort_of(fed, cohorts, t)
        c = mean([fed.grad(i, x) for i in members])
        c_prev = mean([fed.grad(i, x_prev) for i in members])
        m_next = a * c + (1 - a) * (m + c - c_prev)
        if refresh == "fresh" and t > 0:
            m = m_next
        ends = []
        for i in members:
            y = x.copy()
            for _ in range(steps_of(steps, i)):
                gt = fed.grad(i, y) if lite else fed.grad(i, y) - fed.grad(i, x) + c
                y = y - at(eta, t) * (
                    a * gt + (1 - a) * m + (1 - a) * (fed.grad(i, y) - fed.grad(i, x))
                )
            ends.append(y)
        if refresh == "stale":
            m = m_next
        x_prev, x = x, x + eta_g * mean([y - x for y in ends])
        note(trace, m=m, c=c)
        points.append(x.copy())
    return np.stack(points)


def ce_lgd(fed, x0, rounds, *, eta, beta, steps, picks, cohorts=None, trace=None):
    """CE-LGD: v_r from the cohort; client picks[r] runs K recursive steps."""
    x = np.array(x0, float)
    x_prev = x.copy()
    v = mean([fed.grad(i, x) for i in range(fed.N)])
    points = [x.copy()]
    for r in range(rounds):
        members = cohort_of(fed, cohorts, r)
        if r > 0:
            v = mean([fed.grad(i, x) for i in members]) + (1 - beta) * (
                v - mean([fed.grad(i, x_prev) for i in members])
            )
        client = picks[r]
        w, u = x.copy(), v.copy()
        path = [w.copy()]
        for _ in range(steps_of(steps, client)):
            w_new = w - eta * u
            u = u + fed.grad(client, w_new) - fed.grad(client, w)
            w = w_new
            path.append(w.copy())
        x_prev, x = x, w
        note(trace, path=path, v=v)
        points.append(x.copy())
    return np.stack(points)


def svrp(fed, x0, rounds, *, eta, picks, coins):
    """SVRP: x <- prox_{eta f_m}(x - eta(grad f(w) - grad f_m(w))), m = picks[t]."""
    x = np.array(x0, float)
    w = x.copy()
    points = [x.copy()]
    for t in range(rounds):
        full = mean([fed.grad(i, w) for i in range(fed.N)])
        z = x - eta * (full - fed.grad(picks[t], w))
        x = fed.solve(picks[t], z / eta, 1 / eta)
        if coins[t]:
            w = x.copy()
        points.append(x.copy())
    return np.stack(points)
