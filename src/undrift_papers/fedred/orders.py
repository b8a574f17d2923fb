"""Orders of complexities, O(L/μ log(R0²/ε)) and the like, fitted to computable quantities."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

from undrift_papers.quoted import Quoted

SC, C, NC = "strongly convex", "convex", "nonconvex"


class At(NamedTuple):
    """Constants in the order the table is about: mu << delta << L, and eps small."""

    mu: float
    eps: float
    L: float = 1e6
    delta_A: float = 1e3
    delta_B: float = 1e3
    R2: float = 1.0
    F0: float = 1.0
    n: float = 10.0
    r1: float = 1e3

    @property
    def log(self) -> float:
        return math.log(self.R2 / self.eps)

    def accuracy(self, share: float) -> float:
        """What a bound on gap + share mu |x - x*|^2 has to reach.

        eps is |x - x*|^2 if mu > 0, else the gap.
        """
        return share * self.mu * self.eps if self.mu > 0 else self.eps


AT = {SC: At(mu=1.0, eps=1e-150), C: At(mu=0.0, eps=1e-6), NC: At(mu=-1.0, eps=1e-6)}
SYMBOLS = {
    "L": "L",
    "delta_A": "δ_A",
    "delta_B": "δ_B",
    "R2": "R0²",
    "F0": "F0",
    "mu": "μ",
    "eps": "ε",
    "n": "n",
    "r1": "(r+1)",
}
Quantity = Callable[[At], float]


class PowerLaw(NamedTuple):
    """constant * product of powers, times log(R0²/eps) where ``log``."""

    constant: float
    powers: dict[str, float]
    log: bool

    def __str__(self) -> str:
        root = all(p % 1 for p in self.powers.values())
        powers = {name: 2 * p for name, p in self.powers.items()} if root else self.powers
        over = " ".join(_power(name, p) for name, p in powers.items() if p > 0) or "1"
        under = " ".join(_power(name, -p) for name, p in powers.items() if p < 0)
        under = f"({under})" if " " in under else under
        ratio = f"{over}/{under}" if under else over
        text = f"√({ratio})" if root else ratio
        number = f"{self.constant:.2g}"
        if number != "1":
            text = f"{number} {text}"
        return f"{text} log(R0²/ε)" if self.log else text


def _power(name: str, power: float) -> str:
    return f"{SYMBOLS[name]}²" if power == 2 else SYMBOLS[name]


def order(f: Quantity, at: At) -> PowerLaw:
    """The leading term of ``f`` near ``at``, its powers fitted."""
    log = math.isclose(f(at._replace(eps=at.eps**2)), 2 * f(at), rel_tol=0.1)

    def rest(at: At) -> float:
        return f(at) / at.log if log else f(at)

    powers = {}
    for name in SYMBOLS:
        slope = math.log(rest(at._replace(**{name: 4 * getattr(at, name)})) / rest(at), 4)
        if abs(2 * slope - round(2 * slope)) > 0.05:
            raise ValueError(f"not a power of {name}: {slope:.3f}")
        if round(2 * slope):
            powers[name] = round(2 * slope) / 2
    return PowerLaw(
        rest(at) / math.prod(getattr(at, n) ** p for n, p in powers.items()), powers, log
    )


def same_order(printed: str, claim: Quantity, ours: Quantity, at: At) -> Quoted:
    """Ours as its fitted order, and whether the printed claim has the same powers."""
    mine, theirs = order(ours, at), order(claim, at)
    return Quoted(printed, str(mine), mine[1:] == theirs[1:])
