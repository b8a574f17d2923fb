"""Curves of plain columns of numbers, drawn with matplotlib, all in one style."""
