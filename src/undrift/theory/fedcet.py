"""FedCET's step size and weight: its Algorithm 1 and Theorem 1."""

from __future__ import annotations

import math

INSIDE = 1 - 1e-9
"""Algorithm 1's conditions are strict; the search stops this factor short of where they fail."""


def growth(steps: int) -> float:
    """B = (1 + 2/tau)^(2 tau - 2)."""
    return (1 + 2 / steps) ** (2 * steps - 2)


def search(mu: float, L: float, steps: int) -> float:
    """Where Algorithm 1's conditions stop to hold, which its search approaches as h -> 0.

    Its conditions are A > 0 and C > 0. With a = tau mu alpha, kappa = L/mu and k = kappa^2 B,
    A = k a^2 - (1 + 2k) a + 1 has its first root at a = 2/(1 + 2k + sqrt(1 + 4k^2)). C never fails
    before it: C/a = 1 - kappa a - kappa^4 B a^2 (2 - a), and a < 2/(1 + 4k) makes both subtracted
    terms less than 1/2 since B >= 1. So no root of the cubic is needed.
    """
    k = (L / mu) ** 2 * growth(steps)
    return INSIDE * 2 / (steps * mu * (1 + 2 * k + math.sqrt(1 + 4 * k**2)))


def weight(mu: float, lr: float) -> float:
    """Theorem 1: c <= mu/(2 mu alpha + 8)."""
    return mu / (2 * mu * lr + 8)
