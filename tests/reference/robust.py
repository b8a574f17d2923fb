"""Robust reductions of rows, written out with loops; no code of ours."""

import math

import numpy as np


def mean(rows):
    return sum(rows) / len(rows)


def median(rows):
    """Yin et al., ICML 2018, Definition 1."""
    return np.array([np.median([row[k] for row in rows]) for k in range(len(rows[0]))])


def trimmed_mean(rows, cut):
    """Yin et al., ICML 2018, Definition 2, without ``cut`` values at either end."""
    n, found = len(rows), []
    for k in range(len(rows[0])):
        values = sorted(row[k] for row in rows)
        found.append(math.fsum(values[cut : n - cut]) / (n - 2 * cut))
    return np.array(found)


def krum_order(rows, f):
    """Clients by Blanchard et al.'s score: squared distances to the n - f - 2 closest others."""
    n, scores = len(rows), []
    for i in range(n):
        others = sorted(float(np.sum((rows[i] - rows[j]) ** 2)) for j in range(n) if j != i)
        scores.append(math.fsum(others[: n - f - 2]))
    return sorted(range(n), key=lambda i: (scores[i], i))


def krum(rows, f):
    """Blanchard et al., NeurIPS 2017."""
    return rows[krum_order(rows, f)[0]]


def multi_krum(rows, f, m):
    return mean([rows[i] for i in krum_order(rows, f)[:m]])


def weiszfeld(rows, start, nu, iterations):
    """Pillutla et al., IEEE Transactions on Signal Processing 2022: smoothed Weiszfeld steps.

    ``nu`` is a share of the median distance from the start, the lower of two.
    """
    v = np.array(start, float)
    nu = nu * sorted(math.dist(v, row) for row in rows)[(len(rows) - 1) // 2]
    for _ in range(iterations):
        beta = [1 / max(nu, math.dist(v, row)) for row in rows]
        v = sum(b * row for b, row in zip(beta, rows, strict=True)) / sum(beta)
    return v


def clip(v, tau):
    size = math.sqrt(math.fsum(float(c) ** 2 for c in v))
    return v * min(1.0, tau / size) if size else v


def centred_clipping(rows, v, tau, iterations):
    """Karimireddy, He and Jaggi, ICML 2021: v + mean_i clip(x_i - v, tau), repeated."""
    for _ in range(iterations):
        v = v + mean([clip(row - v, tau) for row in rows])
    return v


def norm_clipping(rows, tau, weights=None):
    weights = [1.0] * len(rows) if weights is None else weights
    total = sum(weights)
    return sum(w / total * clip(row, tau) for w, row in zip(weights, rows, strict=True))


def fedavg(fed, x0, rounds, *, eta_l, steps, reduce):
    """FedAvg whose mean move is that of ``reduce(moves, last)``; ``last`` starts at 0."""
    x, last = np.array(x0, float), np.zeros(fed.d)
    points = [x.copy()]
    for _ in range(rounds):
        moves = []
        for i in range(fed.N):
            y = x.copy()
            for _ in range(steps):
                y = y - eta_l * fed.grad(i, y)
            moves.append(y - x)
        last = reduce(moves, last)
        x = x + last
        points.append(x.copy())
    return np.stack(points)


def fedlin(fed, x0, rounds, *, eta, steps, reduce):
    """FedLin: gradients at x, then local models as moves from x, each reduced by itself."""
    x, last = np.array(x0, float), {"g": np.zeros(fed.d), "y": np.zeros(fed.d)}
    points = [x.copy()]
    for _ in range(rounds):
        grads = [fed.grad(i, x) for i in range(fed.N)]
        last["g"] = reduce(grads, last["g"])
        moves = []
        for i in range(fed.N):
            y = x.copy()
            for _ in range(steps):
                y = y - eta * (fed.grad(i, y) - grads[i] + last["g"])
            moves.append(y - x)
        last["y"] = reduce(moves, last["y"])
        x = x + last["y"]
        points.append(x.copy())
    return np.stack(points)


def mimelite(fed, x0, rounds, *, eta, beta, steps, reduce):
    """MimeLite, whose moves and gradients at x are one upload of twice the length."""
    x, m, last = np.array(x0, float), np.zeros(fed.d), np.zeros(2 * fed.d)
    points = [x.copy()]
    for _ in range(rounds):
        uploads = []
        for i in range(fed.N):
            y = x.copy()
            for _ in range(steps):
                y = y - eta * ((1 - beta) * fed.grad(i, y) + beta * m)
            uploads.append(np.concatenate([y - x, fed.grad(i, x)]))
        last = reduce(uploads, last)
        x, m = x + last[: fed.d], (1 - beta) * last[fed.d :] + beta * m
        points.append(x.copy())
    return np.stack(points)
