"""Rounds and local steps that the bounds of theory need at the prescribed hyper-parameters."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable

import undrift.methods  # noqa: F401, fills the registry
from undrift.core.method import registry
from undrift.core.params import THEORY
from undrift.core.problem import Constants
from undrift.theory import bounds, has_rule, prescribe, steps
from undrift_papers import theorems
from undrift_papers.fedred.orders import At


def rule(name: str, at: At) -> dict[str, float]:
    """Every hyper-parameter that theory prescribes."""
    cls = registry[name]
    method = cls(**{f.name: THEORY for f in dataclasses.fields(cls) if has_rule(cls, f.name)})
    constants = Constants(L=at.L, mu=at.mu, delta_A=at.delta_A, delta_B=at.delta_B)
    return prescribe(method, constants, steps=1)


def first(bound: Callable[[int], float], target: float) -> int:
    """The first round or iteration at which ``bound`` is at most ``target``."""
    low, high = 0, 1
    while bound(high) > target:
        low, high = high, 2 * high
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if bound(middle) > target else (low, middle)
    return high


def gd_rounds(at: At) -> float:
    """FedRecu with one local step, which is GD (tests/methods)."""
    if at.mu > 0:
        rate = bounds.fedrecu_linear(
            at.mu, bounds.fedrecu_descent_convex(at.L, 1, rule("GD", at)["lr"])
        )
        return math.log(at.L / 2 * at.R2 / at.accuracy(1 / 2)) / -math.log(rate)
    if at.mu == 0:
        lr = steps.fedrecu_convex_stochastic(at.L, 1) / 2
        return first(lambda k: theorems.fedrecu_convex_stochastic(at.L, 1, lr, k, at.R2), at.eps)
    return first(
        lambda k: theorems.fedrecu_average(at.L, 1, steps.fedrecu_nonconvex(at.L, 1), k, at.F0),
        at.eps,
    )


def scaffnew_rounds(at: At) -> float:
    found = rule("Scaffnew", at)
    return found["p"] * at.log / -math.log(bounds.scaffnew_rate(at.mu, found["lr"], found["p"]))


def scaffnew_weight(at: At) -> float:
    found = rule("Scaffnew", at)
    return bounds.scaffnew_weight(found["lr"], found["p"])


def dane_rounds(at: At) -> float:
    lam = rule("DANE", at)["lam"]
    return first(lambda r: bounds.dane(at.mu, lam, r, at.R2), at.accuracy(1 / 2))


def daneplus_rounds(at: At) -> float:
    lam = rule("DANEPlus", at)["lam"]
    if at.mu < 0:
        return first(
            lambda r: theorems.daneplus_nonconvex(at.delta_B, lam / at.delta_B, r, at.F0), at.eps
        )
    return first(lambda r: bounds.daneplus(at.mu, lam, r, at.R2), at.accuracy(1 / 2))


def daneplus_condition(at: At) -> float:
    """1/(1 - contraction) of gradient descent on the local problem, convex by mu + lambda."""
    found = rule("DANEPlus", at)
    return 1 / (found["lr"] * (at.mu + found["lam"]))


def daneplus_accuracy(at: At) -> float:
    """By how much the local solver has to reduce |y - y*| before its rule holds."""
    found = rule("DANEPlus", at)
    return 1 / (
        found["lr"] * math.sqrt(theorems.daneplus_accuracy(at.mu, found["lam"], int(at.r1) - 1))
    )


def fedred_rounds(at: At) -> float:
    found = rule("FedRed", at)
    if at.mu < 0:
        return found["p"] * first(lambda k: theorems.fedred_gd_nonconvex(at.L, k, at.F0), at.eps)
    return found["p"] * first(
        lambda k: bounds.fedred_gd(at.mu, found["eta"], k, at.R2), at.accuracy(1 / 4)
    )


def svrp_contractions(at: At) -> float:
    return 1 / (at.mu * theorems.svrp_eta(at.mu, at.delta_A))
