"""All hyper-parameters of a method from the length of one local step.

What has no default, or a penalty that no default fits, follows from the step s and the number K of
local steps: a client goes about K s far in a round, so that weights which hold it back are 1/(K s).
"""

from __future__ import annotations

from undrift.core.method import Method
from undrift.methods import registry


def by_step(name: str, step: float, local: int, dim: int, convex: bool) -> Method:
    """A method of the registry with steps of that length."""
    far, half = local * step, max(1, dim // 2)
    hold = 1 / far
    given: dict[str, dict[str, object]] = {
        "DANE": {"lam": hold},
        "DANEPlus": {"lr": step, "lam": hold},
        "DANEPlusDual": {"lr": step, "lam": hold, "m": hold},
        "FedAvgM": {"lr": step, "beta": 0.9},
        "FedCET": {"lr": step, "c": hold},
        "FedLinTopK": {"lr": step, "k_server": half, "k_client": half},
        "FedPD": {"lr": step, "eta": far},
        "FedPDVR": {"eta": step, "gamma": far},
        "FedProx": {"lr": step, "mu": 0.1},
        "FedRed": {"p": 1 / local, "eta": 1 / step, "lam": hold},
        "FedRedDual": {"p": 1 / local, "eta": 1 / step, "lam": hold, "m": hold},
        "InexactDANE": {"lr": step, "lam": hold},
        "Scaffnew": {"lr": step, "p": 1 / local},
        "ScaffoldM": {"lr": step, "gamma": far},
        "SONATA": {"beta": hold},
        "SVRP": {"eta": far, "p": 0.1},
    }
    if convex:  # the defaults of their penalties are meant for networks
        given |= {
            "FedADMM": {"lr": step, "rho": hold, "rule": "all"},
            "FedDC": {"lr": step, "alpha": hold},
            "FedDyn": {"lr": step, "alpha": hold},
            "FedSpeed": {"lr": step, "lam": far},
        }
    return registry[name](**given.get(name, {"lr": step}))
