"""Engines: the same method, run in different ways. Names load their modules when first used."""

from undrift._lazy import attach

__getattr__, __dir__, __all__ = attach(__name__, __file__)
