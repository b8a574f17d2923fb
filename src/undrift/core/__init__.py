"""What a method may touch. Importing it costs nothing: no torch, no NumPy."""

from undrift.core import aggregation, schedules
from undrift.core.cohort import Cohort
from undrift.core.local import Grad, Local
from undrift.core.method import Exchange, Method, Phase, Reduction, Round, Who, registry
from undrift.core.params import (
    BadParameters,
    Count,
    Fraction,
    Natural,
    NonNegative,
    OrAuto,
    OrTheory,
    Positive,
    Probability,
    Range,
)
from undrift.core.problem import Constants, Oracle, Problem, Unsupported
from undrift.core.struct import Message, Scratch, Sparse, State, Vec, length

__all__ = [
    "BadParameters",
    "Cohort",
    "Constants",
    "Count",
    "Exchange",
    "Fraction",
    "Grad",
    "Local",
    "Message",
    "Method",
    "Natural",
    "NonNegative",
    "OrAuto",
    "OrTheory",
    "Oracle",
    "Phase",
    "Positive",
    "Probability",
    "Problem",
    "Range",
    "Reduction",
    "Round",
    "Scratch",
    "Sparse",
    "State",
    "Unsupported",
    "Vec",
    "Who",
    "aggregation",
    "length",
    "registry",
    "schedules",
]
