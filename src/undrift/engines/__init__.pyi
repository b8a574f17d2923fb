from .engine import Engine
from .ledger import Ledger
from .simulate import Simulate
from .wire import Wire

__all__ = ["Engine", "Ledger", "Simulate", "Wire"]
