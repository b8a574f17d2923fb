"""Prescribed hyper-parameters and convergence bounds; imports neither torch nor NumPy."""

from undrift.theory import bounds, fedcet, steps
from undrift.theory.prescribe import Known, given, has_rule, prescribe, probability, rules
from undrift.theory.promise import Promise, Start
from undrift.theory.steps import NoRule

__all__ = [
    "Known",
    "NoRule",
    "Promise",
    "Start",
    "bounds",
    "fedcet",
    "given",
    "has_rule",
    "prescribe",
    "probability",
    "rules",
    "steps",
]
