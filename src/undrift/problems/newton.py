"""Newton's method with a line search, for many smooth convex functions side by side."""

from __future__ import annotations

from typing import Protocol

import torch
from torch import Tensor


class Smooth(Protocol):
    """C functions of d variables."""

    def value(self, y: Tensor) -> Tensor:
        """``[C]`` at ``y [C, d]``."""

    def derivatives(self, y: Tensor) -> tuple[Tensor, Tensor]:
        """Gradients ``[C, d]`` and Hessians ``[C, d, d]``."""


class NotConverged(ValueError):
    """Newton's method met a function without a minimiser it can reach."""


def minimise(f: Smooth, y: Tensor, tolerance: Tensor, limit: int = 300) -> Tensor:
    """Row-wise minimisers: one step on from where gradients are within ``tolerance [C]``.

    That step must be short: where the minimum is at infinity gradients vanish but steps do not.
    Quadratically convergent, it leaves only rounding errors. A finished row stays put, so that it
    does not depend on its neighbours.
    """
    done = torch.zeros_like(tolerance, dtype=torch.bool)
    for _ in range(limit):
        grad, hess = f.derivatives(y)
        factor, failed = torch.linalg.cholesky_ex(hess)
        if failed.any():
            break
        step = -torch.cholesky_solve(grad.unsqueeze(-1), factor).squeeze(-1)
        rounding = 1e-15 * hess.norm(dim=(1, 2)) * y.norm(dim=1)
        near = (grad.norm(dim=1) <= tolerance + rounding) & (
            step.norm(dim=1) <= 1e-4 * (1 + y.norm(dim=1))
        )
        y = y + _shorten(f, y, step, (grad * step).sum(1), ~done) * step
        done |= near
        if done.all():
            return y
    raise NotConverged("a logistic loss has no minimiser within reach; raise l2 or lam")


def _shorten(f: Smooth, y: Tensor, step: Tensor, slope: Tensor, active: Tensor) -> Tensor:
    """Step lengths ``[C, 1]``: 1 halved until the value falls enough; 0 where not active."""
    length = active.to(y.dtype)
    before = f.value(y)
    rounding = 1e-14 * (1 + before.abs())
    for _ in range(60):
        enough = (
            f.value(y + length.unsqueeze(1) * step) <= before + 1e-4 * length * slope + rounding
        )
        if enough.all():
            break
        length = torch.where(enough, length, length / 2)
    return length.unsqueeze(1)
