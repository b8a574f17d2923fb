from .api import Run, run
from .history import History

__all__ = ["History", "Run", "run"]
