from .api import load, resume, run, run_spec
from .history import History
from .results import Recorded, Run, Runs

__all__ = ["History", "Recorded", "Run", "Runs", "load", "resume", "run", "run_spec"]
