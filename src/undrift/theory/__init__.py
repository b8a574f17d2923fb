"""Prescribed hyper-parameters and convergence bounds; imports neither torch nor NumPy."""

from undrift.theory import bounds, fedcet, steps
from undrift.theory.prescribe import Known, has_rule, prescribe, rules
from undrift.theory.steps import NoRule

__all__ = ["Known", "NoRule", "bounds", "fedcet", "has_rule", "prescribe", "rules", "steps"]
