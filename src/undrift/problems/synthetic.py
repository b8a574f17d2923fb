"""Random problems; each is a pure function of its arguments."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from typing import Literal

import numpy as np

from undrift.problems.least_squares import LeastSquares
from undrift.problems.quadratic import Quadratic
from undrift.problems.softmax import Softmax


def random_quadratic(
    clients: int = 20,
    dim: int = 10,
    mu: float = 1.0,
    L: float = 10.0,
    heterogeneity: float = 1.0,
    spread: float = 1.0,
    seed: int = 0,
) -> Quadratic:
    """Dense Hessians with eigenvalues in [mu, L] and centres around a common one.

    ``heterogeneity`` goes from 0, equal Hessians, to 1, independent ones; either way their
    eigenvalues reach mu and L
    (in two or more dimensions). ``spread`` is the standard deviation of the centres. Both 0: all
    clients are the same.
    """
    if not mu <= L:
        raise ValueError(f"mu = {mu:g} exceeds L = {L:g}; eigenvalues are drawn between them")
    if not 0 <= heterogeneity <= 1:
        raise ValueError(f"heterogeneity = {heterogeneity:g} is not allowed: a number from 0 to 1")
    rng = np.random.default_rng(seed)
    basis, _ = np.linalg.qr(rng.standard_normal((clients + 1, dim, dim)))
    place = rng.random((clients + 1, 1, dim))
    if dim > 1:
        place[..., 0], place[..., -1] = 0, 1
    H = (basis * (mu + (L - mu) * place)) @ basis.swapaxes(1, 2)
    A = (1 - heterogeneity) * H[:1] + heterogeneity * H[1:]
    b = rng.standard_normal(dim) + spread * rng.standard_normal((clients, dim))
    return Quadratic.centred((A + A.swapaxes(1, 2)) / 2, b)


def fedred_quadratic(
    kind: Literal["strong", "convex", "nonconvex"] = "strong",
    clients: int = 5,
    components: int = 10,
    dim: int = 1000,
    seed: int = 0,
) -> Quadratic:
    """The synthetic instance of DANE+ and FedRed: diagonal A_ij of norm 100, means of clients about
    5 apart.

    * ``strong``: every A_ij has smallest eigenvalue 1.
    * ``convex``: up to 20 eigenvalues fall geometrically towards 0 and half of them are 0.
    * ``nonconvex``: A_ij are indefinite (their mean is not, or f would have no lower bound) and
    beta = 400.
    """
    if kind not in ("strong", "convex", "nonconvex"):
        raise ValueError(f"kind = {kind!r} is not allowed: 'strong', 'convex' or 'nonconvex'")
    if dim < 2:
        raise ValueError(
            f"dim = {dim} is not allowed: the smallest and the largest eigenvalue need two dimensions"
        )
    rng = np.random.default_rng(seed)
    common, noise = 110 * rng.random(dim), 18 * rng.random((clients, components, dim))
    common[-1] = 110
    if kind == "nonconvex":
        A = np.minimum(np.maximum(common, 5) + noise - 9, 100)
    else:
        if kind == "strong":
            common[0] = -18
        A = np.clip(common + noise, 1, 100)
    if kind == "convex":
        few = np.arange(min(20, dim - 1))
        kept = rng.integers(2, size=(clients, components, len(few)))
        A[..., few] *= kept * 2.0 ** (few - 20) / A[..., few].mean((0, 1))
    b = 10 * rng.random(A.shape)
    return Quadratic.centred(A, b, beta=400.0 if kind == "nonconvex" else 0.0)


def fedcet_quadratic(
    hessians: Literal["equal", "different"] = "equal",
    clients: int = 10,
    samples: int = 10,
    dim: int = 60,
    seed: int = 0,
) -> Quadratic:
    r"""FedCET's estimation problem :math:`f_i(x) = \frac1{n_i}\sum_j\|M_ix-b_{ij}\|^2+\|x\|^2`, b
    uniform on [-10, 10].

    ``equal`` is the paper's M_i = I, where L = mu = 4, x* = mean(b)/2 and the mean iterate is plain
    gradient descent:
    there is no drift to correct. ``different`` draws Gaussian M_i (mu about 2, L about 10), where
    there is.
    """
    if hessians not in ("equal", "different"):
        raise ValueError(f"hessians = {hessians!r} is not allowed: 'equal' or 'different'")
    rng = np.random.default_rng(seed)
    b = rng.uniform(-10, 10, (clients, samples, dim))
    c = (b * b).sum(-1)
    if hessians == "equal":
        return Quadratic(np.full_like(b, 4), 2 * b, c)
    M = rng.standard_normal((clients, dim, dim)) / np.sqrt(dim)
    H = 2 * (M.swapaxes(1, 2) @ M + np.eye(dim))
    return Quadratic(np.repeat(H[:, None], samples, axis=1), 2 * b @ M, c)


def random_least_squares(
    clients: int = 20, rows: int = 50, dim: int = 10, seed: int = 0
) -> LeastSquares:
    """FedRecu's least squares: entries uniform on [0, 1]."""
    rng = np.random.default_rng(seed)
    return LeastSquares(rng.random((clients, rows, dim)), rng.random((clients, rows)))


def fedprox_softmax(
    clients: int = 30,
    samples: int = 50,
    features: int = 60,
    classes: int = 10,
    alpha: float = 1.0,
    beta: float = 1.0,
    sizes: Literal["equal", "lognormal"] = "equal",
    l2: float | None = None,
    seed: int = 0,
) -> Softmax:
    """FedProx's Synthetic(alpha, beta): samples labelled by a softmax model of each client's own.

    Client k's weights and bias for class c are from N(u_kc, 1), its features from N(v_k,
    diag(j^-1.2)), the entries of
    v_k from N(B_k, 1). ``alpha`` and ``beta`` are the standard deviations of u_kc and B_k.
    FedProx's code has one u_k
    for all classes, which changes no label: a softmax ignores what all classes share. Clients have
    ``samples`` each,
    or, ``lognormal`` as in that code, as many and exp(N(4, 2^2)) more. Features are rounded to
    float32.
    """
    if sizes not in ("equal", "lognormal"):
        raise ValueError(f"sizes = {sizes!r} is not allowed: 'equal' or 'lognormal'")
    counts = np.full(clients, samples)
    if sizes == "lognormal":
        counts += np.random.default_rng(seed).lognormal(4, 2, clients).astype(np.int64)
    ends = np.cumsum(counts)
    deviation = np.arange(1, features + 1, dtype=np.float32) ** -0.6
    x, labels = np.empty((ends[-1], features), dtype=np.float32), np.empty(ends[-1], dtype=np.int64)

    def draw(some: slice) -> None:
        """Fill in the samples of some clients."""
        rng, held = np.random.default_rng((seed, some.start)), counts[some]
        mine = slice(ends[some.start] - held[0], ends[some.start] - held[0] + held.sum())
        u, B = (
            alpha * rng.standard_normal((len(held), 1, classes)),
            beta * rng.standard_normal((len(held), 1)),
        )
        models = u + rng.standard_normal((len(held), features + 1, classes))
        centres = B + rng.standard_normal((len(held), features))
        rng.standard_normal(dtype=np.float32, out=x[mine])
        x[mine] *= deviation
        x[mine] += np.repeat(centres.astype(np.float32), held, axis=0)
        rows = np.split(x[mine].astype(np.float64), np.cumsum(held)[:-1])
        scores = [a @ model[:-1] + model[-1] for a, model in zip(rows, models, strict=True)]
        labels[mine] = np.concatenate(scores).argmax(1)

    with ThreadPoolExecutor(os.cpu_count()) as pool:
        list(pool.map(draw, [slice(k, k + 500) for k in range(0, clients, 500)]))
    return Softmax(x, labels, np.split(np.arange(ends[-1]), ends[:-1]), l2, classes)
