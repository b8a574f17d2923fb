"""Inequalities of the papers that methods are held to here, and that undrift computes nothing by.

Those that its tables are computed from are in ``undrift.theory.bounds``; letters are as there.
"""

import math
from typing import NamedTuple

from undrift.theory import bounds, fedcet


class OneStep(NamedTuple):
    """gap * (f(mean) - f*) + D+ <= contraction * D, D+ in expectation over the coin."""

    gap: float
    contraction: float


def fedrecu_descent_nonconvex(L: float, steps: int, lr: float) -> float:
    """The same for any f_i and alpha <= 8/(17 tau L) (Appendix E).

    It is at least the paper's 13 alpha^2 L tau/8.
    """
    return lr * steps - lr**2 * L * ((3 * steps - 1) ** 2 / 8 + steps * (steps - 1))


def dane_decrease(mu: float, lam: float) -> float:
    """(B.14): f(x+) <= f(x) - this |x+ - x|^2."""
    return (mu + lam) / 2


def daneplus_dual_weight(mu: float, L: float, lam: float) -> float:
    """(B.114): Phi = |x - x*|^2 + this mean_i |h_i - grad f_i(x*)|^2."""
    return (mu + L) / (lam**2 * (mu + L) + 2 * mu * L * lam)


def daneplus_dual_rate(mu: float, L: float, lam: float) -> float:
    """(B.115): Phi+ <= this Phi, for m = lam.

    At lam = sqrt(mu L), Corollary 32, it is 1 - 2 sqrt(mu)/(sqrt(L) + mu/sqrt(L) + 2 sqrt(mu)).
    """
    return max(lam * (mu + L) / (lam * (mu + L) + 2 * mu * L), (mu + L) / (2 * lam + mu + L))


def fedred_exact_step(mu: float, eta: float) -> OneStep:
    """(B.130) over (eta + mu/2)/2, at p = (lam + mu/2)/(eta + mu/2), eta >= lam >= delta_A."""
    return OneStep(gap=2 / (eta + mu / 2), contraction=1 - mu / (2 * eta + mu))


def fedred_exact(mu: float, eta: float, iterations: int, distance2: float) -> float:
    """Theorem 7: E[f(average) - f*] + (mu/4) E[D_K] <= (mu/2)/((1 + mu/(2 eta))^K - 1) distance2.

    The average weighs mean_i x_{i,k} by q^-k, q the contraction of ``fedred_exact_step``.
    """
    return bounds.dane(mu, 2 * eta, iterations, distance2)


def fedred_exact_nonconvex(eta: float, iterations: int, gap: float) -> float:
    """Theorem 6: E|grad f|^2 <= 150 eta gap/K at a uniform iterate."""
    return 150 * eta * gap / iterations


def fedred_gd_step(mu: float, eta: float) -> OneStep:
    """(B.182) without noise, at p = (lam + mu/2)/(eta - mu/2), lam >= delta_A, eta >= L."""
    return OneStep(gap=2 / (eta - mu / 2), contraction=1 - mu / (2 * eta - mu))


def fedcet_rates(mu: float, L: float, steps: int, lr: float, c: float) -> tuple[float, float]:
    """rho1 (of x) and rho2 (of d) of Corollary 1; lambda_max(M) = 1/c - alpha."""
    ta, B = steps * lr, fedcet.growth(steps)
    excess = (2 / (mu * ta) - 1) * B * ta**2 * L**2
    M = 1 / c - lr
    rho1 = (1 - (2 - ta * L) * mu * ta + excess * ta**2 * L**2) / (1 - mu * ta)
    rho2 = (M + excess * ta) / (M + (1 - mu * ta) * ta)
    return rho1, rho2


def fedcet_rate(mu: float, L: float, steps: int, lr: float, c: float) -> float:
    """rho = max(rho1, rho2), the contraction per communication; 1 where ``search`` ends."""
    return max(fedcet_rates(mu, L, steps, lr, c))


def fedcet_dual_weight(mu: float, steps: int, lr: float, c: float) -> float:
    """Corollary 1's Lyapunov function is sum_i |x_i - x*|^2 + this sum_i |d_i - d*_i|^2."""
    ta = steps * lr
    return ta / (1 - mu * ta) * (1 / c - lr + (1 - mu * ta) * ta)


def fedcet_distance2(
    mu: float,
    L: float,
    steps: int,
    lr: float,
    c: float,
    rounds: int,
    distance2: float,
    dual2: float,
) -> float:
    """Corollary 1: sum_i |x_i - x*|^2 after ``rounds``.

    ``distance2`` and ``dual2`` are the first sums over clients of |x_i - x*|^2 and |d_i - d*_i|^2.
    """
    return fedcet_rate(mu, L, steps, lr, c) ** rounds * (
        distance2 + fedcet_dual_weight(mu, steps, lr, c) * dual2
    )


def fedspeed_lr(L: float, steps: int, lam: float) -> float:
    """FedSpeed, Theorem 4.4: eta_l <= min{1/(32 sqrt(3K) L), 2 lambda}; see its kappa > 0."""
    return min(1 / (32 * math.sqrt(3 * steps) * L), 2 * lam)


def fedspeed_rho(L: float, alpha: float) -> float:
    """FedSpeed, Theorem 4.4: rho <= 1/(sqrt(6) alpha L); see its kappa > 0."""
    return 1 / (math.sqrt(6) * alpha * L)


def fedspeed_steps(lr: float, lam: float) -> int:
    """FedSpeed, Theorem 4.4: K >= lambda/eta_l."""
    return math.ceil(lam / lr)


def fedspeed_kappa(L: float, steps: int, lr: float, rho: float, alpha: float) -> float:
    """Theorem 4.4: kappa = 1/2 - 3 alpha^2 L^2 rho^2 - 1536 eta_l^2 L^2 K, to be positive.

    Either limit, of ``fedspeed_lr`` or of ``fedspeed_rho``, takes all of the 1/2.
    """
    return 1 / 2 - 3 * (alpha * L * rho) ** 2 - 1536 * (lr * L) ** 2 * steps


def fedspeed_floor(
    L: float,
    steps: int,
    lr: float,
    rho: float,
    alpha: float,
    lam: float,
    sigma_local: float,
    sigma_global: float,
) -> float:
    """Theorem 4.4: Phi, what remains of mean_t E|grad F|^2 as T grows."""
    local, far = sigma_local**2, sigma_global**2
    drift = 32 * lam * lr**2 * L**2 * steps * (16 * far + local)
    ascent = lam * (alpha * L * rho) ** 2 * (3 * far + local)
    return (drift + ascent) / fedspeed_kappa(L, steps, lr, rho, alpha)


def fedacg_lr(L: float, steps: int, lam: float, dissimilarity: float = 1.0) -> float:
    """FedACG: eta <= (1 - lambda)^2 / (64 K L (B^2 + 1)), B the gradient dissimilarity."""
    return (1 - lam) ** 2 / (64 * steps * L * (dissimilarity**2 + 1))
