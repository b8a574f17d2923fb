"""Running: one method on one problem, recorded."""

from undrift.runs.history import History
from undrift.runs.runner import Run, run

__all__ = ["History", "Run", "run"]
