from .api import load, resume, run, run_spec
from .results import Recorded, Run, Runs

__all__ = ["Recorded", "Run", "Runs", "load", "resume", "run", "run_spec"]
