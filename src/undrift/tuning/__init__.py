"""Whole comparisons tuned: each method of a spec at the settings that runs have shown best."""
