"""Multinomial logistic regression."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import Any

import numpy as np
import torch
from torch import Tensor

from undrift.core.problem import Constants
from undrift.problems.digest import digest
from undrift.problems.exact import Resident, exact, moderate
from undrift.problems.newton import NotConverged, minimise
from undrift.problems.ragged import owned
from undrift.problems.softmax_oracle import ROOM, Regularised, SoftmaxOracle, Table, divergence
from undrift.problems.spectra import Matrix, dissimilarity

PASS = 1 << 16
"""Samples at a time where all are gone through."""
REACH = 1e10
"""The optimum is found where a Newton step, of samples * d * d products, takes no more than this;
deltas likewise.
"""


class Softmax(Resident):
    r"""Clients with :math:`f_i(x) = \frac1{n_i}\sum_{j\in
    i}-\log\mathrm{softmax}(Wa_j+b)_{y_j}+\frac{l_2}2\|x\|^2`.

    ``features [M, p]`` and ``labels [M]``, whole numbers from 0 on, are split by ``parts``, index
    arrays of the
    clients. x holds the rows of [W, b]: p weights and a bias for each class. ``l2`` defaults to
    1/M. Features in
    float32 stay so at rest; whatever is computed is computed in the precision of the run.

    >>> Softmax([[1.0], [2.0], [3.0]], [0, 2, 1], [[0, 1], [2]]).dim
    6
    """

    def __init__(
        self,
        features: Any,
        labels: Any,
        parts: Sequence[Any],
        l2: float | None = None,
        classes: int | None = None,
    ):
        features, labels = _features(features), torch.as_tensor(labels)
        if features.ndim != 2 or labels.shape != features.shape[:1]:
            raise ValueError(
                f"features of shape {list(features.shape)} do not go with labels of shape {list(labels.shape)}; "
                "give [samples, p] and [samples]"
            )
        order, self.held = owned(parts, len(labels))
        self.classes = int(labels.max()) + 1 if classes is None else classes
        if (
            labels.is_floating_point()
            or not 0 <= int(labels.min()) <= int(labels.max()) < self.classes
        ):
            raise ValueError(
                f"labels must be whole numbers from 0 to classes - 1 = {self.classes - 1}"
            )
        self.clients, self.samples = len(self.held), self.held.sizes.tolist()
        self.total, self.dim = len(order), self.classes * (features.shape[1] + 1)
        self.l2 = 1 / self.total if l2 is None else float(l2)
        if not 0 <= self.l2 < float("inf"):
            raise ValueError(f"l2 = {l2} is not allowed: a finite number >= 0")
        chosen = torch.from_numpy(order).to(features.device)
        rows = features.new_empty(self.total + 1, features.shape[1] + 1)
        torch.index_select(features, 0, chosen, out=rows[:-1, :-1])
        rows[:, -1] = 1
        rows[-1] = 0
        labels = torch.nn.functional.pad(labels.to(features.device, torch.int64)[chosen], (0, 1))
        self.table = Table(rows, labels, self.classes, self.l2)
        self._place(torch.float64, features.device)

    def digest(self) -> str:
        table = self.table
        return digest(
            "softmax",
            table.rows,
            table.labels,
            self.classes,
            self.held.first,
            self.held.sizes,
            self.l2,
        )

    @cached_property
    def optimum(self) -> Tensor | None:
        """The minimiser to a gradient of 1e-13; ``None`` where l2 = 0 leaves several, or there are
        too many samples.
        """
        if not self.l2 or self.total * self.dim**2 > REACH:
            return None
        f = self._pooled(self.table)
        try:
            return minimise(f, torch.zeros_like(f.v), 1e-13 * f.size().clamp(min=1))[0].cpu()
        except NotConverged:
            return None

    @cached_property
    def constants(self) -> Constants:
        """``L`` bounds the curvature, where a softmax has at most 1/2; deltas are local, at the
        optimum if it is known.

        >>> round(Softmax([[1.0], [-1.0]], [0, 1], [[0, 1]], l2=0.0).constants.L, 12)
        0.5
        """
        whole = torch.stack(
            [x.T @ (w.unsqueeze(1) * x) for x, _, w in self._passes(self.table)]
        ).sum(0)
        delta_A, delta_B = None, None
        if self.optimum is not None and self.clients * self.dim**3 <= REACH:
            mean = self._hessian(self._pooled(self.table))
            delta_A, delta_B = dissimilarity(
                lambda i: self._hessian(self._local(i)), mean, self.clients
            )
        return Constants(
            L=self._largest / 2 + self.l2,
            mu=self.l2,
            L_mean=float(torch.linalg.eigvalsh(whole)[-1]) / 2 + self.l2,
            mu_mean=self.l2,
            delta_A=delta_A,
            delta_B=delta_B,
        )

    def metrics(self, x: Tensor) -> dict[str, float]:
        """Also ``accuracy``, the share of all samples classified right; a draw between classes
        counts in part.
        """
        x = x.detach().to(self.precise, torch.float64)
        best = None if self.optimum is None else self.optimum.to(x)
        W, grad, sums = (
            x.view(self.classes, -1),
            torch.zeros_like(x).view(self.classes, -1),
            x.new_zeros(3),
        )
        for a, labels, w in self._passes(self._exact):
            scores = W @ a.T
            logs = scores.log_softmax(0)
            own, top = logs.gather(0, labels.unsqueeze(0)), logs == logs.amax(0)
            right = top.gather(0, labels.unsqueeze(0)).to(w) / top.sum(0)
            gap = x.new_zeros(()) if best is None else w @ divergence(scores, best.view_as(W) @ a.T)
            sums += torch.stack([-(w @ own[0]), right.sum() / self.total, gap])
            grad += (
                logs.exp_().scatter_add_(0, labels.unsqueeze(0), -torch.ones_like(own)) * w
            ) @ a
        values = {
            "loss": sums[0] + self.l2 / 2 * (x @ x),
            "grad_norm": (grad + self.l2 * W).norm(),
            "accuracy": sums[1],
        }
        if best is not None:
            e = x - best
            values |= {"gap": sums[2] + self.l2 / 2 * (e @ e), "distance": e.norm()}
        return dict(zip(values, torch.stack(list(values.values())).tolist(), strict=True))

    def _place(self, dtype: torch.dtype, device: torch.device) -> None:
        self.device = device
        self._exact, kept = self.table.to(self.precise), self.table.rows.dtype
        self._table = self._exact.to(device, kept if dtype == torch.float64 else dtype)

    def _oracle(self, members: np.ndarray) -> SoftmaxOracle:
        return SoftmaxOracle(self._table, self._exact, self.held[members], self.dtype)

    def _passes(self, table: Table) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
        """All samples in turn: rows in float64, labels, and their weights in f."""
        weights = torch.from_numpy(np.repeat(1 / (self.clients * self.held.sizes), self.held.sizes))
        for part in (slice(k, min(k + PASS, self.total)) for k in range(0, self.total, PASS)):
            yield table.rows[part].double(), table.labels[part], weights[part].to(table.rows.device)

    def _pooled(self, table: Table) -> Regularised:
        """f as the problem of one client with all samples."""
        x, labels, w = (
            torch.cat(part).unsqueeze(0) for part in zip(*self._passes(table), strict=True)
        )
        return Regularised(
            x, table.hot(labels, x.dtype), w.unsqueeze(1), self.l2, x.new_zeros(1, self.dim)
        )

    def _local(self, client: int) -> Regularised:
        f = SoftmaxOracle(self.table, self.table, self.held[client : client + 1], torch.float64)
        return f.regularised(f.stack[0].new_zeros(1, self.dim), 0.0)

    def _hessian(self, f: Regularised) -> Matrix:
        """At the optimum."""
        assert self.optimum is not None
        return f.derivatives(self.optimum.to(f.v).unsqueeze(0))[1][0].cpu().numpy()

    @cached_property
    def _largest(self) -> float:
        """The largest eigenvalue of the clients' second moments."""
        everyone = SoftmaxOracle(self.table, self.table, self.held, torch.float64)
        side = (
            1 if self.held.wasteful else max(1, ROOM // (self.held.most * self.table.rows.shape[1]))
        )
        return max(
            float(torch.linalg.eigvalsh(_moments(f.stack[0], f.stack[2])).max())
            for f in everyone.pieces(side)
        )


def _moments(x: Tensor, weights: Tensor) -> Tensor:
    """The sums of w_j x_j x_j', or matrices with the same largest eigenvalues."""
    z = x * weights.mT.sqrt()
    return torch.bmm(z, z.mT) if z.shape[1] < z.shape[2] else torch.bmm(z.mT, z)


def _features(values: Any) -> Tensor:
    """A tensor of finite numbers: float32 is left as it is, all else becomes float64."""
    if isinstance(values, np.ndarray) and values.dtype == np.float32:
        values = torch.from_numpy(values)
    if not isinstance(values, Tensor) or values.dtype != torch.float32:
        return exact("features", values)
    return moderate("features", values.detach())
