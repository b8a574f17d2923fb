from .battery import CHECKS, Failure, Result, examine, failures

__all__ = ["CHECKS", "Failure", "Result", "examine", "failures"]
