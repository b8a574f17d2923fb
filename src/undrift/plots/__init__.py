"""Curves drawn with matplotlib, of plain columns of numbers."""
