from .battery import CHECKS, Failure, battery

__all__ = ["CHECKS", "Failure", "battery"]
