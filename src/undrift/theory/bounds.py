"""The papers' inequalities: right-hand sides and Lyapunov coefficients.

``distance2`` is |x0 - x*|^2, ``gap`` is f(x0) - f*, ``rounds`` and ``iterations`` count from 1.
"""

from __future__ import annotations

import math


def gd(mu: float, lr: float, rounds: int, gap: float) -> float:
    """gap_K <= (1 - lr mu)^K gap for lr <= 1/L: descent lemma and |grad f|^2 >= 2 mu gap."""
    return max(1 - lr * mu, 0.0) ** rounds * gap


# FedRecu (paper 000)


def fedrecu_descent_convex(L: float, steps: int, lr: float) -> float:
    """gamma of f(x_{k+1}) <= f(x_k) - gamma |grad f(x_k)|^2 (Appendix C).

    For convex f_i and alpha <= 8/(13 tau L).
    """
    return lr * steps - lr**2 * L * ((3 * steps - 1) ** 2 / 8 + steps * (steps - 1) / 2)


def fedrecu_linear(mu: float, gamma: float) -> float:
    """Remark 2: gap_{k+1} <= (1 - 2 mu gamma) gap_k, mu of f (strong convexity or PL)."""
    return 1 - 2 * mu * gamma


# DANE and DANE+ (paper 001, Algorithm 1)


def dane(mu: float, lam: float, rounds: int, distance2: float) -> float:
    """(B.15): f(x_R) - f* + (mu/2) |x_R - x*|^2 <= mu/(2 [(1 + mu/lam)^R - 1]) distance2.

    At mu = 0 the factor is lam/(2R).
    """
    return _geometric(mu, lam, rounds) / 2 * distance2


def daneplus(mu: float, lam: float, rounds: int, distance2: float, errors2: float = 0.0) -> float:
    """Theorem 4, or Theorem 3 with ``errors2`` = sum_r e_r^2 of absolute local errors.

    min_r f(x_r) - f* + (mu/2) mean_i |x_{i,R} - x*|^2
    <= mu/((1 + mu/lam)^R - 1) distance2 + 2/(mu + lam) errors2.
    """
    return _geometric(mu, lam, rounds) * distance2 + 2 / (mu + lam) * errors2


# FedRed (paper 001, Algorithms 2 and 3): D = |x - x*|^2 + mean_i |x_i - x*|^2


def fedred_gd(
    mu: float,
    eta: float,
    iterations: int,
    distance2: float,
    L: float | None = None,
    sigma: float = 0.0,
) -> float:
    """Theorem 9 (B.178): E[f(average) - f*] + (mu/4) E[D_K], the last iterates counting most.

    It is at most (mu/2)/((1 + mu/(2 eta - 2 mu))^K - 1) distance2 + sigma^2/(2 (eta - L)); ``L`` is
    needed for sigma > 0 only.
    """
    noise = sigma**2 / (2 * (eta - L)) if L is not None and sigma else 0.0
    return _geometric(mu, 2 * eta - 2 * mu, iterations) / 2 * distance2 + noise


# Scaffnew


def scaffnew_weight(lr: float, p: float) -> float:
    """Psi = sum_i |x_i - x*|^2 + (gamma/p)^2 sum_i |h_i - grad f_i(x*)|^2."""
    return (lr / p) ** 2


def scaffnew_rate(mu: float, lr: float, p: float) -> float:
    """E Psi+ <= (1 - min(gamma mu, p^2)) Psi, gamma <= 1/L."""
    return 1 - min(lr * mu, p**2)


def _geometric(mu: float, lam: float, rounds: int) -> float:
    """mu/((1 + mu/lam)^R - 1), and its limit lam/R at mu = 0."""
    if mu == 0 or lam == 0:
        return lam / rounds
    x = rounds * math.log1p(mu / lam)
    return mu * math.exp(-x) / -math.expm1(-x)
