"""Constants of a problem that does not know them, from products with its Hessians.

A product with a client's Hessian is a central difference of its gradients, in float64. The largest
and least eigenvalues come from Lanczos' method, for all clients side by side.

They are local: L and mu are the extremes at the points that were looked at, the deltas are those at
the last of them, as those of regressions are the ones at the minimiser.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from undrift.core.problem import Constants, Problem, Unsupported
from undrift.core.streams import Streams
from undrift.engines.batches import Batches

STEPS = 50
"""Of gradient descent to a second point, where the minimiser is not known."""
LOOK, MOST = 5, 120
"""Steps of Lanczos' method from one look at its errors to the next, and in all."""
TOLERANCE, FLOOR = 0.01, 1e-5
"""Errors of eigenvalues that are small enough: relative to themselves, and to the largest."""
CLIENTS = 4
"""Those of whom delta_B is taken: the ones that differed most on the way to delta_A."""
COORDINATES, WORK = 1 << 20, 1 << 25
"""Clients times parameters, and samples times parameters, of one product; of more than that a
random part is taken.
"""
FEWEST = 8
"""Clients, and samples of each, that are taken in any case."""
ROUNDING = 1e-6
"""Relative to the largest eigenvalue, what a difference of gradients may be off."""
Extreme = tuple[float, float]
"""An eigenvalue, and how far it may be off."""
Found = dict[str, Extreme]


@dataclasses.dataclass(frozen=True, repr=False)
class Estimates:
    """What was found, and how far it may be off.

    Args:
        constants: L, mu, L_mean, mu_mean, delta_A and delta_B, as ``problem.constants`` has them.
        dissimilarity: zeta, the root of the mean of \\|grad f_i - grad f\\|^2, the largest at the
            points.
        noise: sigma, the root of the mean variance of the gradient on one sample, at the first
            point.
        errors: by name: residuals of eigenvalues, standard errors of means over draws, and what
            half of the data would change where not all were used.
        gradients: gradients of single clients that it took.
        part: which part of clients and samples was used, in words; empty for all of them.
    """

    constants: Constants
    dissimilarity: float
    noise: float
    errors: dict[str, float]
    gradients: int
    part: str = ""

    def __str__(self) -> str:
        """The constants in one line."""
        found = dataclasses.asdict(self.constants).items()
        return ", ".join(f"{name} = {value:.3g} ± {self.errors[name]:.1g}" for name, value in found)

    def __repr__(self) -> str:
        others = {"dissimilarity": self.dissimilarity, "noise": self.noise}
        found = dataclasses.asdict(self.constants) | others
        lines = [f"{n:<14}{v:>11.4g} ± {self.errors.get(n, 0):.1g}" for n, v in found.items()]
        return "\n".join([*lines, f"{self.gradients:,} gradients of single clients{self.part}"])


class Subset(NamedTuple):
    """The clients and samples that products are taken of: all where they are not too many."""

    members: np.ndarray
    batch: np.ndarray | None
    """Positions ``[C, B]`` among each client's own samples, -1 for none; ``None`` for all."""
    left_out: str
    """What is not in it, in words."""

    @classmethod
    def of(cls, problem: Problem, rng: np.random.Generator) -> Subset:
        """All of a problem, or a random part of it that costs no more than is allowed."""
        most, n, held = WORK // problem.dim, problem.clients, np.array(problem.samples)
        # Rather few clients whole than all of them in part: Hessians of few samples are larger.
        some = max(min(COORDINATES // problem.dim, most * n // max(sum(held), 1)), FEWEST)
        members = np.arange(n) if some >= n else rng.permutation(n)[:some]
        held, batch, each = held[members, None], None, max(FEWEST, most // len(members))
        if problem.sampled and held.sum() > most and held.max() > each:
            mine = np.arange(held.max()) < held
            order = np.where(mine, rng.random(mine.shape), 2).argsort(1)[:, :each]
            batch = np.where(order < held, order, -1)
        part = f", of {len(members)} of {n} clients and "
        part += "all of their samples" if batch is None else f"at most {each} samples of each"
        return cls(members, batch, part if some < n or batch is not None else "")

    def half(self, everyone: int) -> Subset:
        """Half of the samples, and of the clients if not ``everyone`` is in it."""
        kept = slice(len(self.members) // (1 if len(self.members) == everyone else 2))
        batch = None if self.batch is None else self.batch[kept, : self.batch.shape[1] // 2]
        return Subset(self.members[kept], batch, self.left_out)


def estimate(
    problem: Problem, points: Sequence[Tensor] | None = None, seed: int = 0, draws: int = 32
) -> Estimates:
    """Constants of a problem at ``points``, with how far each may be off.

    Args:
        problem: any problem whose clients' data are here.
        points: where to look; left out: the start, and the minimiser or else a point on the way
            to it.
        seed: decides the first vectors of Lanczos' method, and which part of large data is used.
        draws: mini-batches of one sample of each client, which give the noise.

    >>> import undrift as ud
    >>> problem = ud.problems.build("quadratic", clients=4, dim=5)
    >>> found = ud.estimate(problem)
    >>> abs(found.constants.L / problem.constants.L - 1) < 0.01
    True
    """
    exact, rng = problem.to(torch.float64, problem.device), np.random.default_rng(seed)
    part = Subset.of(exact, rng)
    f = Curvature(exact, part)
    places = [x.to(f.like) for x in ([exact.start()] if points is None else points)]
    first = f.extremes(places[0], rng)
    if points is None:
        best = exact.optimum
        places.append(f.descended(places[0], first["L"][0]) if best is None else best.to(f.like))
    found = worst([first, *(f.extremes(x, rng) for x in places[1:])]) | f.deltas(places[-1], rng)
    sigma, spread = f.noise(places[0], Streams(seed), draws)
    zeta = max(f.dissimilarity(x) for x in places)
    errors = {name: error for name, (_, error) in found.items()} | {"noise": spread}
    gradients = f.gradients
    if part.left_out:
        f = Curvature(exact, part.half(exact.clients))
        rough = worst([f.extremes(x, rng) for x in places]) | f.deltas(places[-1], rng)
        for name, (value, _) in rough.items():
            # Were it noise: that of half the data is larger by the root of 2.
            errors[name] += abs(value - found[name][0]) / (math.sqrt(2) - 1)
        gradients += f.gradients
    if not all(math.isfinite(value) for value, _ in found.values()):
        text = "gradients are not finite where constants are estimated: scale inputs and targets"
        raise Unsupported(f"{type(problem).__name__}: {text}")
    # Four digits: rounding errors of another machine, or of another day, change no step.
    values = {name: float(f"{value:.4g}") for name, (value, _) in found.items()}
    return Estimates(Constants(**values), zeta, sigma, errors, gradients, part.left_out)


def worst(found: Sequence[Found]) -> Found:
    """The extremes of several points."""
    choose = {"L": max, "mu": min, "L_mean": max, "mu_mean": min}
    return {name: pick(one[name] for one in found) for name, pick in choose.items()}


class Curvature:
    """Products with the Hessians of a part of a problem in float64."""

    def __init__(self, problem: Problem, part: Subset):
        self.problem, self.gradients = problem, 0
        self.members = part.members
        self.oracle = problem.at(None if len(part.members) == problem.clients else part.members)
        self.like = problem.start().to(problem.device, torch.float64)
        self.samples = (
            None if part.batch is None else torch.as_tensor(part.batch).to(self.like.device)
        )

    def grads(self, y: Tensor) -> Tensor:
        """Of all clients, each at its own row of ``y [C, d]``."""
        self.gradients += len(y)
        with torch.no_grad():
            return self.oracle.grad(y, self.samples)

    def rows(self, x: Tensor) -> Tensor:
        """One vector for all clients."""
        return x.expand(len(self.members), -1)

    def times(self, x: Tensor, v: Tensor) -> Tensor:
        """H_i v_i for the rows ``v [C, d]`` of all clients at ``x``."""
        self.gradients += 2 * len(v)
        with torch.no_grad():
            return self.oracle.hessian(self.rows(x), v, self.samples)

    def extremes(self, x: Tensor, rng: np.random.Generator) -> Found:
        """L and mu, of all clients and of their mean."""
        # Losses that compare models with the one that local training began at.
        self.oracle.begin(self.rows(x), self.rows(x))
        found = Found()
        every = lanczos(lambda v: self.times(x, v), self._random(len(self.members), rng))
        mean = lanczos(lambda v: self.times(x, self.rows(v)).mean(0), self._random(1, rng))
        for name, (low, high) in (("", every), ("_mean", mean)):
            L, mu = max(high, (-low[0], low[1])), low
            if -ROUNDING * L[0] < mu[0] < 0:
                mu = 0.0, mu[1]
            found |= {f"L{name}": L, f"mu{name}": mu}
        return found

    def deltas(self, x: Tensor, rng: np.random.Generator) -> Found:
        """delta_A and delta_B, of which the clients are those that differ most from the mean."""
        apart = self.like.new_zeros(len(self.members))

        def squares(v: Tensor) -> Tensor:
            # The mean of (H_i - H)^2 is that of H_i (H_i - H).
            once = self.times(x, self.rows(v))
            once = once - once.mean(0)
            torch.maximum(apart, once.norm(dim=-1), out=apart)
            return self.times(x, once).mean(0, keepdim=True)

        def differences(v: Tensor) -> Tensor:
            every = [self.times(x, self.rows(row)) for row in v]
            return torch.stack([rows[i] - rows.mean(0) for i, rows in zip(far, every, strict=True)])

        _, (square, error) = lanczos(squares, self._random(1, rng), least=False)
        delta = math.sqrt(max(square, 0.0))
        far = apart.topk(min(CLIENTS, len(apart))).indices.tolist()
        low, high = lanczos(differences, self._random(len(far), rng))
        half = error / (2 * delta) if delta else math.sqrt(error)
        return {"delta_A": (delta, half), "delta_B": max(high, (-low[0], low[1]))}

    def descended(self, x: Tensor, L: float) -> Tensor:
        """A point on the way to the minimiser of f."""
        for _ in range(STEPS if L else 0):
            x = x - self.grads(self.rows(x)).mean(0) / L
        return x

    def dissimilarity(self, x: Tensor) -> float:
        rows = self.grads(self.rows(x))
        return float((rows - rows.mean(0)).square().sum(-1).mean().sqrt())

    def noise(self, x: Tensor, streams: Streams, draws: int) -> tuple[float, float]:
        """sigma and its standard error; 0 where gradients of local steps are exact."""
        batches = Batches(streams, self.problem, 1 if self.problem.sampled else None)
        if batches.whole:
            return 0.0, 0.0
        mean, squares = self.grads(self.rows(x)), []
        for step in range(draws):
            with torch.no_grad():
                rows = self.oracle.grad(self.rows(x), *batches.draw(self.members, 0, step))
            self.gradients += len(rows)
            squares.append(float((rows - mean).square().sum(-1).mean()))
        sigma = math.sqrt(np.mean(squares))
        error = float(np.std(squares, ddof=1)) / math.sqrt(draws)
        return sigma, error / (2 * sigma) if sigma else 0.0

    def _random(self, rows: int, rng: np.random.Generator) -> Tensor:
        return torch.from_numpy(rng.standard_normal((rows, self.problem.dim))).to(self.like)


def lanczos(
    product: Callable[[Tensor], Tensor], v: Tensor, least: bool = True
) -> tuple[Extreme, Extreme]:
    """The least and the largest eigenvalue of symmetric matrices, one for each row of ``v [C, d]``.

    It ends once the largest, and with ``least`` the least too, are accurate enough. Without
    orthogonalisation: eigenvalues may be found twice, which does no harm to extremes.
    """
    v = v / v.norm(dim=-1, keepdim=True)
    before, beta, diagonal, beside = v, v.new_zeros(len(v), 1), list[Tensor](), list[Tensor]()
    for step in range(1, MOST + 1):
        w = product(v) - beta * before
        size = (w * v).sum(-1, keepdim=True)
        # Rows of which nothing is left add no eigenvalue of their own.
        diagonal.append(torch.where(v.any(-1, keepdim=True), size, diagonal[0] if beside else size))
        w = w - diagonal[-1] * v
        before, beta = v, w.norm(dim=-1, keepdim=True)
        v = w / beta.clamp(min=torch.finfo(v.dtype).tiny)
        beside.append(beta)
        if step % LOOK:
            continue
        off = torch.cat(beside, 1)[:, :-1]
        small = torch.cat(diagonal, 1).diag_embed() + off.diag_embed(1) + off.diag_embed(-1)
        values, vectors = torch.linalg.eigh(small)
        errors = (beta * vectors[:, -1]).abs()
        # What is not yet so low or high in one row may still become that.
        low, high = values[:, 0], values[:, -1]
        below, above = (low - errors[:, 0]).min(), (high + errors[:, -1]).max()
        bottom, top = float(low.min()), float(high.max())
        ends = (bottom, bottom - float(below)), (top, float(above) - top)
        most = max(abs(value) for value, _ in ends)
        # Of a small negative eigenvalue little more than the sign is of use.
        close = (TOLERANCE * (v if v > 0 else max(-v, most / 10)) for v, _ in ends)
        fine = [e <= max(t, FLOOR * most) for t, (_, e) in zip(close, ends, strict=True)]
        if all(fine[not least :]):
            break
    return ends
