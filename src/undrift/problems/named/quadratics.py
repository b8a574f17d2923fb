"""Quadratic problems and least squares with data that are drawn."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from undrift.core.params import Count, Fraction, Natural, NonNegative, Positive
from undrift.problems.named.base import Named

if TYPE_CHECKING:
    from undrift.problems.quadratic import LeastSquares, Quadratic


class RandomQuadratic(Named):
    """Dense Hessians with eigenvalues in [mu, L] and centres around a common one.

    Whatever the heterogeneity, the eigenvalues reach mu and L (in two or more dimensions).

    Args:
        dim: coordinates of x.
        mu: eigenvalues of the Hessians are at least this.
        L: eigenvalues of the Hessians are at most this.
        heterogeneity: from 0, equal Hessians, to 1, independent ones.
        spread: standard deviation of the clients' minimisers; with heterogeneity 0 and spread 0 all
            are the same.
        noise: sigma of a normal vector in every gradient of a local step, whose expected square is
            sigma^2; gradients on all data have none.
    """

    name = "quadratic"
    title = "random quadratics with different dense Hessians and centres"

    clients: Count = 20
    dim: Count = 10
    mu: NonNegative = 1.0
    L: Positive = 10.0
    heterogeneity: Fraction = 1.0
    spread: NonNegative = 1.0
    noise: NonNegative = 0.0
    seed: Natural = 0

    def conditions(self) -> dict[str, str]:
        if self.mu <= self.L:
            return {}
        return {
            "mu": f"mu = {self.mu:g} exceeds L = {self.L:g}; eigenvalues are drawn between them"
        }

    def make(self) -> Quadratic:
        import numpy as np

        from undrift.problems.quadratic import Quadratic

        rng, (n, d) = np.random.default_rng(self.seed), (self.clients, self.dim)
        basis, _ = np.linalg.qr(rng.standard_normal((n + 1, d, d)))
        place = rng.random((n + 1, 1, d))
        if d > 1:
            place[..., 0], place[..., -1] = 0, 1
        H = (basis * (self.mu + (self.L - self.mu) * place)) @ basis.swapaxes(1, 2)
        A = (1 - self.heterogeneity) * H[:1] + self.heterogeneity * H[1:]
        b = rng.standard_normal(d) + self.spread * rng.standard_normal((n, d))
        return Quadratic.centred((A + A.swapaxes(1, 2)) / 2, b, noise=self.noise)


class FedRedQuadratic(Named):
    """Diagonal A_ij of norm 100 whose means differ by about 5 between clients.

    In a convex one up to 20 eigenvalues fall geometrically towards 0 and half of them are 0. In a
    nonconvex one the mean of the A_ij is positive, or f would have no lower bound, and beta = 400.

    Args:
        kind: strong: eigenvalues from 1 to 100; convex: some of each component's are 0; nonconvex:
            some components have negative ones.
        components: quadratics of each client, whose function is their mean.
        dim: coordinates of x.
    """

    name = "fedred"
    title = "the synthetic instance of DANE+ and FedRed: similar diagonal Hessians"

    kind: Literal["strong", "convex", "nonconvex"] = "strong"
    clients: Count = 5
    components: Count = 10
    dim: Count = 1000
    seed: Natural = 0

    def conditions(self) -> dict[str, str]:
        if self.dim > 1:
            return {}
        return {
            "dim": "dim = 1 is not allowed: the smallest and the largest eigenvalue need two "
            "dimensions"
        }

    def make(self) -> Quadratic:
        import numpy as np

        from undrift.problems.quadratic import Quadratic

        rng = np.random.default_rng(self.seed)
        shape = (self.clients, self.components, self.dim)
        common, noise = 110 * rng.random(self.dim), 18 * rng.random(shape)
        common[-1] = 110
        if self.kind == "nonconvex":
            A = np.minimum(np.maximum(common, 5) + noise - 9, 100)
        else:
            if self.kind == "strong":
                common[0] = -18
            A = np.clip(common + noise, 1, 100)
        if self.kind == "convex":
            few = np.arange(min(20, self.dim - 1))
            kept = rng.integers(2, size=(*shape[:2], len(few)))
            A[..., few] *= kept * 2.0 ** (few - 20) / A[..., few].mean((0, 1))
        b = 10 * rng.random(A.shape)
        return Quadratic.centred(A, b, beta=400.0 if self.kind == "nonconvex" else 0.0)


class FedCETQuadratic(Named):
    r""":math:`f_i(x) = \frac1{n_i}\sum_j\|M_ix-b_{ij}\|^2+\|x\|^2`, b uniform on [-10, 10].

    Equal Hessians have M_i = I, L = mu = 4 and x* = mean(b)/2; the mean iterate is plain gradient
    descent. Different ones have Gaussian M_i, mu about 2 and L about 10.

    Args:
        hessians: equal, as in the paper, where there is no drift; or different, where there is.
        samples: measurements of each client.
        dim: coordinates of x.
    """

    name = "fedcet"
    title = "FedCET's estimation problem, with equal or different Hessians"

    hessians: Literal["equal", "different"] = "equal"
    clients: Count = 10
    samples: Count = 10
    dim: Count = 60
    seed: Natural = 0

    def make(self) -> Quadratic:
        import numpy as np

        from undrift.problems.quadratic import Quadratic

        rng, (n, d) = np.random.default_rng(self.seed), (self.clients, self.dim)
        b = rng.uniform(-10, 10, (n, self.samples, d))
        c = (b * b).sum(-1)
        if self.hessians == "equal":
            return Quadratic(np.full_like(b, 4), 2 * b, c)
        M = rng.standard_normal((n, d, d)) / np.sqrt(d)
        H = 2 * (M.swapaxes(1, 2) @ M + np.eye(d))
        return Quadratic(np.repeat(H[:, None], self.samples, axis=1), 2 * b @ M, c)


class RandomLeastSquares(Named):
    """Entries uniform on [0, 1].

    Args:
        rows: equations of each client.
        dim: coordinates of x.
    """

    name = "least-squares"
    title = "FedRecu's least squares with uniform random entries"

    clients: Count = 20
    rows: Count = 50
    dim: Count = 10
    seed: Natural = 0

    def make(self) -> LeastSquares:
        import numpy as np

        from undrift.problems.quadratic import LeastSquares

        rng, shape = np.random.default_rng(self.seed), (self.clients, self.rows)
        return LeastSquares(rng.random((*shape, self.dim)), rng.random(shape))
