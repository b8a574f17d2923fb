"""Prescribed hyper-parameters and convergence bounds. Importing it loads neither torch nor NumPy."""

from undrift.theory import bounds, fedcet, steps
from undrift.theory.rules import has_rule, prescribe

__all__ = ["bounds", "fedcet", "has_rule", "prescribe", "steps"]
