"""The losses sample by sample in NumPy, for a network of tanh layers, without padding."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import numpy as np

Layers = list[tuple[np.ndarray, np.ndarray]]


@dataclass
class Place:
    """A client's batch and what it may look at; ``received`` and ``previous`` are weights."""

    x: np.ndarray
    labels: np.ndarray
    received: np.ndarray
    previous: np.ndarray
    counts: np.ndarray
    widths: tuple[int, ...]

    def layers(self, weights: np.ndarray) -> Layers:
        out, at = [], 0
        for inner, outer in pairwise(self.widths):
            matrix = weights[at : at + inner * outer].reshape(outer, inner)
            at += inner * outer
            out.append((matrix, weights[at : at + outer]))
            at += outer
        return out


def run(layers: Layers, h: np.ndarray) -> np.ndarray:
    """tanh after all of them but the head, which is the last."""
    for matrix, shift in layers[:-1]:
        h = np.tanh(matrix @ h + shift)
    matrix, shift = layers[-1]
    return matrix @ h + shift


def taps(layers: Layers, x: np.ndarray) -> list[np.ndarray]:
    out = []
    for matrix, shift in layers[:-1]:
        out.append(x := np.tanh(matrix @ x + shift))
    return out


def softmax(s):
    return np.exp(s) / np.exp(s).sum()


def cross_entropy(s, label):
    return -np.log(softmax(s)[label])


def divergence(p, q):
    return sum(a * np.log(a / b) for a, b in zip(p, q, strict=True))


def cosine(a, b):
    return a @ b / np.sqrt(a @ a) / np.sqrt(b @ b)


def plain(_, weights, at: Place):
    net = at.layers(weights)
    return np.mean([cross_entropy(run(net, x), y) for x, y in zip(at.x, at.labels, strict=True)])


def moon(objective, weights, at: Place):
    nets = [at.layers(w) for w in (weights, at.received, at.previous)]
    total = 0.0
    for x, y in zip(at.x, at.labels, strict=True):
        z, z_global, z_previous = (taps(net, x)[-1] for net in nets)
        near, far = (np.exp(cosine(z, other) / objective.tau) for other in (z_global, z_previous))
        total += cross_entropy(run(nets[0], x), y) - objective.mu * np.log(near / (near + far))
    return total / len(at.x)


def fedmlb(objective, weights, at: Place):
    here, there = at.layers(weights), at.layers(at.received)
    total = 0.0
    for x, y in zip(at.x, at.labels, strict=True):
        own = run(here, x)
        total += objective.lam1 * cross_entropy(own, y)
        levels = len(here) - 1
        for level in range(levels):
            hybrid = run(here[: level + 1] + there[level + 1 :], x)
            apart = divergence(softmax(hybrid / objective.T), softmax(own / objective.T))
            total += (objective.lam2 * cross_entropy(hybrid, y) + objective.lam3 * apart) / levels
    return total / len(at.x)


def fedlc(objective, weights, at: Place):
    net = at.layers(weights)
    total = 0.0
    for x, y in zip(at.x, at.labels, strict=True):
        s = run(net, x)
        kept = [s[c] - objective.tau * n ** (-1 / 4) for c, n in enumerate(at.counts) if n > 0]
        total += cross_entropy(np.array(kept), int((at.counts[:y] > 0).sum()))
    return total / len(at.x)


def fedntd(objective, weights, at: Place):
    here, there = at.layers(weights), at.layers(at.received)
    total = 0.0
    for x, y in zip(at.x, at.labels, strict=True):
        s, r = (np.delete(run(net, x), y) / objective.tau for net in (here, there))
        own, forgotten = cross_entropy(run(here, x), y), divergence(softmax(r), softmax(s))
        if objective.form == "mix":
            total += (1 - objective.beta) * own + objective.beta * forgotten
        else:
            total += own + objective.beta * objective.tau**2 * forgotten
    return total / len(at.x)


def feddecorr(objective, weights, at: Place):
    net = at.layers(weights)
    z = np.stack([taps(net, x)[-1] for x in at.x])
    n, d = z.shape
    if n == 1:
        return plain(objective, weights, at)
    z = (z - z.mean(0)) / np.sqrt(z.var(0, ddof=1) + 1e-8)
    r = z.T @ z
    squares = [r[a, b] ** 2 for a in range(d) for b in range(d) if a != b]
    return plain(objective, weights, at) + objective.beta * np.mean(squares) / n
