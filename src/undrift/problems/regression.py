"""What binary and softmax regression share: data, optimum, constants and exact local minimisers."""

from __future__ import annotations

import abc
import copy
import dataclasses
import math
import operator
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property, reduce
from typing import Generic, Self, TypeVar

import numpy as np
import torch
from numpy.typing import ArrayLike
from torch import Tensor

from undrift._threads import each, one_thread
from undrift.core.problem import Constants, Oracle, Sums
from undrift.problems.exact import ExactProblem, Matrix, dissimilarity, numbers
from undrift.problems.ragged import Ragged, divided

BLOCK = 1 << 13
"""Samples that one core goes through at a time; eight times as many on a GPU."""
Block = TypeVar("Block")
"""So many samples of some clients, as a problem keeps them."""
Result = TypeVar("Result")


class NotConverged(ValueError):
    """Newton's method met a function without a minimiser it can reach."""


class Regularised(abc.ABC):
    """f_i(y) - <v, y> + (lam/2)|y|^2 for Newton's method; ``lam`` includes the clients' own l2."""

    def __init__(self, lam: float, v: Tensor):
        self.lam, self.v = lam, v

    @abc.abstractmethod
    def losses(self, y: Tensor) -> Tensor:
        """The weighted losses of the clients without any regularisation, ``[C]``."""

    @abc.abstractmethod
    def slopes(self, y: Tensor) -> tuple[Tensor, Tensor]:
        """Gradients ``[C, d]`` and Hessians ``[C, d, d]`` of the losses."""

    @abc.abstractmethod
    def terms(self) -> Tensor:
        """How large the terms of the losses' gradients can be, ``[C, d]``."""

    def value(self, y: Tensor) -> Tensor:
        """``[C]`` at ``y [C, d]``."""
        return self.losses(y) + (y * (0.5 * self.lam * y - self.v)).sum(1)

    def derivatives(self, y: Tensor) -> tuple[Tensor, Tensor]:
        """Gradients ``[C, d]`` and Hessians ``[C, d, d]``."""
        grad, hessian = self.slopes(y)
        eye = torch.eye(y.shape[1], dtype=y.dtype, device=y.device)
        return grad + self.lam * y - self.v, hessian + self.lam * eye

    def minimiser(self, tolerance: float, least: float = 0.0) -> Tensor:
        """Row-wise: one step on from where gradients are within ``tolerance``, relative to their
        terms or to ``least``.

        That step must be short: where the minimum is at infinity gradients vanish but steps do not.
        Quadratically convergent, it leaves only rounding errors. A finished row stays put, so that
        it does not depend on its neighbours.
        """
        size = (self.terms().norm(dim=1) + self.v.norm(dim=1)).clamp(min=least)
        y, done = torch.zeros_like(self.v), torch.zeros_like(size, dtype=torch.bool)
        for _ in range(300):
            grad, hess = self.derivatives(y)
            factor, failed = torch.linalg.cholesky_ex(hess)
            if failed.any():
                break
            step = -torch.cholesky_solve(grad.unsqueeze(-1), factor).squeeze(-1)
            rounding = 1e-15 * hess.norm(dim=(1, 2)) * y.norm(dim=1)
            near = (grad.norm(dim=1) <= tolerance * size + rounding) & (
                step.norm(dim=1) <= 1e-4 * (1 + y.norm(dim=1))
            )
            y = y + self._shorten(y, step, (grad * step).sum(1), ~done) * step
            done |= near
            if done.all():
                return y
        raise NotConverged("a logistic loss has no minimiser within reach; raise l2 or lam")

    def _shorten(self, y: Tensor, step: Tensor, slope: Tensor, active: Tensor) -> Tensor:
        """Step lengths ``[C, 1]``: 1 halved until the value falls enough; 0 where not active."""
        length = active.to(y.dtype)
        before = self.value(y)
        rounding = 1e-14 * (1 + before.abs())
        for _ in range(60):
            enough = (
                self.value(y + length.unsqueeze(1) * step)
                <= before + 1e-4 * length * slope + rounding
            )
            if enough.all():
                break
            length = torch.where(enough, length, length / 2)
        return length.unsqueeze(1)


class Pooled(Regularised):
    """The sum of the losses of several blocks, each the work of one core."""

    def __init__(self, blocks: Sequence[Regularised], lam: float):
        super().__init__(lam, torch.zeros_like(blocks[0].v))
        self.blocks, self.threads = blocks, torch.get_num_threads()

    def losses(self, y: Tensor) -> Tensor:
        return reduce(torch.add, self._each(lambda f: f.losses(y)))

    def slopes(self, y: Tensor) -> tuple[Tensor, Tensor]:
        grads, hessians = zip(*self._each(lambda f: f.slopes(y)), strict=True)
        return reduce(torch.add, grads), reduce(torch.add, hessians)

    def terms(self) -> Tensor:
        return reduce(torch.add, self._each(lambda f: f.terms()))

    def _each(self, work: Callable[[Regularised], Result]) -> list[Result]:
        return each(lambda block, halted: work(block), self.blocks, self.threads)


class RegressionOracle(Oracle):
    """The losses of some clients, whose samples are rows of one table."""

    held: Ragged
    device: torch.device
    """Of the float64 data."""
    is_exact: bool
    """Whether the data are in float64 already."""

    @abc.abstractmethod
    def some(self, which: slice, exact: bool = False) -> Self:
        """Some of these clients, in float64 if ``exact``."""

    @abc.abstractmethod
    def side_by_side(self, dim: int) -> int:
        """How many clients are solved at a time."""

    @abc.abstractmethod
    def regularised(self, v: Tensor, lam: float) -> Regularised:
        """What :meth:`solve` minimises."""

    def solve(self, v: Tensor, lam: float) -> Tensor:
        """By Newton's method in float64, to a gradient of 1e-12 relative to its terms."""
        if len(v) > (side := self.side_by_side(v.shape[1])):
            pieces, rows = self.apart if side == 1 else self.pieces(side), torch.split(v, side)
            return torch.cat([f.solve(row, lam) for f, row in zip(pieces, rows, strict=True)])
        f = self if self.is_exact else self._precise
        return f.regularised(v.to(self.device, torch.float64), lam).minimiser(1e-12).to(v)

    def pieces(self, side: int) -> Iterator[Self]:
        """So many clients at a time."""
        return (self.some(slice(c, c + side)) for c in range(0, len(self.held), side))

    @cached_property
    def apart(self) -> list[Self]:
        """The clients one by one."""
        return list(self.pieces(1))

    @cached_property
    def _precise(self) -> Self:
        return self.some(slice(None), exact=True)


class Regression(ExactProblem, Generic[Block]):
    """f_i is a convex loss of client i's samples plus (l2/2)|x|^2; ``l2`` defaults to 1/M."""

    labelled = True
    metric_samples = "train"
    held: Ragged
    total: int
    """M, the samples of all clients."""
    l2: float

    def _divide(self, a: Tensor, y: Tensor, parts: Sequence[ArrayLike], l2: float | None) -> Tensor:
        """Who holds which samples, of features ``a`` and labels ``y``; their numbers, client by
        client.
        """
        order, self.held, self.l2 = divided(a, y, parts, l2)
        self.clients, self.samples = len(self.held), self.held.sizes.tolist()
        self.total = len(order)
        return order

    def with_label_noise(self, noise: Mapping[int, np.ndarray]) -> Self:
        everyone = np.full(self.total, -1.0)
        for client, own in noise.items():
            first = self.held.first[client]
            everyone[first : first + len(own)] = own
        changed = np.flatnonzero(everyone >= 0)
        twin = copy.copy(self)
        for cached in ("optimum", "cheap_constants", "constants"):
            twin.__dict__.pop(cached, None)
        twin._relabel(torch.from_numpy(changed), torch.from_numpy(everyone[changed]))
        return twin.to(self.dtype, self.device)

    @abc.abstractmethod
    def _relabel(self, rows: Tensor, classes: Tensor) -> None:
        """Give rows of a copied table other labels, which numbers from 0 to 1 decide."""

    def metrics(self, x: Tensor) -> dict[str, float]:
        """Also ``accuracy``, the share of all samples classified right; ties count in part."""
        return self.of_pieces(self.pieces(x), x)

    def client_metrics(self, x: Tensor, members: np.ndarray | None = None) -> Sums:
        """``accuracy`` too; ties count in part."""
        x, held = self._exactly(x), self.held if members is None else self.held[members]
        if x.ndim == 1:
            given = [(x, self._gathered if members is None else self._gather(members))]
        else:
            clients = range(self.clients) if members is None else members.tolist()
            given = [(row, self._gather(np.array([i]))) for i, row in zip(clients, x, strict=True)]
        blocks = [(row, block) for row, some in given for block in some]
        found = each(lambda one, halted: self._judge(*one), blocks)
        sizes = torch.from_numpy(held.sizes).to(x.device)
        with one_thread():
            # Both as columns of one table, whose rows are the samples in the clients' order.
            rows = torch.cat([torch.stack(pair, 1) for pair in found])
            loss, right = torch.segment_reduce(rows, "mean", lengths=sizes).unbind(1)
        return {"loss": loss + self.l2 / 2 * x.square().sum(-1), "accuracy": right}

    @abc.abstractmethod
    def _judge(self, x: Tensor, block: Block) -> tuple[Tensor, Tensor]:
        """Of each sample at ``x``: its loss without l2, and whether it is classified right."""

    def pieces(self, x: Tensor, part: int = 0, parts: int = 1) -> Tensor:
        """One for each block of samples."""
        x, blocks = self._exactly(x), self._gathered
        some = blocks[len(blocks) * part // parts : len(blocks) * (part + 1) // parts]
        rows = each(lambda block, halted: self._measure(x, block), some)
        return torch.stack(rows) if rows else x.new_empty(0, 3 + len(x))

    @one_thread()
    def of_pieces(self, pieces: Tensor, x: Tensor) -> dict[str, float]:
        x, total = self._exactly(x), reduce(operator.add, pieces)
        loss, right, gap, grad = total[0], total[1], total[2], total[3:]
        values = {
            "loss": loss + self.l2 / 2 * (x @ x),
            "grad_norm": grad.norm(),
            "accuracy": right / self.total,
        }
        if self._known is not None:
            e = x - self._known
            values |= {"gap": gap + self.l2 / 2 * (e @ e), "distance": e.norm()}
        return numbers(values)

    def _exactly(self, x: Tensor) -> Tensor:
        return x.detach().to(self.precise, torch.float64)

    @cached_property
    def _known(self) -> Tensor | None:
        """The optimum where metrics are computed."""
        return None if self.optimum is None else self.optimum.to(self.precise)

    @cached_property
    def _gathered(self) -> list[Block]:
        """The blocks of all clients."""
        return self._gather(None)

    @abc.abstractmethod
    def _gather(self, members: np.ndarray | None) -> list[Block]:
        """The samples of ``members`` (everyone when ``None``) in blocks."""

    @abc.abstractmethod
    def _measure(self, x: Tensor, block: Block) -> Tensor:
        """What a block adds to the metrics at ``x``, ``[3 + d]``.

        Its loss without l2; how many samples are classified right, where ties count in part; its
        gap without l2, 0 where the optimum is not known; and its gradient, with a share of l2 that
        goes by the number of samples.
        """

    def _split(self, members: np.ndarray | None, device: torch.device) -> list[np.ndarray]:
        """The samples of some clients (all when ``None``) in blocks, as rows of the table."""
        held = self.held if members is None else self.held[members]
        return held.passes(BLOCK if device.type == "cpu" else 8 * BLOCK)

    @abc.abstractmethod
    def _pooled(self) -> Pooled:
        """f as the problem of one client with all samples."""

    @abc.abstractmethod
    def _held(self, held: Ragged) -> RegressionOracle:
        """The losses of some clients in float64, where the problem was given."""

    def _local(self, client: int) -> Regularised:
        """f_i."""
        f = self._held(self.held[client : client + 1])
        return f.regularised(torch.zeros(1, self.dim, dtype=torch.float64, device=f.device), 0.0)

    @abc.abstractmethod
    def _curvatures(self) -> tuple[float, float]:
        """Bounds on the curvature of every loss and of their mean, without l2."""

    def _reach(self) -> float:
        """Products that may be spent on a Newton step for the optimum, and on the deltas."""
        return math.inf

    @cached_property
    def optimum(self) -> Tensor | None:
        """The minimiser to a gradient of 1e-13; ``None`` where it is not unique or out of reach."""
        if self.total * self.dim**2 > self._reach():
            return None
        pooled = self._pooled()
        try:
            with one_thread():
                return pooled.minimiser(1e-13, least=1)[0].cpu()
        except NotConverged:
            return None

    @cached_property
    def cheap_constants(self) -> Constants:
        """``L`` bounds the curvature everywhere."""
        each, mean = self._curvatures()
        return Constants(L=each + self.l2, mu=self.l2, L_mean=mean + self.l2, mu_mean=self.l2)

    @cached_property
    def constants(self) -> Constants:
        """The deltas are local, at the optimum if known; an eigenvalue problem for each client."""
        delta_A = delta_B = None
        if (x := self.optimum) is not None and self.clients * self.dim**3 <= self._reach():
            delta_A, delta_B = dissimilarity(
                lambda i: _hessian(self._local(i), x), _hessian(self._pooled(), x), self.clients
            )
        return dataclasses.replace(self.cheap_constants, delta_A=delta_A, delta_B=delta_B)


def _hessian(f: Regularised, x: Tensor) -> Matrix:
    hessian: Matrix = f.derivatives(x.to(f.v).unsqueeze(0))[1][0].numpy(force=True)
    return hessian
