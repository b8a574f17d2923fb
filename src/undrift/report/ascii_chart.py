"""A small chart in characters, for a terminal."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

Points = Sequence[tuple[float, float]]
MARKS = "o*+x"
ROWS = 14


def chart(series: Mapping[str, Points], width: int = 60) -> str:
    """Each series over rounds by its own mark, one line per power of ten (or per several).

    >>> print(chart({"a": [(0, 1), (5, 0.1), (10, 0.01)]}, width=11))
      1e+00 |o
            |     o
      1e-02 |          o  o a
            +-----------
             0 rounds 10
    """
    points = {
        name: [(u, math.log10(v)) for u, v in curve if 0 < v < math.inf]
        for name, curve in series.items()
    }
    every = [point for curve in points.values() for point in curve]
    if not every:
        return ""
    right = max(u for u, _ in every) or 1.0
    top, low = math.ceil(max(v for _, v in every)), math.floor(min(v for _, v in every))
    decades = max(math.ceil((top - low + 1) / ROWS), 1)
    rows = math.ceil((top - low) / decades) + 1
    grid = [[" "] * width for _ in range(rows)]
    names: list[list[str]] = [[] for _ in range(rows)]
    for mark, (name, curve) in zip(MARKS, points.items(), strict=False):
        columns: dict[int, list[float]] = {}
        for u, v in curve:
            columns.setdefault(round(u / right * (width - 1)), []).append((top - v) / decades)
        for column, depths in columns.items():
            grid[round(sum(depths) / len(depths))][column] = mark
        if curve:
            names[round((top - curve[-1][1]) / decades)].append(f"  {mark} {name}")
    while not "".join(grid[-1]).strip():
        grid.pop()
    lines = []
    for k, cells in enumerate(grid):
        label = "" if k % 2 else f"1e{top - k * decades:+03d}"
        lines.append(f"{label:>7} |{''.join(cells)}{''.join(names[k])}".rstrip())
    foot = f"0{'rounds':^{width - 1 - len(f'{right:g}')}}{right:g}"
    return "\n".join([*lines, f"{'':7} +{'-' * width}", f"{'':7}  {foot}"])
