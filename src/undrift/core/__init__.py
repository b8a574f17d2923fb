"""What a method may touch. Importing it costs nothing: no torch, no NumPy."""

from undrift.core.local import Local
from undrift.core.method import Method, Phase, registry
from undrift.core.params import (
    BadParameters,
    Count,
    Fraction,
    Natural,
    NonNegative,
    OrTheory,
    Positive,
    Probability,
    Range,
)
from undrift.core.problem import Constants, Oracle, Problem, Unsupported
from undrift.core.struct import Message, Scratch, Sparse, State, Vec

__all__ = [
    "BadParameters",
    "Constants",
    "Count",
    "Fraction",
    "Local",
    "Message",
    "Method",
    "Natural",
    "NonNegative",
    "OrTheory",
    "Oracle",
    "Phase",
    "Positive",
    "Probability",
    "Problem",
    "Range",
    "Scratch",
    "Sparse",
    "State",
    "Unsupported",
    "Vec",
    "registry",
]
