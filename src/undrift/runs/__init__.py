"""Running: one method on one problem, recorded.

Names are listed in ``__init__.pyi`` and load on first use: reading a spec needs no torch.
"""

from undrift._lazy import attach

__getattr__, __dir__, __all__ = attach(__name__, __file__)
