"""FedRecu (paper 000), FedCET (004), DANE, DANE+ and FedRed (001), as the papers print them."""

import numpy as np

from .problem import at, mean, note


def _per_client(fed, x):
    """[N, d] copy of a common point or of per-client points."""
    return np.array(np.broadcast_to(np.asarray(x, float), (fed.N, fed.d)))


def _grads(fed, x):
    return np.stack([fed.grad(i, x[i]) for i in range(fed.N)])


# ------------------------------------------------------------------------------------------------
# FedRecu, paper 000
def fedrecu(fed, x0, rounds, *, alpha, tau, x_minus2=None, x_minus1=None, trace=None):
    """Algorithm 1 with (3), (4), (5), t = -1, 0, ...; returns x(0), x(tau), x(2 tau), ...

    Start: x_i(-2) = x_minus2 (x0 for all clients if absent), x_i(-1) = x_i(-2) - alpha grad
    f_i(x_i(-2)). With x_minus1
    the recursion starts at t = 0 from x(0) = mean(x_i(-1) - alpha grad f_i(x_i(-1))) (the authors'
    least-squares code).
    """
    n = fed.N
    points = []
    if x_minus1 is None:
        x_old = _per_client(fed, x0 if x_minus2 is None else x_minus2)
        g_old = _grads(fed, x_old)
        x = np.stack([x_old[i] - alpha * g_old[i] for i in range(n)])
        start = -1
    else:
        x_old = _per_client(fed, x_minus1)
        g_old = _grads(fed, x_old)
        x = _per_client(fed, mean([x_old[i] - alpha * g_old[i] for i in range(n)]))
        points.append(x[0].copy())
        start = 0
    note(trace, x=x)
    for t in range(start, rounds * tau):
        g = _grads(fed, x)
        x_new = np.empty_like(x)
        if (t + 1) % tau == 0:
            v = [2 * x[i] - x_old[i] - alpha * g[i] + alpha * g_old[i] for i in range(n)]
            for i in range(n):
                x_new[i] = mean(v)  # (3)
        elif t % tau == 0:
            w = [x_old[i] + alpha * g[i] - alpha * g_old[i] for i in range(n)]
            for i in range(n):
                x_new[i] = 2 * x[i] - mean(w)  # (4)
        else:
            for i in range(n):
                x_new[i] = 2 * x[i] - x_old[i] - alpha * g[i] + alpha * g_old[i]  # (5)
        x_old, g_old, x = x, g, x_new
        note(trace, x=x)
        if (t + 1) % tau == 0:
            points.append(x[0].copy())
    return np.stack(points)


def fedrecu_tracked(fed, x0, rounds, *, alpha, tau, x_minus2=None, x_minus1=None, trace=None):
    """Form (7): X+ = W(X - alpha Y), Y+ = W(Y + grad(X+) - grad(X)), Y(-1) = grad(X(-1))."""
    if x_minus1 is None:
        x_old = _per_client(fed, x0 if x_minus2 is None else x_minus2)
        x = x_old - alpha * _grads(fed, x_old)
    else:
        x = _per_client(fed, x_minus1)
    g = _grads(fed, x)
    y = g.copy()
    average = np.full((fed.N, fed.N), 1 / fed.N)
    points = []
    for t in range(-1, rounds * tau):
        w = average if (t + 1) % tau == 0 else np.eye(fed.N)
        x = w @ (x - alpha * y)
        g_new = _grads(fed, x)
        y = w @ (y + g_new - g)
        g = g_new
        note(trace, x=x, y=y, g=g)
        if (t + 1) % tau == 0:
            points.append(x.mean(axis=0))
    return np.stack(points)


def fedrecu_round(fed, x0, rounds, *, alpha, tau):
    """Round form started at x(0) = x0: gradient tracking with the anchor gradient mean_j grad
    f_j(xbar).

    It has no history from before the round, so that ``alpha`` may be another one in each.
    """
    xbar = np.array(x0, float)
    points = [xbar.copy()]
    for k in range(rounds):
        anchor = [fed.grad(i, xbar) for i in range(fed.N)]
        locals_ = []
        for i in range(fed.N):
            xi = xbar.copy()
            for _ in range(tau):
                xi = xi - at(alpha, k) * (fed.grad(i, xi) - anchor[i] + mean(anchor))
            locals_.append(xi)
        xbar = mean(locals_)
        points.append(xbar.copy())
    return np.stack(points)


# ------------------------------------------------------------------------------------------------
# FedCET, paper 004
def fedcet(fed, x0, rounds, *, alpha, c, tau, x_minus2=None, trace=None):
    """Algorithm 2 with (2), (3) as a two-step recursion; mean_i x_i(k tau) for k = 0, 1, ..."""
    n = fed.N
    x_old = _per_client(fed, x0 if x_minus2 is None else x_minus2)
    g_old = _grads(fed, x_old)
    x = np.stack([x_old[i] - alpha * g_old[i] for i in range(n)])
    points = []
    note(trace, x=x)
    for t in range(-1, rounds * tau):
        g = _grads(fed, x)
        v = [2 * x[i] - x_old[i] - alpha * g[i] + alpha * g_old[i] for i in range(n)]
        x_new = np.empty_like(x)
        for i in range(n):
            if (t + 1) % tau == 0:
                x_new[i] = c * alpha * mean(v) + (1 - c * alpha) * v[i]  # (2)
            else:
                x_new[i] = v[i]  # (3)
        x_old, g_old, x = x, g, x_new
        note(trace, x=x)
        if (t + 1) % tau == 0:
            points.append(x.mean(axis=0))
    return np.stack(points)


def fedcet_matrix(
    fed, x0, rounds, *, alpha, c, tau, x_minus2=None, x_minus1=None, d_minus1=None, trace=None
):
    """Matrix form (7) with W(t+1) of (8); d(-1) = 0 unless given together with x(-1)."""
    if x_minus1 is None:
        x_old = _per_client(fed, x0 if x_minus2 is None else x_minus2)
        x = x_old - alpha * _grads(fed, x_old)
    else:
        x = _per_client(fed, x_minus1)
    dual = np.zeros_like(x) if d_minus1 is None else np.array(d_minus1, float)
    eye, average = np.eye(fed.N), np.full((fed.N, fed.N), 1 / fed.N)
    points = []
    for t in range(-1, rounds * tau):
        w = average if (t + 1) % tau == 0 else eye
        g = _grads(fed, x)
        dual = dual + c * (eye - w) @ (x - alpha * g - alpha * dual)
        x = x - alpha * g - alpha * dual
        note(trace, x=x, d=dual)
        if (t + 1) % tau == 0:
            points.append(x.mean(axis=0))
    return np.stack(points)


def fedcet_learning_rate(mu, smoothness, tau, h_fraction=1e-3, start_fraction=0.999):
    """Algorithm 1, the search, with h = h_fraction alpha_0, alpha_0 = start_fraction min{...}."""
    big = smoothness
    b = (1 + 2 / tau) ** (2 * tau - 2)
    alpha = start_fraction * min(
        1 / (2 * tau * big), mu**2 / (2 * tau * b * big**3), mu / (5 * tau * b * big**2)
    )
    h = h_fraction * alpha
    while (
        1 - tau * mu * alpha + tau * big**2 * (tau * alpha - 2 / mu) * b * alpha > 0
        and (1 - tau * big * alpha) * tau * mu * alpha
        + tau**3 * big**4 * (tau * alpha - 2 / mu) * b * alpha**3
        > 0
    ):
        alpha = alpha + h
    return alpha - h


def fedcet_weight(mu, alpha):
    """The largest weight of Algorithm 2: c = mu / (2 mu alpha + 8)."""
    return mu / (2 * mu * alpha + 8)


# ------------------------------------------------------------------------------------------ DANE
# and DANE+, paper 001
def dane(fed, x0, rounds, *, lam):
    """DANE: control variate (1), exact local solutions, standard averaging."""
    x = np.array(x0, float)
    points = [x.copy()]
    for _ in range(rounds):
        g = [fed.grad(i, x) for i in range(fed.N)]
        h = [g[i] - mean(g) for i in range(fed.N)]  # (1)
        x = mean([fed.solve(i, h[i] + lam * x, lam) for i in range(fed.N)])
        points.append(x.copy())
    return np.stack(points)


def dane_plus(
    fed,
    x0,
    rounds,
    *,
    lam,
    solver="gd",
    mu=0.0,
    smoothness=None,
    control="anchor",
    m=None,
    h0=None,
    average="avg",
    picks=None,
    steps=None,
    max_steps=10_000,
    trace=None,
):
    """Algorithm 1 (DANE+). solver gd | fgd | exact; control "anchor" (1) or "dual" (B.82); average
    "avg" | "rand".

    Local solvers start at x^r and stop at the first iterate, after at least one step, that meets
    Corollary 5:
    |grad F(y)|^2 <= lam (mu+lam) / (8 (r+1)(r+2)) |y - x^r|^2, or after max_steps; ``steps`` fixes
    the count instead.
    """
    n = fed.N
    x = np.array(x0, float)
    h = np.zeros((n, fed.d)) if h0 is None else np.array(h0, float)
    points = [x.copy()]
    for r in range(rounds):
        if control == "anchor":
            g = [fed.grad(i, x) for i in range(n)]
            h = np.stack([g[i] - mean(g) for i in range(n)])  # (1)
        xi = np.empty((n, fed.d))
        counts = np.zeros(n)
        for i in range(n):
            if solver == "exact":
                xi[i] = fed.solve(i, h[i] + lam * x, lam)
                continue

            def grad_f(y, i=i):
                return fed.grad(i, y) - h[i] + lam * (y - x)  # noqa: B023

            q = np.sqrt((mu + lam) / (smoothness + lam))
            y, v = x.copy(), x.copy()
            while True:
                if solver == "gd":
                    y = y - grad_f(y) / (smoothness + lam)
                else:
                    y_new = v - grad_f(v) / (smoothness + lam)
                    v = y_new + (1 - q) / (1 + q) * (y_new - y)
                    y = y_new
                counts[i] += 1
                if steps is not None:
                    if counts[i] >= steps:
                        break
                elif counts[i] >= max_steps or np.sum(grad_f(y) ** 2) <= lam * (mu + lam) / (
                    8 * (r + 1) * (r + 2)
                ) * np.sum((y - x) ** 2):
                    break
            xi[i] = y
        x = mean(xi) if average == "avg" else xi[picks[r]].copy()
        note(trace, x=x, x_local=xi, h=h, steps=counts)
        if control == "dual":
            h = np.stack([m * (x - xi[i]) + h[i] for i in range(n)])  # (B.82)
        points.append(x.copy())
    return np.stack(points)


# ------------------------------------------------------------------------------------------------
# FedRed, paper 001
def _fedred(fed, x0, coins, local, control, m, h0, average, picks, reset_local, x_local, trace):
    """Algorithm 2 with the local rule ``local(i, x_ik, xtilde_k, h_ik)``."""
    n = fed.N
    xt = np.array(x0, float)
    x = _per_client(fed, xt if x_local is None else x_local)
    h = np.zeros((n, fed.d)) if h0 is None else np.array(h0, float)
    points = [xt.copy()]
    for coin in coins:
        if control == "anchor":
            g = [fed.grad(i, xt) for i in range(n)]
            h = np.stack([g[i] - mean(g) for i in range(n)])  # (4)
        x = np.stack([local(i, x[i], xt, h[i]) for i in range(n)])
        if coin:
            xt = mean(x) if average == "avg" else x[picks[len(points) - 1]].copy()
            if control == "dual":
                h = np.stack(
                    [m * (xt - x[i]) + h[i] for i in range(n)]
                )  # (B.116), m_k = 0 without communication
            points.append(xt.copy())
        note(trace, x=x, x_tilde=xt, h=h)
        if coin and reset_local:
            x = _per_client(fed, xt)
    return np.stack(points)


def fedred(
    fed,
    x0,
    coins,
    *,
    eta,
    lam,
    control="anchor",
    m=None,
    h0=None,
    average="avg",
    picks=None,
    reset_local=False,
    x_local=None,
    trace=None,
):
    """Algorithm 2 (FedRed, exact local solver), one coin for all clients; returns the xtilde."""

    def local(i, xi, xt, hi):
        return fed.solve(i, hi + eta * xi + lam * xt, eta + lam)

    return _fedred(
        fed, x0, coins, local, control, m, h0, average, picks, reset_local, x_local, trace
    )


def fedred_gd(
    fed,
    x0,
    coins,
    *,
    eta,
    lam,
    control="anchor",
    m=None,
    h0=None,
    average="avg",
    picks=None,
    reset_local=False,
    x_local=None,
    trace=None,
):
    """Algorithm 3 (FedRed-GD) in its closed form; control "anchor" (4) or "dual" (B.116) with m_k =
    m at coins.
    """

    def local(i, xi, xt, hi):
        return (
            eta / (eta + lam) * xi
            + lam / (eta + lam) * xt
            - 1 / (eta + lam) * (fed.grad(i, xi) - hi)
        )

    return _fedred(
        fed, x0, coins, local, control, m, h0, average, picks, reset_local, x_local, trace
    )
