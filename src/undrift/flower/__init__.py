"""A method in a Flower app of yours.

Names load on first use: importing this loads neither torch nor Flower.
"""

from undrift._lazy import attach

__getattr__, __dir__, __all__ = attach(__name__, __file__)
