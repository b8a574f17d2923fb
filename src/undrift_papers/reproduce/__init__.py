"""The papers' tables and figures: their items, the cache of runs, and pages that compare.

An item is a TOML file of ``undrift_papers``. A run is cached under a hash of everything that
decides it, so items share runs, and a longer run serves as a shorter one.
"""
