"""All hyper-parameters of a method from the length of one local step.

What has no default, or a penalty that no default fits, follows from the step s and the number K of
local steps: a client goes about K s far in a round, so that weights which hold it back are 1/(K s).
"""

from __future__ import annotations

from collections.abc import Callable

from undrift.core.method import Method
from undrift.methods import registry

Recipe = Callable[[float, int, int], dict[str, object]]
"""Of a step s, local steps K and parameters d: the hyper-parameters of a method."""


RECIPES: dict[str, Recipe] = {
    "DANE": lambda s, K, d: {"lam": 1 / (K * s)},
    "DANEPlus": lambda s, K, d: {"lr": s, "lam": 1 / (K * s)},
    "DANEPlusDual": lambda s, K, d: {"lr": s, "lam": 1 / (K * s), "m": 1 / (K * s)},
    "FedAvgM": lambda s, K, d: {"lr": s, "beta": 0.9},
    "FedCET": lambda s, K, d: {"lr": s, "c": 1 / (K * s)},
    "FedLinTopK": lambda s, K, d: {
        "lr": s,
        "k_server": max(1, d // 2),
        "k_client": max(1, d // 2),
    },
    "FedPD": lambda s, K, d: {"lr": s, "eta": K * s},
    "FedPDVR": lambda s, K, d: {"eta": s, "gamma": K * s},
    "FedProx": lambda s, K, d: {"lr": s, "mu": 0.1},
    "FedRed": lambda s, K, d: {"p": 1 / K, "eta": 1 / s, "lam": 1 / (K * s)},
    "FedRedDual": lambda s, K, d: {
        "p": 1 / K,
        "eta": 1 / s,
        "lam": 1 / (K * s),
        "m": 1 / (K * s),
    },
    "InexactDANE": lambda s, K, d: {"lr": s, "lam": 1 / (K * s)},
    "Scaffnew": lambda s, K, d: {"lr": s, "p": 1 / K},
    "ScaffoldM": lambda s, K, d: {"lr": s, "gamma": K * s},
    "SONATA": lambda s, K, d: {"beta": 1 / (K * s)},
    "SVRP": lambda s, K, d: {"eta": K * s, "p": 0.1},
}
PENALTIES: dict[str, Recipe] = {
    "FedADMM": lambda s, K, d: {"lr": s, "rho": 1 / (K * s), "rule": "all"},
    "FedDC": lambda s, K, d: {"lr": s, "alpha": 1 / (K * s)},
    "FedDyn": lambda s, K, d: {"lr": s, "alpha": 1 / (K * s)},
    "FedSpeed": lambda s, K, d: {"lr": s, "lam": K * s},
}
"""Convex problems alone: the defaults of these are meant for networks."""


def by_step(name: str, step: float, local: int, dim: int, convex: bool) -> Method:
    """A method of the registry with steps of that length."""
    known = RECIPES | PENALTIES if convex else RECIPES
    given = known[name](step, local, dim) if name in known else {"lr": step}
    return registry[name](**given)
