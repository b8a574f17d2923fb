"""undrift: federated optimisation without client drift.

>>> import undrift as ud
>>> run = ud.run(ud.FedRecu(lr="theory"), "quadratic", rounds=300, steps=4)
>>> bool(run.history["gap"][-1] < 1e-6)
True

Names are listed in ``__init__.pyi`` and load on first use: importing undrift loads no torch.
"""

import os

from undrift._lazy import attach

__version__ = "0.2.0"

# On aarch64 torch would return memory to the system after 10 ms and ask for it again in every local
# step. Read when torch is imported, in milliseconds.
os.environ.setdefault("MIMALLOC_PURGE_DELAY", "10000")

__getattr__, __dir__, __all__ = attach(__name__, __file__)
