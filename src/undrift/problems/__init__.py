"""What is minimised. Names load their modules on first use: listing problems needs no torch."""

from undrift._lazy import attach

__getattr__, __dir__, __all__ = attach(__name__, __file__)
