from .battery import CHECKS, Failure, failures

__all__ = ["CHECKS", "Failure", "failures"]
