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
from functools import partial

import numpy as np
import torch
from torch import Tensor

from undrift._device import upload
from undrift.core.params import BadParameters, not_allowed
from undrift.core.problem import Constants, MiniBatch, Oracle, Problem, Unsupported
from undrift.core.streams import Streams
from undrift.engines.batches import Batches

STEPS = 50
"""Of gradient descent to a second point, where the minimiser is not known."""
LOOK, MOST = 5, 120
"""Steps of Lanczos' method from one look at its errors to the next, and in all."""
TOLERANCE, FLOOR = 0.01, 3e-6
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


@torch.no_grad()
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
    if not isinstance(problem, Problem):
        text = "give a problem itself, as undrift.problems.build makes it by its name"
        raise BadParameters("estimate", {"problem": not_allowed("problem", problem, text)})
    exact, rng = problem.to(torch.float64, problem.device), np.random.default_rng(seed)
    f, left_out = Curvature.of(exact, rng)
    places = [x.to(f.like) for x in ([exact.start()] if points is None else points)]
    first = f.extremes(places[0], rng)
    if points is None:
        best = exact.optimum
        places.append(f.descended(places[0], first["L"][0]) if best is None else best.to(f.like))
    found = worst([first, *(f.extremes(x, rng) for x in places[1:])]) | f.deltas(places[-1], rng)
    sigma, spread = f.noise(places[0], Streams(seed), draws)
    zeta = max(float(f.rows(x).var(0, correction=0).sum().sqrt()) for x in places)
    errors = {name: error for name, (_, error) in found.items()} | {"noise": spread}
    if left_out:
        n = len(f.members)
        half = f.some(np.arange(n if n == exact.clients else n // 2), share=2)
        rough = worst([half.extremes(x, rng) for x in places]) | half.deltas(places[-1], rng)
        for name, (value, _) in rough.items():
            # Were it noise: that of half the data is larger by the root of 2.
            errors[name] += abs(value - found[name][0]) / (math.sqrt(2) - 1)
    # Four digits: rounding errors of another machine, or of another day, change no step.
    values = {name: float(f"{value:.4g}") for name, (value, _) in found.items()}
    return Estimates(Constants(**values), zeta, sigma, errors, sum(f.spent), left_out)


def worst(found: Sequence[Found]) -> Found:
    """The extremes of several points."""
    choose = {"L": max, "mu": min, "L_mean": max, "mu_mean": min}
    return {name: pick(one[name] for one in found) for name, pick in choose.items()}


class Curvature:
    """Gradients of some clients, and products with their Hessians, in float64.

    ``batch`` has positions ``[C, B]`` among each client's own samples, -1 for none; ``None`` for
    all. ``spent`` counts gradients of single clients.
    """

    def __init__(
        self, problem: Problem, members: np.ndarray, batch: np.ndarray | None, spent: list[int]
    ):
        self.problem, self.members, self.batch, self.spent = problem, members, batch, spent
        self.like = problem.start().to(problem.device, torch.float64)
        # Clients with about as many samples lie side by side: little is padded.
        sizes = np.frexp(np.array(problem.samples)[members])[1]
        self.pieces = list[tuple[np.ndarray, Oracle, MiniBatch]]()
        for which in (np.flatnonzero(sizes == size) for size in np.unique(sizes)):
            drawn = () if batch is None else (upload(batch[which], problem.device),)
            self.pieces.append((which, problem.at(members[which]), drawn))

    @classmethod
    def of(cls, problem: Problem, rng: np.random.Generator) -> tuple[Curvature, str]:
        """All of a problem, or a random part of it that costs no more than is allowed, and what is
        not in it, in words.
        """
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
        return cls(problem, members, batch, []), part if some < n or batch is not None else ""

    def some(self, rows: np.ndarray, share: int = 1) -> Curvature:
        """Some of the clients; of a part of their samples, one in ``share``."""
        batch = None if self.batch is None else self.batch[rows, : self.batch.shape[1] // share]
        return Curvature(self.problem, self.members[rows], batch, self.spent)

    def rows(
        self,
        x: Tensor,
        v: Tensor | None = None,
        draw: Callable[[np.ndarray], MiniBatch] | None = None,
    ) -> Tensor:
        """Gradients ``[C, d]`` of all clients at ``x``, or products of their Hessians with the rows
        of ``v``, which may be one for all; ``draw`` gives other samples of some clients.
        """
        n = len(self.members)
        self.spent.append(n if v is None else 2 * n)
        found = self.like.new_empty(n, len(x))
        for which, oracle, batch in self.pieces:
            y, drawn = x.expand(len(which), -1), draw(self.members[which]) if draw else batch
            # Losses that compare models with the one that local training began at.
            oracle.begin(y, y)
            found[which] = (
                oracle.grad(y, *drawn)
                if v is None
                else oracle.hessian(y, v.expand(n, -1)[which], *drawn)
            )
        if not bool(found.isfinite().all()):
            raise Unsupported(
                f"{type(self.problem).__name__}: gradients are not finite where constants are "
                "estimated: scale inputs and targets"
            )
        return found

    def extremes(self, x: Tensor, rng: np.random.Generator) -> Found:
        """L and mu, of all clients and of their mean."""
        found, n = Found(), len(self.members)
        every = lanczos(lambda rows: partial(self.some(rows).rows, x), self._random(n, rng))
        mean = lanczos(lambda _: lambda v: self.rows(x, v).mean(0, True), self._random(1, rng))
        for name, (low, high) in (("", every), ("_mean", mean)):
            L, mu = largest((low, high)), low
            if -ROUNDING * L[0] < mu[0] < 0:
                mu = 0.0, mu[1]
            found |= {f"L{name}": L, f"mu{name}": mu}
        return found

    def deltas(self, x: Tensor, rng: np.random.Generator) -> Found:
        """delta_A and delta_B, of which the clients are those that differ most from the mean."""
        apart = self.like.new_zeros(len(self.members))

        def gaps(v: Tensor) -> Tensor:
            once = self.rows(x, v)
            return once - once.mean(0)

        def squares(v: Tensor) -> Tensor:
            # The mean of (H_i - H)^2 is that of H_i (H_i - H).
            once = gaps(v)
            torch.maximum(apart, once.norm(dim=-1), out=apart)
            return self.rows(x, once).mean(0, True)

        def difference(i: Tensor, _: np.ndarray) -> Callable[[Tensor], Tensor]:
            return lambda v: gaps(v)[i]

        _, (square, error) = lanczos(lambda _: squares, self._random(1, rng), least=False)
        delta = math.sqrt(max(square, 0.0))
        half = error / (2 * delta) if delta else math.sqrt(error)
        far = apart.topk(min(CLIENTS, len(apart))).indices.unsqueeze(1)
        ends = [lanczos(partial(difference, i), self._random(1, rng)) for i in far]
        return {"delta_A": (delta, half), "delta_B": max(map(largest, ends))}

    def descended(self, x: Tensor, L: float) -> Tensor:
        """A point on the way to the minimiser of f."""
        for _ in range(STEPS if L else 0):
            x = x - self.rows(x).mean(0) / L
        return x

    def noise(self, x: Tensor, streams: Streams, draws: int) -> tuple[float, float]:
        """sigma and its standard error; 0 where gradients of local steps are exact."""
        batches = Batches(streams, self.problem, 1 if self.problem.sampled else None)
        if batches.whole:
            return 0.0, 0.0
        mean = self.rows(x)
        squares = [
            float((self.rows(x, draw=draw) - mean).square().sum(-1).mean())
            for draw in (partial(batches.draw, round=0, step=step) for step in range(draws))
        ]
        sigma = math.sqrt(np.mean(squares))
        return sigma, float(np.std(squares, ddof=1)) / math.sqrt(draws) / (2 * sigma or 1.0)

    def _random(self, rows: int, rng: np.random.Generator) -> Tensor:
        return torch.from_numpy(rng.standard_normal((rows, self.problem.dim))).to(self.like)


def largest(ends: tuple[Extreme, Extreme]) -> Extreme:
    """The one that is larger in absolute value."""
    (bottom, error), high = ends
    return max(high, (-bottom, error))


def fine(value: float, most: float) -> float:
    """The error of an extreme eigenvalue that is small enough."""
    # Of a small negative one little more than the sign is of use.
    return max(TOLERANCE * (value if value > 0 else max(-value, most / 10)), FLOOR * most)


def lanczos(
    on: Callable[[np.ndarray], Callable[[Tensor], Tensor]], v: Tensor, least: bool = True
) -> tuple[Extreme, Extreme]:
    """The least and the largest eigenvalue of symmetric matrices, one for each row of ``v [C, d]``.

    ``on(rows)`` is the product with those of some rows. A row is left out once its largest
    eigenvalue, and with ``least`` its least too, is accurate enough or can no longer be that of
    all. Without orthogonalisation: eigenvalues may be found twice, which does no harm to extremes.
    """
    v = v / v.norm(dim=-1, keepdim=True)
    rows, before, beta = np.arange(len(v)), v, v.new_zeros(len(v), 1)
    product, small, bounds = on(rows), v.new_empty(len(v), 2, 0), v.new_empty(4, len(v))
    for step in range(1, MOST + 1):
        w = product(v) - beta * before
        size = (w * v).sum(-1, keepdim=True)
        w = w - size * v
        beta = w.norm(dim=-1, keepdim=True)
        # Where nothing is left, once more from here: what it finds are eigenvalues too.
        before, v = v, torch.where(beta > 0, w / beta, v)
        small = torch.cat([small, torch.stack([size, beta], 1)], 2)
        if step % LOOK:
            continue
        # Of a symmetric matrix the lower half is read.
        tridiagonal = small[:, 0].diag_embed() + small[:, 1, :-1].diag_embed(-1)
        values, vectors = torch.linalg.eigh(tridiagonal)
        low, high, errors = values[:, 0], values[:, -1], (beta * vectors[:, -1]).abs()
        bounds[:, rows] = torch.stack([low, low - errors[:, 0], high, high + errors[:, -1]])
        bottom, below = bounds[:2].amin(1).tolist()
        top, above = bounds[2:].amax(1).tolist()
        most = max(abs(bottom), abs(top))
        unsure = bounds[3] > top + fine(top, most)
        unsure |= (bounds[1] < bottom - fine(bottom, most)) & least
        kept = np.flatnonzero(unsure[rows].numpy(force=True))
        if not len(kept):
            break
        if 2 * len(kept) <= len(rows):
            v, before, beta, small = (part[kept] for part in (v, before, beta, small))
            product = on(rows := rows[kept])
    return (bottom, bottom - below), (top, above - top)
