"""Small problems of every kind, each with its definition as a plain loop over samples."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch

from undrift.core.problem import Problem
from undrift.problems import LeastSquares, Logistic, Quadratic, Ridge, Softmax


@dataclass
class Case:
    problem: Problem
    sample: Callable
    """(client, sample, x) -> its term of f_i, in torch; f_i is the mean of its terms."""
    convex: bool = True

    def value(self, client: int, x: torch.Tensor) -> torch.Tensor:
        terms = [self.sample(client, j, x) for j in range(self.problem.samples[client])]
        return sum(terms) / len(terms)

    def grad(self, client: int, x: torch.Tensor, samples: list[int] | None = None) -> torch.Tensor:
        """By automatic differentiation, on all or some samples."""
        x = x.detach().double().requires_grad_()
        chosen = range(self.problem.samples[client]) if samples is None else samples
        total = sum(self.sample(client, j, x) for j in chosen) / len(chosen)
        return torch.autograd.grad(total, x)[0]

    def grads(self, y: torch.Tensor) -> torch.Tensor:
        return torch.stack([self.grad(i, y[i]) for i in range(self.problem.clients)])


def _symmetric(rng, *shape):
    A = rng.standard_normal(shape)
    return A @ A.swapaxes(-1, -2) / shape[-1] + 0.1 * np.eye(shape[-1])


def dense() -> Case:
    rng = np.random.default_rng(1)
    A, q, c = _symmetric(rng, 4, 3, 3), rng.standard_normal((4, 3)), rng.standard_normal(4)
    return Case(Quadratic(A, q, c), lambda i, j, x: 0.5 * x @ _t(A[i]) @ x - _t(q[i]) @ x + c[i])


def dense_components(beta: float = 0.0) -> Case:
    rng = np.random.default_rng(2)
    A, b = _symmetric(rng, 4, 5, 3, 3), rng.standard_normal((4, 5, 3))

    def sample(i, j, x):
        e = x - _t(b[i, j])
        return 0.5 * e @ _t(A[i, j]) @ e + beta * (x**2 / (1 + x**2)).sum()

    return Case(Quadratic.centred(A, b, beta=beta), sample, convex=not beta)


def diagonal() -> Case:
    rng = np.random.default_rng(3)
    A, q = rng.uniform(0.5, 3, (4, 6)), rng.standard_normal((4, 6))
    return Case(
        Quadratic(A, q, 2.0), lambda i, j, x: (0.5 * _t(A[i]) * x * x - _t(q[i]) * x).sum() + 2.0
    )


def diagonal_components(beta: float = 0.0) -> Case:
    rng = np.random.default_rng(4)
    A, b = rng.uniform(0.5, 3, (3, 4, 5)), rng.standard_normal((3, 4, 5))

    def sample(i, j, x):
        return (0.5 * _t(A[i, j]) * (x - _t(b[i, j])) ** 2 + beta * x**2 / (1 + x**2)).sum()

    return Case(Quadratic.centred(A, b, beta=beta), sample, convex=not beta)


def least_squares(rows: int = 7, dim: int = 3) -> Case:
    rng = np.random.default_rng(5)
    A, b = rng.standard_normal((4, rows, dim)), rng.standard_normal((4, rows))
    return Case(LeastSquares(A, b), lambda i, j, x: rows * 0.5 * (_t(A[i, j]) @ x - b[i, j]) ** 2)


def ridge(sizes: tuple[int, ...] = (3, 8, 5), l2: float | None = None) -> Case:
    rng = np.random.default_rng(8)
    total = sum(sizes)
    a, b = rng.standard_normal((total, 3)), rng.standard_normal(total)
    parts = np.split(rng.permutation(total), np.cumsum(sizes)[:-1])
    weight = 1 / total if l2 is None else l2

    def sample(i, j, x):
        k = parts[i][j]
        return 0.5 * (_t(a[k]) @ x - b[k]) ** 2 + weight / 2 * (x @ x)

    return Case(Ridge(a, b, parts, l2), sample)


def logistic(sizes: tuple[int, ...] = (3, 8, 5), l2: float | None = None) -> Case:
    rng = np.random.default_rng(6)
    total, clients = sum(sizes), len(sizes)
    a, y = 2 * rng.standard_normal((total, 4)), rng.choice([-1.0, 1.0], total)
    parts = np.split(rng.permutation(total), np.cumsum(sizes)[:-1])
    ridge = 1 / total if l2 is None else l2

    def sample(i, j, x):
        k = parts[i][j]
        margin = y[k] * (_t(a[k]) @ x)
        return clients / total * sizes[i] * torch.log1p(torch.exp(-margin)) + ridge / 2 * (x @ x)

    return Case(Logistic(a, y, parts, l2), sample)


def softmax(sizes: tuple[int, ...] = (3, 8, 5), classes: int = 3, l2: float = 0.05) -> Case:
    rng = np.random.default_rng(7)
    total = sum(sizes)
    a, labels = 2 * rng.standard_normal((total, 2)), rng.integers(classes, size=total)
    parts = np.split(rng.permutation(total), np.cumsum(sizes)[:-1])

    def sample(i, j, x):
        k = parts[i][j]
        scores = [
            x[3 * c] * a[k, 0] + x[3 * c + 1] * a[k, 1] + x[3 * c + 2] for c in range(classes)
        ]
        return -torch.log_softmax(torch.stack(scores), 0)[labels[k]] + l2 / 2 * (x @ x)

    return Case(Softmax(a, labels, parts, l2, classes), sample)


def _t(values) -> torch.Tensor:
    return torch.as_tensor(values, dtype=torch.float64)


CASES: dict[str, Callable[[], Case]] = {
    "dense": dense,
    "dense components": dense_components,
    "dense bent": lambda: dense_components(3.0),
    "diagonal": diagonal,
    "diagonal components": diagonal_components,
    "diagonal bent": lambda: diagonal_components(3.0),
    "tall least squares": least_squares,
    "ridge": ridge,
    "ridge of equal sizes": lambda: ridge((5, 5, 5, 5), l2=0.0),
    "logistic": logistic,
    "logistic of equal sizes": lambda: logistic((5, 5, 5, 5)),
    "logistic of wasteful sizes": lambda: logistic((1, 1, 40, 1, 1, 2)),
    "softmax": softmax,
    "softmax of equal sizes": lambda: softmax((5, 5, 5, 5)),
    "softmax of wasteful sizes": lambda: softmax((1, 1, 40, 1, 1, 2), classes=4),
}
