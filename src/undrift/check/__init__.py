"""The battery: properties that every method must have, checked without any code of its own.

Names are listed in ``__init__.pyi`` and load on first use.
"""

from undrift._lazy import attach

__getattr__, __dir__, __all__ = attach(__name__, __file__)
