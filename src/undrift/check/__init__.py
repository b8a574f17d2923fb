"""The battery: what every method must pass, with no code of its own."""

from undrift.check.battery import CHECKS, Failure, battery

__all__ = ["CHECKS", "Failure", "battery"]
