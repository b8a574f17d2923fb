"""The papers' tables, beside what undrift computes for them. Importing it loads neither torch nor
NumPy.
"""

from undrift.papers.tables import document, items, render, table

__all__ = ["document", "items", "render", "table"]
