"""Formulas of prescribed hyper-parameters: the largest values that the theorems allow.

``L`` is the smoothness and ``mu`` the strong convexity of every f_i, ``steps`` are the local steps
(tau, K), ``fraction`` is |S|/N.
"""

from __future__ import annotations

import math


class NoRule(ValueError):
    """Why theory has no value here and what to do instead, to be read after "theory for lr"."""

    def __init__(self, reason: str, remedy: str = "give it as a number"):
        super().__init__(f"{reason}: {remedy}")
        self.reason = reason


STRICT = 0.999
"""Factor applied where a theorem asks for "<"."""


def gd(L_mean: float) -> float:
    """lr = 1/L with L of f."""
    return 1 / L_mean


def fedavg(L: float, steps: int) -> float:
    """lr = 1/(tau L), a convention: a round moves about as far as one step of GD."""
    return 1 / (steps * L)


def fedrecu_convex(L: float, steps: int) -> float:
    """FedRecu, Theorem 1 (convex, exact): alpha <= 8/(13 tau L)."""
    return 8 / (13 * steps * L)


def fedrecu_nonconvex(L: float, steps: int) -> float:
    """FedRecu, Theorem 2 (nonconvex, exact): alpha <= 8/(17 tau L)."""
    return 8 / (17 * steps * L)


def fedrecu_convex_stochastic(L: float, steps: int) -> float:
    """FedRecu, Theorem 3 (convex, stochastic): alpha < 1/(6 tau L).

    The theorem's bound is infinite at the limit; its 1/K term is smallest at half of it.
    """
    return STRICT / (6 * steps * L)


def fedrecu_nonconvex_stochastic(L: float, steps: int) -> float:
    """FedRecu, Theorem 4 (nonconvex, stochastic): alpha < 1/(13 tau L), best at half of it too."""
    return STRICT / (13 * steps * L)


def scaffold_convex(L: float, steps: int, server_lr: float = 1.0) -> float:
    """SCAFFOLD (convex): eta_l <= 1/(81 L K eta_g), eta_g >= 1."""
    return 1 / (81 * L * steps * server_lr)


def scaffold_strongly_convex(
    L: float, mu: float, steps: int, server_lr: float = 1.0, fraction: float = 1.0
) -> float:
    """SCAFFOLD (strongly convex): also eta_l <= |S|/(15 mu N K eta_g), eta_g >= 1."""
    return min(scaffold_convex(L, steps, server_lr), fraction / (15 * mu * steps * server_lr))


def scaffold_nonconvex(
    L: float, steps: int, server_lr: float = 1.0, fraction: float = 1.0
) -> float:
    """SCAFFOLD (nonconvex): eta_l <= (|S|/N)^{2/3} / (24 K L eta_g), eta_g >= 1."""
    return math.pow(fraction, 2 / 3) / (24 * steps * L * server_lr)


def fedlin_convex(L: float, steps: int) -> float:
    """FedLin (convex, no compression): eta <= 1/(10 tau L)."""
    return 1 / (10 * steps * L)


def fedlin_nonconvex(L: float, steps: int) -> float:
    """FedLin (nonconvex, no compression): eta <= 1/(26 tau L)."""
    return 1 / (26 * steps * L)


def fedtrack(L: float, steps: int) -> float:
    """FedTrack: eta <= 1/(18 tau L)."""
    return 1 / (18 * steps * L)


def scaffnew_lr(L: float) -> float:
    """Scaffnew: gamma <= 1/L."""
    return 1 / L


def scaffnew_p(mu: float, lr: float) -> float:
    """Scaffnew: p^2 = gamma mu balances its rate; p = 1/sqrt(kappa) at gamma = 1/L."""
    return math.sqrt(lr * mu)


def extra(L: float, steps: int) -> float:
    """EXTRA: alpha = 1/(2 tau L).

    tau = 1: half of Shi et al.'s bound 2 lambda_min((I + W)/2)/L = 1/L at W = J. tau = 2..6: no
    theorem; the round map is stable on quadratics (tests), slow at 6. tau > 6: as alpha L -> 0 the
    map of the clients' disagreement over a round has trace (3 - tau)/2 and determinant 1/2, hence
    an eigenvalue below -1.
    """
    if steps > 6:
        reason = f"has no safe value for {steps} local steps, as small ones diverge too"
        raise NoRule(reason, "use at most 6 local steps")
    return 1 / (2 * steps * L)


def dane_lam(delta_A: float) -> float:
    """DANE, Corollary 21 (convex, exact solver): lambda >= delta_A."""
    return delta_A


def daneplus_lam(delta: float) -> float:
    """DANE+: lambda = 2 delta_A (convex, Corollary 5) or 2 delta_B (nonconvex, Corollary 2)."""
    return 2 * delta


def local_solver_lr(L: float, lam: float) -> float:
    """DANE+: 1/(L + lambda), the smoothness of the local subproblem."""
    return 1 / (L + lam)


def daneplus_dual_lam(mu: float, L: float) -> float:
    """DANE+ with control variate (B.82), Corollary 32: m = lambda = sqrt(mu L)."""
    return math.sqrt(mu * L)


def fedred_exact_eta(L: float, lam: float) -> float:
    """FedRed, exact solver, Section 4 and Theorem 7 (convex): eta = 2 L, and at least lambda."""
    return max(2 * L, lam)


def fedred_exact_eta_nonconvex(L: float, lam: float) -> float:
    """FedRed, exact solver, Theorem 6 (nonconvex): eta = 2 L, and at least 4 lambda."""
    return max(2 * L, 4 * lam)


def fedred_exact_p(mu: float, eta: float, lam: float) -> float:
    """FedRed, exact solver, Theorem 7 (convex): p = (lambda + mu/2)/(eta + mu/2)."""
    return (lam + mu / 2) / (eta + mu / 2)


def fedred_exact_p_nonconvex(eta: float, lam: float) -> float:
    """FedRed, exact solver, Theorem 6 (nonconvex): p = lambda/eta."""
    return lam / eta


def fedred_gd_eta(L: float, mu: float, lam: float, noise: float = 0.0) -> float:
    """FedRed-GD, Theorem 9 (convex): eta = L + sigma^2/eps, ``noise`` = sigma^2/eps.

    The theorem's "eta > L" is for sigma > 0 only: Lemma 35 needs eta >= L. Its delta_A + mu <= L
    keeps p <= 1; where it fails, L is replaced by lambda + mu, for which f_i is smooth too.
    """
    return max(L, lam + mu) + noise


def fedred_gd_p(mu: float, eta: float, lam: float) -> float:
    """FedRed-GD, Theorem 9 (convex): p = (lambda + mu/2)/(eta - mu/2)."""
    return (lam + mu / 2) / (eta - mu / 2)


def fedred_gd_eta_nonconvex(
    L: float, lam: float, sigma: float = 0.0, iterations: int = 0, gap: float = 1.0
) -> float:
    """FedRed-GD, Theorem 8 (nonconvex): eta = 3 L + sqrt(9 L^2 + L sigma^2 K/F0).

    That is 6 L without noise. The theorem needs delta_B <= L; where it fails, L is replaced by
    lambda, for which f_i is smooth too.
    """
    smooth = max(L, lam)
    return 3 * smooth + math.sqrt(9 * smooth**2 + smooth * sigma**2 * iterations / gap)


def fedred_gd_p_nonconvex(L: float, lam: float) -> float:
    """FedRed-GD, Theorem 8 (nonconvex): p = delta_B/L, with lambda = delta_B."""
    return lam / max(L, lam)


def fedred_dual_m(p: float, eta: float) -> float:
    """FedRed with control variate (B.116): m = p eta, the authors' default; no theorem."""
    return p * eta


def fedpd_eta(L: float) -> float:
    """FedPD, oracle I, Theorems 1 and 3: eta < (sqrt(5) - 1)/(4 L)."""
    return STRICT * (math.sqrt(5) - 1) / (4 * L)


def fedpd_eta_variance_reduced(L: float, local: int, period: int, batch: int | None) -> float:
    """FedPD, oracle II, Theorem 2: eta < 1/(3 (Q + sqrt(Q I/B)) L), I in rounds of the oracle.

    The root is for the variance of a gradient's change on B samples. Without a ``batch`` all
    samples are taken and there is none, as in the limit of large B.
    """
    spread = 0.0 if batch is None else math.sqrt(local * period / batch)
    return STRICT / (3 * (local + spread) * L)


def fedpd_gamma(eta: float) -> float:
    """FedPD, oracle II, Theorem 2: gamma > 5 eta.

    It prints 5 eta/(B sqrt(L)), which is not of eta's dimension. Its proof weighs 1/(2 eta) against
    6 eta/gamma^2, which needs gamma > sqrt(12) eta for any B and L, hence 5 eta without them.
    """
    return 5 * eta / STRICT
