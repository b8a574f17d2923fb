"""Bounds and a step of theorems that only the papers' tables use: no run of undrift goes by them.

Names are those of ``undrift.theory.bounds``.
"""

from __future__ import annotations

import math


def fedrecu_average(L: float, steps: int, lr: float, rounds: int, gap: float) -> float:
    """Theorem 2: mean_k |grad f(x_k)|^2 <= 8 gap/(13 alpha^2 L tau K)."""
    return 8 * gap / (13 * lr**2 * L * steps * rounds)


def fedrecu_convex_stochastic(
    L: float, steps: int, lr: float, rounds: int, distance2: float, sigma: float = 0.0
) -> float:
    """Theorem 3: E f(mean_k x_k) - f* <= (distance2/K + 34 (a sigma)^2)/(2 a - 12 L a^2).

    Here a = alpha tau.
    """
    at = lr * steps
    return (distance2 / rounds + 34 * at**2 * sigma**2) / (2 * at - 12 * L * at**2)


def fedrecu_nonconvex_stochastic(
    L: float, steps: int, lr: float, rounds: int, gap: float, sigma: float = 0.0
) -> float:
    """Theorem 4: mean_k E|grad f(x_k)|^2 <= 2 (gap/K + 22 L (a sigma)^2)/(a - 13 L a^2).

    Here a = alpha tau.
    """
    at = lr * steps
    return 2 * (gap / rounds + 22 * at**2 * L * sigma**2) / (at - 13 * L * at**2)


def daneplus_accuracy(mu: float, lam: float, round: int) -> float:
    """Corollary 5: in round r = 0, 1, ... solvers may stop at |grad F(y)|^2 <= this |y - x|^2."""
    return lam * (mu + lam) / (8 * (round + 1) * (round + 2))


def daneplus_nonconvex(
    delta_B: float, a: float, rounds: int, gap: float, errors2: float = 0.0
) -> float:
    """Theorem 1, lam = a delta_B, ``errors2`` = sum_r e_r^2.

    min_r |grad f(x_r)|^2 <= 4 (a+1)^2 delta_B gap/((a-1) R) + (2/R) errors2.
    """
    return 4 * (a + 1) ** 2 * delta_B * gap / ((a - 1) * rounds) + 2 * errors2 / rounds


def fedred_gd_nonconvex(L: float, iterations: int, gap: float, sigma: float = 0.0) -> float:
    """Theorem 8: E|grad f|^2 <= 96 L gap/K + 24 sqrt(L gap/K) sigma at a uniform iterate."""
    return 96 * L * gap / iterations + 24 * math.sqrt(L * gap / iterations) * sigma


def svrp_eta(mu: float, delta_A: float) -> float:
    """SVRP (strongly convex): eta = mu/(2 delta_A^2), with p = 1/N."""
    return mu / (2 * delta_A**2)
