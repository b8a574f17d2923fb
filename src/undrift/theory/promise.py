"""What theorems promise of f(x) - f* to a run, and when they do not."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import Literal, NamedTuple

from undrift.core.method import Method
from undrift.theory.prescribe import Known, Rule
from undrift.theory.steps import NoRule

ROUNDING = 1e-9


class Start(NamedTuple):
    """Where a run begins."""

    gap: float
    distance2: float
    spread2: float
    """The mean of |grad f_i(x*)|^2."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Promise:
    """A theorem for convex f_i, all clients, exact gradients and plain means."""

    theorem: str
    gap: Callable[..., float]
    """Of the method, what is :class:`Known`, the :class:`Start`, and the count, from 1."""
    per: Literal["round", "iterations"] = "round"
    of: Literal["", " in expectation", " of the best so far"] = ""
    fixed: Mapping[str, object] = dataclasses.field(default_factory=dict)
    """Hyper-parameters that must have a value."""
    least: Mapping[str, Rule] = dataclasses.field(default_factory=dict)
    most: Mapping[str, Rule] = dataclasses.field(default_factory=dict)

    def refuse(self, method: Method, known: Known) -> None:
        """Raise :class:`NoRule` with the first condition that fails."""
        known.need_convex()
        for name, value in self.fixed.items():
            if getattr(method, name) != value:
                raise NoRule(f"needs {name} = {value}")
        for sign, rules in ((1, self.least), (-1, self.most)):
            for name, rule in rules.items():
                value, limit = getattr(method, name), rule(method, known)
                if sign * (value - limit) < -ROUNDING * abs(limit):
                    raise NoRule(f"needs {name} {'<>'[sign > 0]}= {limit:.4g}, not {value:.4g}")
