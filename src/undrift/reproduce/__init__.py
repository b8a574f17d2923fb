"""The papers' tables and figures: what to run for each, the runs that are there, and a page that
compares.

An item is a TOML file of ``undrift.papers``; a run is kept under the fingerprint of all that
decides it, so that items
share runs, and a longer run serves where a shorter one is asked for.
"""
