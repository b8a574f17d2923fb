"""undrift: federated optimisation without client drift.

>>> import undrift as ud
>>> run = ud.run(ud.FedRecu(lr="theory"), "quadratic", rounds=300, steps=4)
>>> bool(run.history["gap"][-1] < 1e-6)
True

Names are listed in ``__init__.pyi`` and load on first use: importing undrift loads no torch.
"""

from undrift._lazy import attach

__version__ = "0.1.0"

__getattr__, __dir__, __all__ = attach(__name__, __file__)
