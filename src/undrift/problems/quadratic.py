"""Quadratics, with or without components to draw mini-batches from."""

from __future__ import annotations

from typing import Self

import numpy as np
import torch
from torch import Tensor

from undrift.problems.digest import digest
from undrift.problems.exact import Values, exact, narrowed, weights
from undrift.problems.quadratic_form import Dense, Diagonal, QuadraticForm, QuadraticOracle
from undrift.problems.ragged import Ragged
from undrift.problems.spectra import Matrix, numpy


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
        if q.ndim not in (2, 3) or 0 in q.shape:
            raise ValueError(
                f"q has shape {list(q.shape)}; give [clients, d] or [clients, components, d]"
            )
        if A.shape not in (q.shape, (*q.shape, q.shape[-1])):
            raise ValueError(
                f"A has shape {list(A.shape)}, which does not go with q of shape {list(q.shape)}; "
                f"give {[*q.shape, q.shape[-1]]}, or {list(q.shape)} for diagonals"
            )
        if A.ndim > q.ndim and not torch.allclose(
            A, A.mT, rtol=1e-9, atol=1e-9 * float(A.abs().max())
        ):
            raise ValueError(
                "A is not symmetric; give (A + A') / 2, which defines the same function"
            )
        if c.ndim and c.shape != q.shape[:-1]:
            raise ValueError(
                f"c has shape {list(c.shape)}; give a number or shape {list(q.shape[:-1])}"
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

    def hessian(self, client: int) -> Matrix:
        return numpy(self.H[client])

    def mean(self, members: Tensor | None = None) -> Tensor:
        return self.H.mean(0) if members is None else self.H[members].sum(0) / self.clients

    def _values(self, y: Tensor, who: Tensor | slice) -> Tensor:
        H, q, c = self.H[who], self.q[who], self.c if not self.c.ndim else self.c[who]
        product = torch.bmm(y.unsqueeze(1), H).squeeze(1) if H.ndim == 3 else H * y
        return (y * (0.5 * product - q)).sum(1) + (c.mean(1) if c.ndim == 2 else c)

    def _place(self, dtype: torch.dtype, device: torch.device) -> None:
        self.device = device
        named = zip(("A", "q"), self.components, strict=False)  # there may be none
        self._components = tuple(narrowed(name, part, dtype, device) for name, part in named)
        self._H = narrowed("A", self.H, dtype, device)
        self._q = narrowed("q", self.q, dtype, device)

    def _oracle(self, members: np.ndarray) -> QuadraticOracle:
        sample = ComponentSampler(members, *self._components) if self._components else None
        kind = Dense if self.H.ndim == 3 else Diagonal
        oracle = kind(members, self._H, self._q, self.beta, sample)
        oracle.noise = self.noise
        return oracle


class ComponentSampler:
    """Mean gradients over the components of a mini-batch, from those of all clients."""

    def __init__(self, members: np.ndarray, A: Tensor, q: Tensor):
        self.A, self.q = A.flatten(0, 1), q.flatten(0, 1)
        self.held = Ragged.blocks(members, q.shape[1])

    def __call__(self, y: Tensor, batch: Tensor) -> Tensor:
        A, q, y = self.held.drawn(self.A, batch), self.held.drawn(self.q, batch), y.unsqueeze(1)
        g = (A * y if A.ndim == q.ndim else (A @ y.unsqueeze(-1)).squeeze(-1)) - q
        return torch.bmm(weights(batch, g.dtype).unsqueeze(1), g).squeeze(1)
