r"""Quadratics :math:`\frac12 x^\top H_ix - \langle q_i, x\rangle + c_i`, and least squares.

Quadratics may have a nonconvex term, :math:`\beta\sum_kx_k^2/(1+x_k^2)`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property
from typing import NamedTuple, Self

import numpy as np
import torch
from numpy.random import Generator, Philox
from numpy.typing import ArrayLike
from torch import Tensor

from undrift._device import upload
from undrift._threads import one_thread
from undrift.core.problem import Constants, Oracle, Sums, Unsupported
from undrift.problems.exact import (
    ExactProblem,
    Matrix,
    Values,
    digest,
    dissimilarity,
    exact,
    narrowed,
    numbers,
    pick,
    spectrum,
    weights,
)
from undrift.problems.ragged import Ragged, divided

Sampler = Callable[[Tensor, Tensor], Tensor]
"""Mini-batch gradients of the quadratic part from (y, batch)."""


class QuadraticOracle(Oracle):
    """Gradients and minimisers; without ``sample``, mini-batch gradients are over all the data.

    ``H [N, d, d]`` or diagonals ``[N, d]`` and ``minus_q [N, d]`` are those of all clients; the
    rows of ``members`` are gathered on first use. The square of what is added to gradients with a
    key is ``noise**2`` in expectation.
    """

    def __init__(
        self,
        members: np.ndarray,
        H: Tensor,
        minus_q: Tensor,
        sample: Sampler | None = None,
        beta: float = 0.0,
        noise: float = 0.0,
    ):
        self.members, self.sample, self.beta, self.noise = members, sample, beta, noise
        self._H, self._minus_q = H, minus_q
        self._factor: tuple[float, Tensor] | None = None

    @property
    def several(self) -> bool:
        return self.sample is None

    def grad(
        self,
        y: Tensor,
        batch: Tensor | None = None,
        draws: object = None,
        key: Tensor | None = None,
    ) -> Tensor:
        if batch is not None and self.sample is not None:
            g = self.sample(y, batch)
        else:
            H, minus_q = self.rows
            points = y if y.dim() == 3 else y.unsqueeze(1)
            # A row vector times a symmetric H is the faster product on a CPU.
            multiply = torch.addcmul if self._H.ndim == 2 else torch.baddbmm
            g = multiply(minus_q, points, H).view_as(y)
        g = g if self.beta == 0 else g + bend(y, self.beta)
        if key is None:
            return g
        noise = self.noise * directions(key, y)
        return g + (noise if y.dim() == 2 else noise.unsqueeze(1))

    def solve(self, v: Tensor, lam: float) -> Tensor:
        if self.beta:
            raise Unsupported(
                "the nonconvex term (beta > 0) has no exact local minimiser; "
                "set beta = 0 or use a method whose local solver is gradient descent"
            )
        H, minus_q = self.rows
        if self._factor is None or self._factor[0] != lam:
            self._factor = lam, factor(H if self._H.ndim == 3 else H.squeeze(1), lam)
        return back(self._factor[1], v - minus_q.view(v.shape))

    @cached_property
    def rows(self) -> tuple[Tensor, Tensor]:
        """H of these clients, ``[C, d, d]`` or ``[C, 1, d]``, and -q as ``[C, 1, d]``."""
        H, minus_q = pick(self._H, self.members), pick(self._minus_q, self.members)
        return H.unsqueeze(1) if H.ndim == 2 else H, minus_q.unsqueeze(1)


class MeanQuadratic(NamedTuple):
    """The means of H, q and c, exact, and what is known of x*."""

    H: Tensor
    q: Tensor
    c: Tensor
    best: Tensor | None
    span: Tensor | None
    """The map onto the range of H, where that is singular."""


class QuadraticForm(ExactProblem):
    """What quadratic problems share: optimum, metrics and constants, exact from their Hessians."""

    beta: float = 0.0
    q: Tensor
    """``[N, d]``, exact."""
    c: Tensor
    """The c_i ``[N]``, those of their components ``[N, m]``, or one number for all."""

    H: Tensor
    """The H_i, ``[N, d, d]`` or diagonals ``[N, d]``, exact, where they are kept."""

    def hessian(self, client: int) -> Matrix:
        """H_i, exact: ``[d, d]``, or ``[d]`` when diagonal."""
        return self.H[client].numpy(force=True)

    def mean_hessian(self) -> Tensor:
        """The mean of the H_i, exact."""
        return self.H.mean(0)

    @property
    def optimum(self) -> Tensor | None:
        """The minimiser of least norm; ``None`` where beta > 0 or f has no lower bound."""
        return self._mean.best

    @cached_property
    def constants(self) -> Constants:
        low, high = _ends([spectrum(self.hessian(i)) for i in range(self.clients)])
        mean = self._mean.H.numpy()
        low_mean, high_mean = _ends([spectrum(mean)])
        # x^2 / (1 + x^2) has curvature 2 at 0 and -1/2 at 1, its extremes.
        bent = (-self.beta / 2, 2 * self.beta)
        delta_A, delta_B = dissimilarity(self.hessian, mean, self.clients)
        return Constants(
            L=max(high + bent[1], -low - bent[0]),
            mu=low + bent[0],
            L_mean=max(high_mean + bent[1], -low_mean - bent[0]),
            mu_mean=low_mean + bent[0],
            delta_A=delta_A,
            delta_B=delta_B,
        )

    @one_thread()
    def metrics(self, x: Tensor) -> dict[str, float]:
        """From x - x*, so that nothing cancels; ``distance`` is to the nearest minimiser."""
        H, q, c, best, span = self._gathered
        x = x.detach().to(self.precise, torch.float64)
        e = x if best is None else x - best
        product = H @ e if H.ndim == 2 else H * e
        if best is None:
            loss = e @ (0.5 * product - q) + c + self.beta * (1 - 1 / (1 + e * e)).sum()
            values = {"loss": loss, "grad_norm": (product - q + bend(e, self.beta)).norm()}
        else:
            gap = 0.5 * (e @ product)
            values = {"loss": gap + c - 0.5 * (q @ best), "gap": gap, "grad_norm": product.norm()}
            if span is not None:
                e = span @ e if span.ndim == 2 else span * e
            values["distance"] = e.norm()
        return numbers(values)

    @one_thread()
    def client_metrics(self, x: Tensor, members: np.ndarray | None = None) -> Sums:
        who = slice(None) if members is None else torch.from_numpy(members).to(self.q.device)
        y = x.detach().to(self.q.device, torch.float64)
        y = y.expand(len(self.q[who]), self.dim)
        bent = self.beta * (1 - 1 / (1 + y * y)).sum(1)
        return {"loss": self._values(y, who) + bent}

    def _values(self, y: Tensor, who: Tensor | slice) -> Tensor:
        """The quadratic parts of some f_i, each at its own row of ``y``, exact."""
        H, q, c = self.H[who], self.q[who], self.c if not self.c.ndim else self.c[who]
        product = torch.bmm(y.unsqueeze(1), H).squeeze(1) if H.ndim == 3 else H * y
        return (y * (0.5 * product - q)).sum(1) + (c.mean(1) if c.ndim == 2 else c)

    @cached_property
    def _gathered(self) -> MeanQuadratic:
        """The mean where metrics are computed."""
        return MeanQuadratic(*(None if v is None else v.to(self.precise) for v in self._mean))  # type: ignore[arg-type]

    @cached_property
    @one_thread()
    def _mean(self) -> MeanQuadratic:
        H, q = self.mean_hessian().cpu(), self.q.mean(0).cpu()
        found = None if self.beta else minimiser(H.numpy(), q.numpy())
        best, span = found or (None, None)
        return MeanQuadratic(H, q, self.c.mean().cpu(), best, span)


class Quadratic(QuadraticForm):
    r"""Clients with :math:`f_i(x) = \frac1m\sum_j \frac12 x^\top A_{ij}x
    - \langle q_{ij}, x\rangle + c_{ij}`.

    ``q`` is ``[N, d]``, or ``[N, m, d]`` with m components per client. ``A`` has one axis more than
    ``q`` and is symmetric, or it has the shape of ``q`` and its rows are diagonals. ``beta`` adds
    the nonconvex term :math:`\beta\sum_k x_k^2/(1+x_k^2)` to every client. Arrays, tensors or
    nested lists.

    ``noise`` is sigma: the gradient of every local step has a normal vector added to it, drawn
    anew for each client and step, with mean 0 and expected square :math:`\sigma^2`, so
    :math:`\sigma^2/d` in each coordinate. Inside a step it stays the same, as a mini-batch does;
    gradients on all data, ``f.grad(y)``, exact minimisers and metrics have none.

    >>> Quadratic([[2.0, 1.0], [2.0, 3.0]], [[2.0, 0.0], [0.0, 4.0]]).optimum.tolist()
    [0.5, 1.0]
    """

    def __init__(
        self, A: Values, q: Values, c: Values = 0.0, *, beta: float = 0.0, noise: float = 0.0
    ):
        A, q, c = exact("A", A), exact("q", q), exact("c", c)
        known = q.ndim in (2, 3) and 0 not in q.shape
        if (
            not known
            or A.shape not in (q.shape, (*q.shape, q.shape[-1]))
            or c.shape not in ((), q.shape[:-1])
        ):
            raise ValueError(
                f"q of shape {list(q.shape)} does not go with A of {list(A.shape)} and c of "
                f"{list(c.shape)}; give q as [clients, d] or [clients, components, d], A with "
                "another axis of d or, for diagonals, none, and c as a number or without that of q"
            )
        if A.ndim > q.ndim and not torch.allclose(
            A, A.mT, rtol=1e-9, atol=1e-9 * float(A.abs().max())
        ):
            raise ValueError(
                "A is not symmetric; give (A + A') / 2, which defines the same function"
            )
        for name, value in (("beta", beta), ("noise", noise)):
            if not 0 <= value < float("inf"):
                raise ValueError(f"{name} = {value} is not allowed: a finite number >= 0")
        self.beta, self.noise, self.keyed = float(beta), float(noise), noise > 0
        self.components = (A, q) if q.ndim == 3 else ()
        self.H, self.q = (A.mean(1), q.mean(1)) if q.ndim == 3 else (A, q)
        self.c = c
        self.clients, self.dim = self.q.shape
        self.samples = [q.shape[1] if q.ndim == 3 else 1] * self.clients
        self.sampled = q.ndim == 3
        self._place(torch.float64, q.device)

    @classmethod
    def centred(cls, A: Values, b: Values, *, beta: float = 0.0, noise: float = 0.0) -> Self:
        r""":math:`f_i(x) = \frac1m\sum_j \frac12 (x-b_{ij})^\top A_{ij}(x-b_{ij})`."""
        A, b = exact("A", A), exact("b", b)
        q = (A @ b.unsqueeze(-1)).squeeze(-1) if A.ndim > b.ndim else A * b
        return cls(A, q, 0.5 * (b * q).sum(-1), beta=beta, noise=noise)

    def digest(self) -> str:
        c = np.array(float(self.c.mean()))
        noise = [self.noise] if self.noise else []
        return digest("quadratic", self.H, self.q, *self.components, c, self.beta, *noise)

    def _place(self, dtype: torch.dtype, device: torch.device) -> None:
        self.device = device
        self._H = narrowed("A", self.H, dtype, device)
        self._minus_q = narrowed("q", -self.q, dtype, device)
        named = zip("Aq", self.components, strict=False)  # or there are none
        self._components = [narrowed(name, part, dtype, device) for name, part in named]

    def _oracle(self, members: np.ndarray) -> QuadraticOracle:
        given = members, self._H, self._minus_q
        if not self._components:
            return QuadraticOracle(*given, None, self.beta, self.noise)
        components = [part.flatten(0, 1) for part in self._components]
        held = Ragged.blocks(members, self.samples[0])

        def sample(y: Tensor, batch: Tensor) -> Tensor:
            (A, q), y = (held.drawn(part, batch) for part in components), y.unsqueeze(1)
            g = (A * y if A.ndim == q.ndim else (A @ y.unsqueeze(-1)).squeeze(-1)) - q
            return torch.bmm(weights(batch, g.dtype).unsqueeze(1), g).squeeze(1)

        return QuadraticOracle(*given, sample, self.beta, self.noise)


class LeastSquares(QuadraticForm):
    r"""Clients with :math:`f_i(x) = \frac12\|A_ix-b_i\|^2`, a sum over rows.

    ``A`` is ``[N, m, d]`` and ``b`` is ``[N, m]``.

    >>> LeastSquares([[[1.0], [1.0]]], [[1.0, 3.0]]).optimum.tolist()
    [2.0]
    """

    def __init__(self, A: Values, b: Values):
        self.A, self.b = exact("A", A), exact("b", b)
        if self.A.ndim != 3 or 0 in self.A.shape or self.b.shape != self.A.shape[:2]:
            raise ValueError(
                f"A of shape {list(self.A.shape)} does not go with b of {list(self.b.shape)}; give "
                "[clients, rows, d] and [clients, rows]"
            )
        self.clients, rows, self.dim = self.A.shape
        self.samples = [rows] * self.clients
        self.q = torch.bmm(self.b.unsqueeze(1), self.A).squeeze(1)
        self.c = 0.5 * self.b.square().sum(1)
        self._place(torch.float64, self.A.device)

    def digest(self) -> str:
        return digest("least squares", self.A, self.b)

    def hessian(self, client: int) -> Matrix:
        return (self.A[client].T @ self.A[client]).numpy(force=True)

    def mean_hessian(self) -> Tensor:
        rows = self.A.flatten(0, 1)
        return rows.T @ rows / self.clients

    def _values(self, y: Tensor, who: Tensor | slice) -> Tensor:
        residual = torch.bmm(y.unsqueeze(1), self.A[who].mT).squeeze(1) - self.b[who]
        return 0.5 * residual.square().sum(1)

    def _place(self, dtype: torch.dtype, device: torch.device) -> None:
        self.device = device
        self._A = narrowed("A", self.A, dtype, device)
        self._b = narrowed("b", self.b, dtype, device)
        self._minus_q = narrowed("A'b", -self.q, dtype, device)
        self._gram = narrowed("A'A", torch.bmm(self.A.mT, self.A), dtype, device)

    def _oracle(self, members: np.ndarray) -> QuadraticOracle:
        rows, targets = self._A.flatten(0, 1), self._b.flatten()
        held = Ragged.blocks(members, self.samples[0])

        def sample(y: Tensor, batch: Tensor) -> Tensor:
            A, b = held.drawn(rows, batch), held.drawn(targets, batch)
            residual = (A @ y.unsqueeze(-1)).squeeze(-1) - b
            weight = held.most * weights(batch, y.dtype)
            return torch.bmm((weight * residual).unsqueeze(1), A).squeeze(1)

        return QuadraticOracle(members, self._gram, self._minus_q, sample)


class Ridge(QuadraticForm):
    r"""Clients with :math:`f_i(x) = \frac1{2n_i}\sum_{j\in i}(a_j^\top x-b_j)^2
    +\frac{l_2}2\|x\|^2`.

    ``features [M, d]`` and ``targets [M]`` are split by ``parts``, index arrays of the clients.
    ``l2`` defaults to 1/M.

    >>> Ridge([[1.0], [1.0], [1.0]], [1.0, 2.0, 5.5], [[0, 1], [2]], l2=0.0).optimum.tolist()
    [3.5]
    """

    def __init__(
        self, features: Values, targets: Values, parts: Sequence[ArrayLike], l2: float | None = None
    ):
        a, b = exact("features", features), exact("targets", targets)
        order, self.held, self.l2 = divided(a, b, parts, l2)
        self.clients, self.samples = len(self.held), self.held.sizes.tolist()
        self.dim = a.shape[1]
        # Features and target side by side; a row of zeros at the end stands for no sample.
        self.rows = torch.cat([torch.column_stack([a, b])[order], a.new_zeros(1, self.dim + 1)])
        held = torch.split(self.rows[:-1], self.samples)
        products = torch.stack([own.T @ own / len(own) for own in held])
        self.H = products[:, :-1, :-1] + self.l2 * torch.eye(self.dim).to(a)
        self.q, self.c = products[:, :-1, -1], products[:, -1, -1] / 2
        self._place(torch.float64, a.device)

    def digest(self) -> str:
        return digest("ridge", self.rows, self.held.first, self.held.sizes, self.l2)

    def _place(self, dtype: torch.dtype, device: torch.device) -> None:
        self.device = device
        self._rows = narrowed("features", self.rows, dtype, device)
        self._H = narrowed("A'A", self.H, dtype, device)
        self._minus_q = narrowed("A'b", -self.q, dtype, device)

    def _oracle(self, members: np.ndarray) -> QuadraticOracle:
        held = self.held[members]

        def sample(y: Tensor, batch: Tensor) -> Tensor:
            A, b = held.drawn(self._rows, batch).tensor_split((self.dim,), -1)
            residual = weights(batch, y.dtype) * ((A @ y.unsqueeze(-1)) - b).squeeze(-1)
            return torch.bmm(residual.unsqueeze(1), A).squeeze(1) + self.l2 * y

        return QuadraticOracle(members, self._H, self._minus_q, sample)


def directions(key: Tensor, y: Tensor) -> Tensor:
    """A normal vector ``[C, d]`` for every key, like those of ``y``, whose square is 1 in
    expectation.
    """
    d = y.shape[-1]
    rows = [Generator(Philox(key=one)).standard_normal(d) for one in key.tolist()]
    return upload(np.stack(rows) / d**0.5, y.device).to(y.dtype)


def bend(y: Tensor, beta: float) -> Tensor:
    """Gradient of beta * sum_k y_k^2 / (1 + y_k^2)."""
    return 2 * beta * y / (1 + y * y) ** 2


def factor(H: Tensor, lam: float) -> Tensor:
    """H + lam I, factorised for ``back``; refused unless positive definite."""
    if H.ndim == 2:
        ready = H + lam
        definite = bool((ready > 0).all())
    else:
        ready, failed = torch.linalg.cholesky_ex(
            H + lam * torch.eye(H.shape[-1], dtype=H.dtype, device=H.device)
        )
        definite = not failed.any()
    if not definite:
        raise ValueError(f"some f_i + ({lam:g}/2)|y|^2 has no unique minimiser; raise lam")
    return ready


def back(factor: Tensor, rhs: Tensor) -> Tensor:
    """(H + lam I)^-1 rhs, row by row."""
    if factor.ndim == 2:
        return rhs / factor
    return torch.cholesky_solve(rhs.unsqueeze(-1), factor).squeeze(-1)


def minimiser(H: Matrix, q: Matrix) -> tuple[Tensor, Tensor | None] | None:
    """The least-norm minimiser of x'Hx/2 - q'x, and the map onto the range of a singular H."""
    values, basis = (H, None) if H.ndim == 1 else np.linalg.eigh(H)
    r = q if basis is None else basis.T @ q
    zero = np.abs(values) <= len(values) * np.finfo(float).eps * np.abs(values).max()
    if (values[~zero] < 0).any() or np.linalg.norm(r[zero]) > 1e-9 * np.linalg.norm(r):
        return None
    best = np.divide(r, values, where=~zero, out=np.zeros_like(r))
    span = (~zero).astype(float) if basis is None else basis[:, ~zero].T
    if basis is not None:
        best = basis @ best
    return torch.from_numpy(best), torch.from_numpy(span) if zero.any() else None


def _ends(spectra: list[Matrix]) -> tuple[float, float]:
    """Smallest and largest eigenvalue, a rounded zero read as 0."""
    low, high = min(float(s.min()) for s in spectra), max(float(s.max()) for s in spectra)
    tiny = len(spectra[0]) * np.finfo(float).eps * max(abs(low), abs(high))
    return 0.0 if abs(low) <= tiny else low, high
