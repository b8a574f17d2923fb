"""Drift correction, primal-dual and gradient-tracking baselines, one explicit loop each."""

import numpy as np

from .problem import at, cohort_of, mean, note, steps_of
from .variance import ce_lgd, inexact_dane, mime, mimelite, mimemvr, sonata, svrp  # noqa: F401


def _zeros(fed, start=None):
    return np.zeros((fed.N, fed.d)) if start is None else np.array(start, float)


def scaffold(
    fed, x0, rounds, *, eta_l, steps, eta_g=1.0, option="II", cohorts=None, ci0=None, trace=None
):
    """SCAFFOLD, option I or II; c = mean_N c_i at the start."""
    x = np.array(x0, float)
    ci = _zeros(fed, ci0)
    c = mean(ci)
    points = [x.copy()]
    for t in range(rounds):
        members = cohort_of(fed, cohorts, t)
        eta = at(eta_l, t)
        ends, change, local_mean = [], np.zeros(fed.d), []
        for i in members:
            y = x.copy()
            k_i = steps_of(steps, i)
            seen = []
            for _ in range(k_i):
                seen.append(fed.grad(i, y))
                y = y - eta * (seen[-1] - ci[i] + c)
            new = fed.grad(i, x) if option == "I" else ci[i] - c + (x - y) / (k_i * eta)
            change = change + (new - ci[i])
            ci[i] = new
            ends.append(y)
            local_mean.append(mean(seen))
        x = x + eta_g * mean([y - x for y in ends])
        c = c + change / fed.N
        note(trace, c=c, ci=ci, local_mean=local_mean, members=members)
        points.append(x.copy())
    return np.stack(points)


def scaffold_m(
    fed, x0, rounds, *, eta_l, gamma, beta, steps, cohorts=None, ci0=None, freeze=False, trace=None
):
    """SCAFFOLD-M; ``freeze`` keeps c = c_i = 0, which is FedCM."""
    x = np.array(x0, float)
    ci = _zeros(fed, ci0)
    c = mean(ci)
    g = np.zeros(fed.d)
    k_local = int(steps)
    points = [x.copy()]
    for t in range(rounds):
        eta = at(eta_l, t)
        ends, change = [], np.zeros(fed.d)
        for i in cohort_of(fed, cohorts, t):
            y = x.copy()
            seen = []
            for _ in range(k_local):
                seen.append(fed.grad(i, y))
                y = y - eta * (beta * (seen[-1] - ci[i] + c) + (1 - beta) * g)
            if not freeze:
                change = change + (mean(seen) - ci[i])
                ci[i] = mean(seen)
            ends.append(y)
        g = mean([x - y for y in ends]) / (eta * k_local)
        x = x - gamma * g
        c = c + change / fed.N
        note(trace, c=c, ci=ci, g=g)
        points.append(x.copy())
    return np.stack(points)


def top_k(u, k):
    """C_delta: keep the k entries of largest magnitude."""
    out = np.zeros_like(u)
    keep = np.argsort(-np.abs(u), kind="stable")[:k]
    out[keep] = u[keep]
    return out


def fedlin(
    fed,
    x0,
    rounds,
    *,
    eta=None,
    tau,
    eta_bar=None,
    k_client=None,
    k_server=None,
    g0=None,
    trace=None,
):
    """FedLin; eta is a float or a list per client, or eta_bar gives eta_i = eta_bar/tau_i; tau int
    or list.

    k_client / k_server: entries kept by the top-k operators with error feedback on the gradient
    exchange (None: all).
    """
    n = fed.N
    x = np.array(x0, float)
    rho, e = np.zeros((n, fed.d)), np.zeros(fed.d)
    g = mean([fed.grad(i, x) for i in range(n)]) if g0 is None else np.array(g0, float)
    points = [x.copy()]
    for _ in range(rounds):
        ends, paths = [], []
        for i in range(n):
            eta_i = eta_bar / steps_of(tau, i) if eta_bar is not None else at(eta, i)
            xi = x.copy()
            path = [xi]
            for _ in range(steps_of(tau, i)):
                xi = xi - eta_i * (fed.grad(i, xi) - fed.grad(i, x) + g)
                path.append(xi)
            ends.append(xi)
            paths.append(path)
        x = mean(ends)
        sent = []
        for i in range(n):
            u = rho[i] + fed.grad(i, x)
            sent.append(u if k_client is None else top_k(u, k_client))
            rho[i] = u - sent[-1]
        u = e + mean(sent)
        g = u if k_server is None else top_k(u, k_server)
        e = u - g
        if trace is not None:
            trace.append({"paths": paths, "g": g.copy(), "rho": rho.copy(), "e": e.copy()})
        points.append(x.copy())
    return np.stack(points)


def fedtrack(fed, x0, rounds, *, eta, tau, zero_first=False):
    """FedTrack as both papers ran it: FedLin; ``zero_first``: g = 0 in round 1 (the codes)."""
    return fedlin(fed, x0, rounds, eta=eta, tau=tau, g0=np.zeros(fed.d) if zero_first else None)


def scaffnew(fed, x0, coins, *, gamma, p, x_local=None, h0=None, trace=None):
    """Scaffnew, one coin per iteration; returns x0 and the point after every communication."""
    n = fed.N
    x = np.array(np.broadcast_to(np.asarray(x0 if x_local is None else x_local, float), (n, fed.d)))
    h = _zeros(fed, h0)
    points = [np.array(x0, float)]
    for coin in coins:
        xhat = np.stack([x[i] - gamma * (fed.grad(i, x[i]) - h[i]) for i in range(n)])
        x = np.stack([mean(xhat) if coin else xhat[i] for i in range(n)])
        h = np.stack([h[i] + p / gamma * (x[i] - xhat[i]) for i in range(n)])
        note(trace, x=x, h=h)
        if coin:
            points.append(x[0].copy())
    return np.stack(points)


def extra_local(fed, x0, rounds, *, alpha, tau, trace=None):
    """Paper 000, Remark 4; returns the means of X(k tau)."""
    eye, average = np.eye(fed.N), np.full((fed.N, fed.N), 1 / fed.N)
    x_old = np.array(np.broadcast_to(np.asarray(x0, float), (fed.N, fed.d)))
    g_old = np.stack([fed.grad(i, x_old[i]) for i in range(fed.N)])
    x = x_old - alpha * g_old
    points = [x_old[0].copy()]
    if tau == 1 and rounds:
        points.append(x.mean(axis=0))
    note(trace, x=x)
    for t in range(1, rounds * tau):
        w = average if (t + 1) % tau == 0 else eye
        g = np.stack([fed.grad(i, x[i]) for i in range(fed.N)])
        x_new = (w + eye) / 2 @ (2 * x - x_old) - alpha * g + alpha * g_old
        x_old, g_old, x = x, g, x_new
        note(trace, x=x)
        if (t + 1) % tau == 0:
            points.append(x.mean(axis=0))
    return np.stack(points)


def extra_dual(fed, x0, rounds, *, alpha, tau, trace=None):
    """Paper 000 (6): Y+ = Y + (I-W){X - alpha grad(X(t-1)) - alpha Y}/(2 alpha); X+ = X -
    alpha(grad(X) + Y+).

    ``alpha`` may be given per iteration, the t-th making X(t): Y+ looks back at X(t), so it takes
    the one that made it.
    """
    eye, average = np.eye(fed.N), np.full((fed.N, fed.N), 1 / fed.N)
    x = np.array(np.broadcast_to(np.asarray(x0, float), (fed.N, fed.d)))
    g_old = np.stack([fed.grad(i, x[i]) for i in range(fed.N)])
    points = [x[0].copy()]
    x = x - at(alpha, 1) * g_old
    y = np.zeros_like(x)  # Y(1) by its definition
    if tau == 1 and rounds:
        points.append(x.mean(axis=0))
    for t in range(1, rounds * tau):
        w = average if (t + 1) % tau == 0 else eye
        g = np.stack([fed.grad(i, x[i]) for i in range(fed.N)])
        past, step = at(alpha, t), at(alpha, t + 1)
        y = y + (eye - w) @ (x - past * g_old - past * y) / (2 * past)
        x = x - step * g - step * y
        g_old = g
        note(trace, x=x, y=y)
        if (t + 1) % tau == 0:
            points.append(x.mean(axis=0))
    return np.stack(points)


def feddyn(fed, x0, rounds, *, eta_l=None, alpha, steps=None, cohorts=None, trace=None):
    """FedDyn: K steps on f_i(y) - <d_i, y> + (alpha/2)|y - x|^2 (None: its minimiser)."""
    x = np.array(x0, float)
    dual, h = _zeros(fed), np.zeros(fed.d)
    points = [x.copy()]
    for t in range(rounds):
        members = cohort_of(fed, cohorts, t)
        ends = []
        for i in members:
            y = x.copy() if steps is not None else fed.solve(i, dual[i] + alpha * x, alpha)
            for _ in range(0 if steps is None else steps_of(steps, i)):
                y = y - at(eta_l, t) * (fed.grad(i, y) - dual[i] + alpha * (y - x))
            dual[i] = dual[i] - alpha * (y - x)
            ends.append(y)
        h = h - alpha / fed.N * sum(y - x for y in ends)
        x = mean(ends) - h / alpha
        note(trace, d=dual, h=h, ends=ends)
        points.append(x.copy())
    return np.stack(points)


def feddc(
    fed,
    x0,
    rounds,
    *,
    eta_l,
    alpha,
    steps,
    cohorts=None,
    variant="code",
    drift=True,
    eta_norm=None,
    trace=None,
):
    """FedDC. variant "code": g_i+ = g_i - g - D/(K eta); "paper": g_i+ = -D/(K eta). drift=False
    keeps h_i = 0.

    eta in the normalisation is eta_norm, by default the first round's eta_l (the authors' code).
    """
    x = np.array(x0, float)
    h, gi, g = _zeros(fed), _zeros(fed), np.zeros(fed.d)
    eta_norm = at(eta_l, 0) if eta_norm is None else eta_norm
    points = [x.copy()]
    for t in range(rounds):
        ends, change = [], np.zeros(fed.d)
        for i in cohort_of(fed, cohorts, t):
            y = x.copy()
            k_i = steps_of(steps, i)
            for _ in range(k_i):
                y = y - at(eta_l, t) * (fed.grad(i, y) + alpha * (y - (x - h[i])) + (g - gi[i]))
            moved = y - x
            if drift:
                h[i] = h[i] + moved
            new = -moved / (k_i * eta_norm) + (gi[i] - g if variant == "code" else 0.0)
            change = change + (new - gi[i])
            gi[i] = new
            ends.append(y)
        g = g + change / fed.N
        x = mean(ends) + mean(h)
        note(trace, h=h, gi=gi, g=g)
        points.append(x.copy())
    return np.stack(points)


def fedpd(
    fed,
    x0,
    rounds,
    *,
    eta,
    eta1=None,
    steps=None,
    coins=None,
    start="own",
    oracle="I",
    gamma=None,
    period=1,
    sampled=None,
    trace=None,
):
    """FedPD; oracle I: Q steps of size eta1 on L_i (None: exact minimiser), II: Algorithm 4 with I
    = period.

    coins (one per round, True = communicate, probability 1 - p); returns x0 and the points after
    each communication.
    start: "own" = the client's previous x_i (paper), "server" = x_{0,i} (FedSpeed's comparison).
    sampled(i, x, r, q): gradient of f_i on the mini-batch of local step q of round r, for oracle
    II; exact if absent.
    """
    n = fed.N
    xi = np.array(np.broadcast_to(np.asarray(x0, float), (n, fed.d)))
    x0i, lam, carried = xi.copy(), _zeros(fed), _zeros(fed)
    sampled = sampled or (lambda i, x, r, q: fed.grad(i, x))
    points = [np.array(x0, float)]
    for r in range(rounds):
        plus = np.empty_like(xi)
        for i in range(n):
            y = xi[i].copy() if start == "own" else x0i[i].copy()
            if steps is None:
                y = fed.solve(i, -lam[i] + x0i[i] / eta, 1 / eta)
            if oracle == "II" and r % period == 0:
                carried[i] = fed.grad(i, y)
            for q in range(0 if steps is None else steps_of(steps, i)):
                if oracle == "I":
                    y = y - eta1 * (fed.grad(i, y) + lam[i] + (y - x0i[i]) / eta)
                else:
                    old, g = y, carried[i]
                    y = (eta * y + gamma * x0i[i]) / (eta + gamma) - eta * gamma / (eta + gamma) * (
                        g + lam[i]
                    )
                    carried[i] = g + sampled(i, y, r, q) - sampled(i, old, r, q)
            xi[i] = y
            lam[i] = lam[i] + (y - x0i[i]) / eta
            plus[i] = y + eta * lam[i]
        if coins is None or coins[r]:
            x0i = np.stack([mean(plus) for _ in range(n)])
            points.append(x0i[0].copy())
        else:
            x0i = plus
        note(trace, x=xi, lam=lam, x0i=x0i)
    return np.stack(points)


def fedadmm(
    fed,
    x0,
    rounds,
    *,
    eta_l=None,
    rho,
    eta_g=1.0,
    steps=None,
    cohorts=None,
    server="delta",
    trace=None,
):
    """FedADMM. server "delta": theta += eta_g mean_S Delta_i (Gong et al.); "all": eta_g = |S|/N;
    "active": theta = mean_S(w_i + y_i/rho) (FedSpeed's server). steps=None solves the local problem
    exactly."""
    theta = np.array(x0, float)
    w, y = np.array(np.broadcast_to(theta, (fed.N, fed.d))), _zeros(fed)
    points = [theta.copy()]
    for t in range(rounds):
        members = cohort_of(fed, cohorts, t)
        deltas = []
        for i in members:
            v = theta.copy() if steps is not None else fed.solve(i, -y[i] + rho * theta, rho)
            for _ in range(0 if steps is None else steps_of(steps, i)):
                v = v - at(eta_l, t) * (fed.grad(i, v) + y[i] + rho * (v - theta))
            y_new = y[i] + rho * (v - theta)
            deltas.append((v + y_new / rho) - (w[i] + y[i] / rho))
            w[i], y[i] = v, y_new
        if server == "active":
            theta = mean([w[i] + y[i] / rho for i in members])
        else:
            step = len(members) / fed.N if server == "all" else eta_g
            theta = theta + step / len(members) * sum(deltas)
        note(trace, w=w, y=y, theta=theta)
        points.append(theta.copy())
    return np.stack(points)
