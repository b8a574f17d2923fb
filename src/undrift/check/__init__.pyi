from .battery import CHECKS, examine, failures
from .checks import Failure, Result

__all__ = ["CHECKS", "Failure", "Result", "examine", "failures"]
