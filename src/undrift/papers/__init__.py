"""The papers' items, and what undrift computes for their tables, without torch or NumPy."""

from undrift.papers.tables import document, items, render, table

__all__ = ["document", "items", "render", "table"]
