"""FedCET's step size, weight and linear rate: its Algorithm 1, Theorem 1 and Corollary 1."""

from __future__ import annotations

import math
from typing import NamedTuple

from undrift.theory.steps import STRICT

INSIDE = 1 - 1e-9
"""Algorithm 1's conditions are strict; the search stops this factor short of where they fail."""


class Conditions(NamedTuple):
    """Left-hand sides of Algorithm 1; both must be positive."""

    A: float
    C: float


def growth(steps: int) -> float:
    """B = (1 + 2/tau)^(2 tau - 2)."""
    return (1 + 2 / steps) ** (2 * steps - 2)


def conditions(mu: float, L: float, steps: int, lr: float) -> Conditions:
    """A > 0 is rho2 < 1, C > 0 is rho1 < 1 (both for tau mu alpha < 1)."""
    tau, a, B = steps, lr, growth(steps)
    return Conditions(
        A=1 - tau * mu * a + tau * L**2 * B * a * (tau * a - 2 / mu),
        C=(1 - tau * L * a) * tau * mu * a + tau**3 * L**4 * B * a**3 * (tau * a - 2 / mu),
    )


def first(mu: float, L: float, steps: int) -> float:
    """alpha0, where Algorithm 1 starts."""
    B = growth(steps)
    return STRICT * min(
        1 / (2 * steps * L), mu**2 / (2 * steps * B * L**3), mu / (5 * steps * B * L**2)
    )


def search(mu: float, L: float, steps: int) -> float:
    """The end of the interval on which Algorithm 1's conditions hold, which its search approaches
    as h -> 0.

    With a = tau mu alpha, kappa = L/mu and k = kappa^2 B: A = k a^2 - (1 + 2k) a + 1 has its first
    root at
    a = 2/(1 + 2k + sqrt(1 + 4k^2)). C never fails before it: C/a = 1 - kappa a - kappa^4 B a^2 (2 -
    a), and
    a < 2/(1 + 4k) makes both subtracted terms less than 1/2 since B >= 1. So no root of the cubic
    is needed.
    """
    k = (L / mu) ** 2 * growth(steps)
    return INSIDE * 2 / (steps * mu * (1 + 2 * k + math.sqrt(1 + 4 * k**2)))


def grid_search(mu: float, L: float, steps: int, h: float | None = None) -> float:
    """Algorithm 1 as printed, from alpha0 in steps of ``h`` (the paper's 0.001 alpha0, about 1000
    L/mu of them).
    """
    start = first(mu, L, steps)
    h = 1e-3 * start if h is None else h
    taken = 0
    while min(conditions(mu, L, steps, start + taken * h)) > 0:
        taken += 1
    if not taken:
        raise ValueError(
            f"FedCET's search cannot start: alpha0 = {start:g} fails its conditions (mu > L?)."
        )
    return start + (taken - 1) * h


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
    """rho = max(rho1, rho2), the contraction per communication; 1 where ``search`` ends, since A =
    0 is rho2 = 1.
    """
    return max(rates(mu, L, steps, lr, c))


def dual_weight(mu: float, steps: int, lr: float, c: float) -> float:
    """Corollary 1's Lyapunov function is sum_i |x_i - x*|^2 + this times sum_i |d_i - d*_i|^2
    (where sum_i d_i = 0).
    """
    ta = steps * lr
    return ta / (1 - mu * ta) * (1 / c - lr + (1 - mu * ta) * ta)
