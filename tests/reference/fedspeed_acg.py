"""FedSpeed (paper 003, Algorithm 1) and FedACG (paper 002, appendix D and the authors' code)."""

import numpy as np

from .problem import at, cohort_of, mean, note, steps_of


def fedspeed(
    fed,
    x0,
    rounds,
    *,
    eta_l=None,
    lam,
    rho=0.0,
    alpha=1.0,
    steps=None,
    cohorts=None,
    server_dual="active",
    correction=True,
    normalise=False,
    eps=1e-7,
    ghat0=None,
    trace=None,
):
    """Algorithm 1, lines 4-16; steps=None solves the (unperturbed) local problem exactly.

    normalise: rho_k = rho / (|g1| + eps) as in the experiments. correction=False: ghat = 0 and
    upload x_K (Table 7);
    together with lam=inf this is FedAvg. server_dual: "active" = line 16, "all" = mean_S x_K - lam
    mean_N ghat (code).
    """
    x = np.array(x0, float)
    ghat = np.zeros((fed.N, fed.d)) if ghat0 is None else np.array(ghat0, float)
    points = [x.copy()]
    for t in range(rounds):
        members = cohort_of(fed, cohorts, t)
        ends, uploads, quasi = [], [], []
        before = ghat.copy()
        for i in members:
            xi = x.copy()  # line 4
            record = []
            if steps is None:
                assert rho == 0.0 or alpha == 0.0
                xi = fed.solve(i, ghat[i] + x / lam, 1 / lam)
            for _ in range(0 if steps is None else steps_of(steps, i)):
                g1 = fed.grad(i, xi)  # line 7
                rho_k = rho / (np.linalg.norm(g1) + eps) if normalise else rho
                ascent = xi + rho_k * g1  # line 8
                g2 = fed.grad(i, ascent)  # line 9
                gt = (1 - alpha) * g1 + alpha * g2  # line 10
                record.append(gt)
                xi = xi - at(eta_l, t) * (gt - ghat[i] + 1 / lam * (xi - x))  # line 11
            if correction:
                ghat[i] = ghat[i] - 1 / lam * (xi - x)  # line 13
                uploads.append(xi - lam * ghat[i])  # line 14
            else:
                uploads.append(xi)
            ends.append(xi)
            quasi.append(record)
        x_new = mean(uploads)  # line 16
        if correction and server_dual == "all":
            x_new = mean(ends) - lam * mean(ghat)
        if trace is not None:
            trace.append(
                {
                    "x": x.copy(),
                    "ends": np.stack(ends),
                    "before": before,
                    "after": ghat.copy(),
                    "g": quasi,
                }
            )
        x = x_new
        points.append(x.copy())
    return np.stack(points)


def fedacg(fed, x0, rounds, *, eta, lam, beta=0.0, steps, cohorts=None, trace=None):
    """FedACG: K steps from phi = theta + lam m; m = lam m + Delta; theta += m."""
    theta = np.array(x0, float)
    m = np.zeros(fed.d)
    points = [theta.copy()]
    for t in range(rounds):
        members = cohort_of(fed, cohorts, t)
        phi = theta + lam * m
        ends = []
        for i in members:
            xi = phi.copy()
            for _ in range(steps_of(steps, i)):
                xi = xi - at(eta, t) * (fed.grad(i, xi) + beta * (xi - phi))
            ends.append(xi)
        delta = mean([xi - phi for xi in ends])
        m = lam * m + delta
        theta = theta + m
        note(trace, phi=phi, m=m, ends=np.stack(ends))
        points.append(theta.copy())
    return np.stack(points)
