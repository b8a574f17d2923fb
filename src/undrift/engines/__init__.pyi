from .engine import Engine, Simulate
from .wire import Wire
from .work import Ledger

__all__ = ["Engine", "Ledger", "Simulate", "Wire"]
