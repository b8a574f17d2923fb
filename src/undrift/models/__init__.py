"""Networks. Names load their modules on first use: naming a network needs no torch."""

from undrift._lazy import attach

__getattr__, __dir__, __all__ = attach(__name__, __file__)
