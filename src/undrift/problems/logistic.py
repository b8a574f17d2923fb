"""Regularised logistic regression."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import logsigmoid

from undrift.core.problem import Constants
from undrift.problems.digest import digest
from undrift.problems.exact import Resident, exact
from undrift.problems.logistic_oracle import LogisticOracle, divergence
from undrift.problems.newton import NotConverged, minimise
from undrift.problems.ragged import Held, owned
from undrift.problems.spectra import Matrix, dissimilarity, largest_eigenvalue


class Logistic(Resident):
    r"""Clients with :math:`f_i(x) = \frac NM\sum_{j\in i}\log(1+e^{-y_ja_j^\top x}) +
    \frac{l_2}2\|x\|^2`.

    ``features [M, d]`` and ``labels [M]`` in {-1, +1} are split by ``parts``, index arrays of N
    clients that hold M
    samples together: f is the pooled loss. ``l2`` defaults to 1/M.
    """

    def __init__(self, features: Any, labels: Any, parts: Sequence[Any], l2: float | None = None):
        features, labels = exact("features", features), exact("labels", labels)
        if features.ndim != 2 or labels.shape != features.shape[:1]:
            raise ValueError(
                f"features of shape {list(features.shape)} do not go with labels of shape {list(labels.shape)}; "
                "give [samples, d] and [samples]"
            )
        if not bool((labels.abs() == 1).all()):
            raise ValueError("labels must be -1 or +1; map the two classes to them")
        numbers, self.held = owned(parts, len(labels))
        order = torch.from_numpy(numbers).to(features.device)
        self.clients, self.dim = len(self.held), features.shape[1]
        self.samples = self.held.sizes.tolist()
        self.total = len(order)
        self.weight = self.clients / self.total
        self.l2 = 1 / self.total if l2 is None else float(l2)
        if not 0 <= self.l2 < float("inf"):
            raise ValueError(f"l2 = {l2} is not allowed: a finite number >= 0")
        # One row of zeros at the end: index -1, the mark of no sample and of padding, adds nothing
        # to a gradient.
        self.rows = torch.cat(
            [-labels[order, None] * features[order], features.new_zeros(1, self.dim)]
        )
        self._place(torch.float64, features.device)

    def digest(self) -> str:
        return digest("logistic", self.rows, self.held.first, self.held.sizes, self.l2)

    @cached_property
    def optimum(self) -> Tensor | None:
        """The minimiser to a gradient of 1e-13; ``None`` where l2 = 0 leaves none, or several."""
        pooled = self._pooled(self.rows)
        zero = torch.zeros(1, self.dim, dtype=torch.float64, device=self.rows.device)
        f = pooled.regularised(zero, 0.0)
        try:
            return minimise(f, zero, 1e-13 * f.size().clamp(min=1))[0].cpu()
        except NotConverged:
            return None

    @cached_property
    def constants(self) -> Constants:
        """``L`` bounds the curvature everywhere; ``delta_A`` and ``delta_B`` are local, at the
        optimum.
        """
        largest = [
            largest_eigenvalue(self._local(i).stack[0].cpu().numpy()) for i in range(self.clients)
        ]
        pooled = self._pooled(self.rows)
        delta_A, delta_B = None, None
        if self.optimum is not None:
            mean = self._hessian(pooled)
            delta_A, delta_B = dissimilarity(
                lambda i: self._hessian(self._local(i)), mean, self.clients
            )
        return Constants(
            L=self.weight * max(largest) / 4 + self.l2,
            mu=self.l2,
            L_mean=largest_eigenvalue(pooled.stack[0].cpu().numpy()) / (4 * self.total) + self.l2,
            mu_mean=self.l2,
            delta_A=delta_A,
            delta_B=delta_B,
        )

    def metrics(self, x: Tensor) -> dict[str, float]:
        """Also ``accuracy`` on all samples, a score of 0 counting half."""
        pooled, best, t_best = self._gauge
        x = x.detach().to(pooled.rows)
        t = pooled.stack[0] @ x
        values = {
            "loss": -logsigmoid(-t).mean() + self.l2 / 2 * (x @ x),
            "grad_norm": pooled.grad(x.unsqueeze(0)).norm(),
            "accuracy": (1 - t.sign()).mean() / 2,
        }
        if best is not None and t_best is not None:
            e = x - best
            values |= {
                "gap": divergence(t, t_best).mean() + self.l2 / 2 * (e @ e),
                "distance": e.norm(),
            }
        return dict(zip(values, torch.stack(list(values.values())).tolist(), strict=True))

    def _place(self, dtype: torch.dtype, device: torch.device) -> None:
        self.device = device
        self._exact = self.rows.to(self.precise)
        self._rows = self._exact.to(dtype).to(device)

    def _oracle(self, members: np.ndarray) -> LogisticOracle:
        return LogisticOracle(self._rows, self._exact, self.held[members], self.weight, self.l2)

    def _local(self, client: int) -> LogisticOracle:
        return LogisticOracle(
            self.rows, self.rows, self.held[client : client + 1], self.weight, self.l2
        )

    def _pooled(self, rows: Tensor) -> LogisticOracle:
        """f as the problem of one client with all samples."""
        return LogisticOracle(
            rows, rows, Held(np.array([0]), np.array([self.total])), 1 / self.total, self.l2
        )

    def _hessian(self, f: LogisticOracle) -> Matrix:
        """At the optimum."""
        assert self.optimum is not None
        x = self.optimum.to(f.rows).unsqueeze(0)
        return f.regularised(x, 0.0).derivatives(x)[1][0].cpu().numpy()

    @cached_property
    def _gauge(self) -> tuple[LogisticOracle, Tensor | None, Tensor | None]:
        pooled = self._pooled(self._exact)
        best = None if self.optimum is None else self.optimum.to(self.precise)
        return pooled, best, None if best is None else pooled.stack[0] @ best
