"""Which rule gives which hyper-parameter of which method."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping

from undrift.core.params import THEORY
from undrift.core.problem import Constants
from undrift.theory import fedcet, steps


def has_rule(name: str, field: str) -> bool:
    """Whether ``field`` of the method ``name`` may be left to theory."""
    return field in RULES.get(name, {})


def prescribe(
    name: str,
    constants: Constants,
    *,
    steps: int,
    fields: Mapping[str, object],
    fraction: float = 1.0,
    batch: int | None = None,
) -> dict[str, float]:
    """Values for the fields of the method ``name`` given as "theory"; the other fields enter the
    formulas as they are.

    The convex variant is taken where every f_i is known to be convex (mu >= 0), else the nonconvex
    one. Without a
    ``batch`` local gradients are exact.
    """
    ask = Ask(name, constants, steps, fields, fraction, batch)
    return {field: ask[field] for field, value in fields.items() if value == THEORY}


@dataclasses.dataclass(frozen=True)
class Ask:
    """One question to the rules: ``ask.L`` is a constant, ``ask["lam"]`` a given or prescribed
    hyper-parameter.
    """

    method: str
    constants: Constants
    steps: int
    fields: Mapping[str, object]
    fraction: float
    batch: int | None

    def __getitem__(self, field: str) -> float:
        given = self.given(field)
        if given is not None:
            return given
        rule = RULES.get(self.method, {}).get(field)
        if rule is None:
            raise ValueError(f"{self.method}: no theory prescribes {field}; give it as a number.")
        return rule(self)

    def given(self, field: str) -> float | None:
        value = self.fields.get(field)
        return float(value) if isinstance(value, int | float) else None

    def positive(self, constant: str) -> float:
        value = self.known(constant)
        if value <= 0:
            raise ValueError(self.complaint(f"{constant} > 0", f"has {constant} = {value:g}"))
        return value

    def known(self, constant: str) -> float:
        value: float | None = getattr(self.constants, constant)
        if value is None:
            raise ValueError(self.complaint(constant, "does not know it"))
        return value

    def complaint(self, need: str, fact: str) -> str:
        asked = ", ".join(field for field, value in self.fields.items() if value == THEORY)
        return f"{self.method}: theory for {asked} needs {need}, but the problem {fact}; give numbers instead."

    @property
    def L(self) -> float:
        return self.positive("L")

    @property
    def L_mean(self) -> float:
        return self.L if self.constants.L_mean is None else self.positive("L_mean")

    @property
    def mu(self) -> float:
        """Strong convexity; 0 where there is none."""
        return max(self.constants.mu or 0.0, 0.0)

    @property
    def strong(self) -> float:
        return self.positive("mu")

    @property
    def convex(self) -> bool:
        return self.constants.mu is not None and self.constants.mu >= 0

    @property
    def averaged(self) -> bool:
        """Paper 001's convex theorems are for plain averaging; picking a random client needs the
        nonconvex ones.
        """
        return self.convex and self.fields.get("average", "avg") == "avg"

    @property
    def delta(self) -> float:
        return self.known("delta_A" if self.averaged else "delta_B")

    @property
    def stochastic(self) -> bool:
        return self.batch is not None

    def probability(self, p: float) -> float:
        if p <= 0:
            raise ValueError(
                f"{self.method}: theory gives p = {p:g}, which is not a probability; give p as a number."
            )
        return min(p, 1.0)


Rule = Callable[[Ask], float]


def fedrecu_lr(ask: Ask) -> float:
    if ask.stochastic:
        rule = steps.fedrecu_convex_stochastic if ask.convex else steps.fedrecu_nonconvex_stochastic
    else:
        rule = steps.fedrecu_convex if ask.convex else steps.fedrecu_nonconvex
    return rule(ask.L, ask.steps)


def scaffold_lr(ask: Ask) -> float:
    server_lr = max(ask.given("server_lr") or 1.0, 1.0)  # the theorems assume eta_g >= 1
    if not ask.convex:
        return steps.scaffold_nonconvex(ask.L, ask.steps, server_lr, ask.fraction)
    if ask.mu > 0:
        return steps.scaffold_strongly_convex(ask.L, ask.mu, ask.steps, server_lr, ask.fraction)
    return steps.scaffold_convex(ask.L, ask.steps, server_lr)


def dane_lam(ask: Ask) -> float:
    if ask.known("mu") < 0:
        raise ValueError(ask.complaint("mu >= 0", f"has mu = {ask.constants.mu:g}"))
    return steps.dane_lam(ask.known("delta_A"))


def fedlin_lr(ask: Ask) -> float:
    """Also for FedLinTopK, whose constants under compression could not be confirmed."""
    return (steps.fedlin_convex if ask.convex else steps.fedlin_nonconvex)(ask.L, ask.steps)


def daneplus_dual_lam(ask: Ask) -> float:
    m = ask.given("m")  # Lemma 31 holds for any lambda = m
    return steps.daneplus_dual_lam(ask.strong, ask.L) if m is None else m


def exact(ask: Ask) -> bool:
    return ask.fields.get("solver") == "exact"


def fedred_eta(ask: Ask) -> float:
    lam = ask["lam"]
    if exact(ask):
        return (steps.fedred_exact_eta if ask.averaged else steps.fedred_exact_eta_nonconvex)(
            ask.L, lam
        )
    if ask.averaged:
        return steps.fedred_gd_eta(
            ask.L, ask.mu, lam, noise=ask.L if ask.stochastic else 0.0
        )  # eps = sigma^2/L
    return steps.fedred_gd_eta_nonconvex(
        ask.L, lam
    )  # with noise too: (B.223) holds for any eta > 3L


def fedred_p(ask: Ask) -> float:
    lam = ask["lam"]
    if exact(ask):
        eta = ask["eta"]
        p = (
            steps.fedred_exact_p(ask.mu, eta, lam)
            if ask.averaged
            else steps.fedred_exact_p_nonconvex(eta, lam)
        )
    elif ask.averaged:
        p = steps.fedred_gd_p(ask.mu, ask["eta"], lam)
    else:
        p = steps.fedred_gd_p_nonconvex(ask.L, lam)
    return ask.probability(p)


def fedpd_lr(ask: Ask) -> float:
    """FedAvg's convention on what the oracle minimises, f_i + |y - x|^2/(2 eta): its smoothness is
    L + 1/eta.
    """
    return steps.fedavg(ask.L + 1 / ask["eta"], ask.steps)


def fedpdvr_eta(ask: Ask) -> float:
    if p := ask.given("p"):
        raise ValueError(
            f"{ask.method}: its theorem for eta is for p = 0, but p is {p:g}; leave out p, or give eta as a number."
        )
    I = int(ask.given("I") or 1)  # noqa: E741
    return steps.fedpd_eta_variance_reduced(ask.L, ask.steps, I, ask.batch)


FEDRED: dict[str, Rule] = {"eta": fedred_eta, "lam": lambda ask: ask.delta, "p": fedred_p}
LOCAL_SOLVER: dict[str, Rule] = {
    "lr": lambda ask: steps.local_solver_lr(ask.L, ask["lam"]),
    "mu": lambda ask: ask.mu,
}

RULES: dict[str, dict[str, Rule]] = {
    "GD": {"lr": lambda ask: steps.gd(ask.L_mean)},
    "FedAvg": {"lr": lambda ask: steps.fedavg(ask.L, ask.steps)},
    "FedProx": {"lr": lambda ask: steps.fedavg(ask.L + ask["mu"], ask.steps)},
    "FedRecu": {"lr": fedrecu_lr},
    "FedCET": {
        "lr": lambda ask: fedcet.search(ask.strong, ask.L, ask.steps),
        "c": lambda ask: fedcet.weight(ask.strong, ask["lr"]),
    },
    "EXTRA": {"lr": lambda ask: steps.extra(ask.L, ask.steps)},
    "Scaffold": {"lr": scaffold_lr},
    "FedLin": {"lr": fedlin_lr},
    "FedLinTopK": {"lr": fedlin_lr},
    "FedTrack": {"lr": lambda ask: steps.fedtrack(ask.L, ask.steps)},
    "Scaffnew": {
        "lr": lambda ask: steps.scaffnew_lr(ask.L),
        "p": lambda ask: ask.probability(steps.scaffnew_p(ask.strong, ask["lr"])),
    },
    "FedPD": {"eta": lambda ask: steps.fedpd_eta(ask.L), "lr": fedpd_lr},
    "FedPDVR": {"eta": fedpdvr_eta, "gamma": lambda ask: steps.fedpd_gamma(ask["eta"])},
    "DANE": {"lam": dane_lam},
    "DANEPlus": {"lam": lambda ask: steps.daneplus_lam(ask.delta), **LOCAL_SOLVER},
    "DANEPlusDual": {"lam": daneplus_dual_lam, "m": lambda ask: ask["lam"], **LOCAL_SOLVER},
    "FedRed": FEDRED,
    "FedRedDual": {**FEDRED, "m": lambda ask: steps.fedred_dual_m(ask["p"], ask["eta"])},
}
"""Method -> field -> rule."""
