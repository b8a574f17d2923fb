"""Data sets, and ways to split them among clients. Names load on first use.

Tables are in :mod:`undrift.data.tables`, image sets in :mod:`undrift.data.images` and
:mod:`undrift.data.fetch`, splits in :mod:`undrift.data.partition`.
"""

from undrift._lazy import attach

__getattr__, __dir__, __all__ = attach(__name__, __file__)
