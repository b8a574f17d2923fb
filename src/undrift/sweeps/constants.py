"""Constants of a problem that does not know them, from products with its Hessians.

A product with a client's Hessian is a central difference of its gradients, in float64. The largest
and least eigenvalues come from Lanczos' method, SciPy's; those of all clients at once, as the
Hessians of all clients side by side are one block-diagonal matrix.

They are local: L and mu are the extremes at the points that were looked at, the deltas are those at
the last of them, as those of regressions are the ones at the minimiser.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterator, Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.sparse.linalg import ArpackNoConvergence, LinearOperator, eigsh
from torch import Tensor

from undrift.core.problem import Constants, Problem
from undrift.core.streams import Streams
from undrift.engines.batches import Batches

Array = NDArray[np.float64]
STEPS = 100
"""Of gradient descent to a second point, where the minimiser is not known."""
CLIENTS = 16
"""Those of whom delta_B is taken: the ones that differ most by a few random products."""
PROBES = 8
TOLERANCE = 1e-4
"""Of eigenvalues, relative to the largest."""
RESTARTS = 60
"""Of Lanczos' method, after which an eigenvalue is as good as its residual says."""


@dataclasses.dataclass(frozen=True)
class Estimates:
    """What was found, and how far it may be off."""

    constants: Constants
    dissimilarity: float
    """zeta: the root of the mean of |grad f_i - grad f|^2, the largest at the points."""
    noise: float
    """sigma: the root of the mean variance of the gradient on one sample, at the first point."""
    errors: dict[str, float]
    """By name: residuals of eigenvalues, standard errors of means over draws."""
    gradients: int
    """Gradients of single clients that it took."""


def estimate(
    problem: Problem, points: Sequence[Tensor] | None = None, seed: int = 0, draws: int = 64
) -> Estimates:
    """Constants at ``points``: by default the start, and the minimiser or a point on the way to it.

    ``draws`` mini-batches of one sample of each client give the noise.
    """
    exact = problem.to(torch.float64, problem.device)
    f, rng = Curvature(exact), np.random.default_rng(seed)
    places = [exact.start().to(f.x)] if points is None else [p.to(f.x) for p in points]
    found = [f.eigenvalues(places[0], rng)]
    if points is None:
        best = exact.optimum
        places.append(f.descended(places[0], found[0]["L"][0]) if best is None else best.to(f.x))
    found += [f.eigenvalues(x, rng) for x in places[1:]]
    worst = {**found[-1]}
    for name, choose in (("L", max), ("mu", min), ("L_mean", max), ("mu_mean", min)):
        worst[name] = choose(one[name] for one in found)
    zeta = max(f.dissimilarity(x) for x in places)
    sigma, spread = f.noise(places[0], Streams(seed), draws)
    errors = {name: error for name, (_, error) in worst.items()} | {"noise": spread}
    constants = Constants(**{name: value for name, (value, _) in worst.items()})
    return Estimates(constants, zeta, sigma, errors, f.gradients)


class Curvature:
    """Products with the Hessians of a problem in float64."""

    def __init__(self, problem: Problem):
        self.problem, self.oracle, self.gradients = problem, problem.at(None), 0
        self.x = torch.empty(0, dtype=torch.float64, device=problem.device)

    def grads(self, y: Tensor) -> Tensor:
        """Of all clients, each at its own row of ``y [N, d]``."""
        self.gradients += len(y)
        with torch.no_grad():
            return self.oracle.grad(y)

    def times(self, x: Tensor, v: Tensor) -> Tensor:
        """H_i v_i for the rows ``v [N, d]`` of all clients at ``x``."""
        size = v.norm(dim=-1, keepdim=True)
        unit = v / size.clamp(min=torch.finfo(v.dtype).tiny)
        h = torch.finfo(v.dtype).eps ** (1 / 3) * (1 + float(x.norm()))
        found: Tensor = (self.grads(x + h * unit) - self.grads(x - h * unit)) * (size / (2 * h))
        return found

    def eigenvalues(self, x: Tensor, rng: np.random.Generator) -> dict[str, tuple[float, float]]:
        """The fields of :class:`Constants`, each with how far it may be off."""
        shape = n, d = self.problem.clients, self.problem.dim

        def every(v: Array) -> Array:
            return self._numbers(self.times(x, self._rows(v, shape)))

        def mean(v: Array) -> Array:
            return self._numbers(self.times(x, self._rows(v, (1, d)).expand(shape)).mean(0))

        def squares(v: Array) -> Array:
            # The mean of (H_i - H)^2 is that of H_i^2, less H^2.
            once = self.times(x, self._rows(v, (1, d)).expand(shape))
            again = self.times(x, once).mean(0)
            return self._numbers(again - self.times(x, once.mean(0).expand(shape)).mean(0))

        first, narrow = rng.standard_normal(n * d), rng.standard_normal(d)
        square, error = largest(squares, narrow)
        delta, L, L_mean = math.sqrt(square), largest(every, first), largest(mean, narrow)
        found = {
            "L": L,
            "mu": least(every, first, L[0]),
            "L_mean": L_mean,
            "mu_mean": least(mean, narrow, L_mean[0]),
            "delta_A": (delta, error / (2 * delta) if delta else math.sqrt(error)),
        }
        apart = [largest(self._apart(x, i), narrow) for i in self._farthest(x, rng)]
        return found | {"delta_B": max(apart)}

    def _apart(self, x: Tensor, client: int) -> Callable[[Array], Array]:
        """Products with H_i - H."""

        def product(v: Array) -> Array:
            rows = self.times(x, self._rows(v, (1, len(v))).expand(self.problem.clients, -1))
            return self._numbers(rows[client] - rows.mean(0))

        return product

    def _farthest(self, x: Tensor, rng: np.random.Generator) -> Iterator[int]:
        """The clients whose Hessians differ most from the mean, by a few random products."""
        total = torch.zeros(self.problem.clients, dtype=self.x.dtype, device=self.x.device)
        for _ in range(PROBES):
            v = self._rows(rng.standard_normal(self.problem.dim), (1, -1))
            rows = self.times(x, v.expand(self.problem.clients, -1))
            total += (rows - rows.mean(0)).square().sum(-1)
        yield from total.argsort(descending=True)[:CLIENTS].tolist()

    def descended(self, x: Tensor, L: float) -> Tensor:
        """A point on the way to the minimiser of f."""
        for _ in range(STEPS):
            x = x - self.grads(x.expand(self.problem.clients, -1)).mean(0) / L
        return x

    def dissimilarity(self, x: Tensor) -> float:
        rows = self.grads(x.expand(self.problem.clients, -1))
        return float((rows - rows.mean(0)).square().sum(-1).mean().sqrt())

    def noise(self, x: Tensor, streams: Streams, draws: int) -> tuple[float, float]:
        """sigma and its standard error; 0 where gradients of local steps are exact."""
        batches = Batches(streams, self.problem, 1 if self.problem.sampled else None)
        if batches.whole:
            return 0.0, 0.0
        everyone = np.arange(self.problem.clients)
        points = x.expand(len(everyone), -1)
        mean, squares = self.grads(points), []
        for step in range(draws):
            with torch.no_grad():
                rows = self.oracle.grad(points, *batches.draw(everyone, 0, step))
            self.gradients += len(everyone)
            squares.append(float((rows - mean).square().sum(-1).mean()))
        sigma = math.sqrt(np.mean(squares))
        error = float(np.std(squares, ddof=1)) / math.sqrt(draws)
        return sigma, error / (2 * sigma) if sigma else 0.0

    def _rows(self, v: Array, shape: tuple[int, int]) -> Tensor:
        return torch.from_numpy(np.array(v)).to(self.x).view(shape)

    @staticmethod
    def _numbers(v: Tensor) -> Array:
        found: Array = v.flatten().cpu().numpy()
        return found


def largest(product: Callable[[Array], Array], start: Array) -> tuple[float, float]:
    """The spectral norm of a symmetric matrix, and how far it may be off."""
    if len(start) == 1:
        return abs(float(product(np.ones(1))[0])), 0.0
    matrix = LinearOperator((len(start),) * 2, matvec=product, dtype=np.float64)
    try:
        _, vectors = eigsh(matrix, k=1, which="LM", v0=start, tol=TOLERANCE, maxiter=RESTARTS)
        vector = vectors[:, 0]
    except ArpackNoConvergence:
        vector = _powers(product, start)
    image = product(vector)
    value = float(vector @ image)
    return abs(value), float(np.linalg.norm(image - value * vector))


def least(product: Callable[[Array], Array], start: Array, above: float) -> tuple[float, float]:
    """The least eigenvalue of a symmetric matrix whose spectral norm is ``above``."""
    # Above all others once it is turned round: small ones are found to the precision of the
    # largest, not to their own, which takes a hundred times as long.
    value, error = largest(lambda v: above * v - product(v), start)
    return above - value, error


def _powers(product: Callable[[Array], Array], v: Array) -> Array:
    """About the eigenvector of the largest eigenvalue, where it is not far from the next."""
    for _ in range(RESTARTS):
        v = product(v / np.linalg.norm(v))
    found: Array = v / np.linalg.norm(v)
    return found
