"""Hyper-parameters left to theory: the rules that methods declare, applied to a problem."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

from undrift.core.method import Method
from undrift.core.params import THEORY, BadParameters
from undrift.core.problem import Constants
from undrift.theory.steps import NoRule


def has_rule(cls: type, field: str) -> bool:
    """Whether ``field`` of a method may be left to theory.

    Rules are not inherited: a theorem is about one recursion, and a subclass has another.
    """
    return field in vars(cls).get("prescribed", {})


def prescribe(
    method: Method,
    constants: Constants,
    *,
    steps: int,
    fraction: float = 1.0,
    batch: int | None = None,
    noisy: bool = False,
) -> dict[str, float]:
    """Values for the hyper-parameters of ``method`` that are given as "theory".

    ``steps`` are the local steps of a round, ``fraction`` is the share of the clients that take
    part in it. Without a ``batch`` local gradients are exact, unless they are ``noisy``. Raises
    BadParameters where a hyper-parameter has no rule, or its rule needs a constant that the problem
    does not have.
    """
    owner, known = type(method), Known(constants, steps, fraction, batch, noisy)
    open_fields = method.open_fields()
    wrong = {
        field: f"no theory prescribes {field}: give it as a number"
        for field in open_fields
        if not has_rule(owner, field)
    }
    values: dict[str, float] = {}
    for field, rule in owner.prescribed.items():
        if field not in open_fields or wrong:
            continue
        try:
            values[field] = rule(method, known)
        except NoRule as reason:
            wrong[field] = f"theory for {field} {reason}"
        else:
            method = dataclasses.replace(method, **{field: values[field]})
    if wrong:
        raise BadParameters(owner.__name__, wrong)
    return values


@dataclasses.dataclass(frozen=True)
class Known:
    """What a rule may use besides the method: the problem's constants and the round's numbers."""

    constants: Constants
    steps: int
    """Local steps of a round."""
    fraction: float = 1.0
    """Share of the clients that take part in a round."""
    batch: int | None = None
    """Samples of a mini-batch; ``None`` where local gradients are of all samples."""
    noisy: bool = False
    """Whether local gradients have noise of their own."""

    @property
    def L(self) -> float:
        """Smoothness of every f_i."""
        return self._positive("L", self.constants.L)

    @property
    def L_mean(self) -> float:
        """Smoothness of f."""
        mean = self.constants.L_mean
        return self.L if mean is None else self._positive("L_mean", mean)

    @property
    def mu(self) -> float:
        """Strong convexity of every f_i; 0 where there is none."""
        return max(self.constants.mu or 0.0, 0.0)

    @property
    def strong(self) -> float:
        """The same, for theorems that need it to be positive."""
        return self._positive("mu", self.constants.mu)

    @property
    def strong_mean(self) -> float:
        """Strong convexity of f, which must be positive; that of every f_i if no more is known."""
        mean = self.constants.mu_mean
        return self.strong if mean is None else self._positive("mu_mean", mean)

    @property
    def convex(self) -> bool:
        """Whether every f_i is known to be convex."""
        return self.constants.mu is not None and self.constants.mu >= 0

    @property
    def delta_A(self) -> float:
        """Averaged Hessian dissimilarity."""
        return self._known("delta_A", self.constants.delta_A)

    @property
    def delta_B(self) -> float:
        """Bounded Hessian dissimilarity."""
        return self._known("delta_B", self.constants.delta_B)

    @property
    def stochastic(self) -> bool:
        """Whether local gradients are those of mini-batches, or have noise."""
        return self.batch is not None or self.noisy

    def need_convex(self) -> None:
        """Refuse problems that are not known to be convex."""
        if (mu := self._known("mu", self.constants.mu)) < 0:
            raise NoRule(f"needs mu >= 0, but the problem has mu = {mu:g}")

    def _positive(self, name: str, value: float | None) -> float:
        if (value := self._known(name, value)) <= 0:
            raise NoRule(f"needs {name} > 0, but the problem has {name} = {value:g}")
        return value

    def _known(self, name: str, value: float | None) -> float:
        if value is None:
            raise NoRule(f"needs {name}, which the problem does not know")
        return value


Rule = Callable[[Any, Known], float]
"""A hyper-parameter from its method, in which those of earlier rules are set, and what is known."""


def rules(**by_field: Rule) -> dict[str, Rule]:
    """What a method declares as ``prescribed``: a rule for each of these hyper-parameters."""
    return by_field


def given(value: object) -> bool:
    """Whether a hyper-parameter is a number, not left to theory."""
    return value != THEORY


def probability(p: float) -> float:
    """``p`` as a probability of communicating: at most 1, and refused where it is not positive."""
    if p <= 0:
        raise NoRule(f"gives {p:g}, which is not a positive probability")
    return min(p, 1.0)
