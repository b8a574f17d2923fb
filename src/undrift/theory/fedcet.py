"""FedCET's step size, weight and linear rate: its Algorithm 1, Theorem 1 and Corollary 1."""

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


def rates(mu: float, L: float, steps: int, lr: float, c: float) -> tuple[float, float]:
    """rho1 (of x) and rho2 (of d) of Corollary 1; lambda_max(M) = 1/c - alpha."""
    ta, B = steps * lr, growth(steps)
    excess = (2 / (mu * ta) - 1) * B * ta**2 * L**2
    M = 1 / c - lr
    rho1 = (1 - (2 - ta * L) * mu * ta + excess * ta**2 * L**2) / (1 - mu * ta)
    rho2 = (M + excess * ta) / (M + (1 - mu * ta) * ta)
    return rho1, rho2


def rate(mu: float, L: float, steps: int, lr: float, c: float) -> float:
    """rho = max(rho1, rho2), the contraction per communication; 1 where ``search`` ends."""
    return max(rates(mu, L, steps, lr, c))


def dual_weight(mu: float, steps: int, lr: float, c: float) -> float:
    """Corollary 1's Lyapunov function is sum_i |x_i - x*|^2 + this sum_i |d_i - d*_i|^2."""
    ta = steps * lr
    return ta / (1 - mu * ta) * (1 / c - lr + (1 - mu * ta) * ta)
