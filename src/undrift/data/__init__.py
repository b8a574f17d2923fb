"""Data sets, and ways to split them among clients.

Tables are in :mod:`undrift.data.tables`, image sets in :mod:`undrift.data.images` and
:mod:`undrift.data.fetch`, splits in :mod:`undrift.data.partition`.
"""
