"""Numbers read off a recorded curve, as the papers report them. Pure functions of its rows."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence

from undrift.plots.columns import SHARES
from undrift.records.folder import Row
from undrift_papers.reproduce.items import Column

Rows = Sequence[Row]


def readout(
    column: Column, rows: Rows, whole: bool, other: Rows = (), other_whole: bool = False
) -> float | None:
    """The number of one run.

    Infinite if a target was never reached, ``None`` while the run is too short to tell. ``whole``
    means that the run is over; ``other`` is the run of the method ``column.than``, and
    ``other_whole`` that this one is.
    """
    curve = smoothed(rows, column.of, column.smooth)
    value: float | None = None
    match column.read:
        case "final":
            value = curve[-1] if whole else None
        case "best":
            value = max((v for v in curve if not math.isnan(v)), default=None) if whole else None
        case "at":
            ended = curve[-1] if whole and rows[-1]["round"] < (column.at or 0) else None
            value = next(
                (v for row, v in zip(rows, curve, strict=True) if row["round"] == column.at), ended
            )
        case "rounds":
            return _until(column, rows, curve, whole, "round")
        case "total":
            pace = _pace(rows)
            hit = _until(column, rows, curve, whole, "round")
            return None if hit is None or pace is None else hit * pace
        case "pace":
            return _pace(rows)
        case "jitter":
            raw = smoothed(rows, column.of, 1)
            unit = 100 if column.of in SHARES else 1
            pairs = zip(raw, curve, strict=True)
            return sum((unit * (a - b)) ** 2 for a, b in pairs) / len(raw) if whole else None
        case "slope":
            return _slope(rows, curve) if whole else None
        case "saving":
            mine = _until(column, rows, curve, whole, column.spent)
            curve = smoothed(other, column.of, column.smooth)
            theirs = _until(column, other, curve, other_whole, column.spent)
            return theirs / mine if mine and theirs and math.isfinite(mine) else None
    if value is None or not math.isfinite(value):
        return None
    return 100 * value if column.share else value


def trained(column: Column, rows: Rows) -> bool:
    """Whether a finished run ended above chance, where that is known."""
    if column.chance is None:
        return True
    last = readout(dataclasses.replace(column, read="final", smooth=1), rows, whole=True)
    return last is None or last > column.chance


def smoothed(rows: Rows, column: str, count: int) -> list[float]:
    """Means of the last ``count`` values; nan where a value is missing."""
    values = [math.nan if (value := row.get(column)) is None else float(value) for row in rows]
    return [
        sum(part) / len(part)
        for k in range(len(values))
        if (part := values[max(k + 1 - count, 0) : k + 1])
    ]


def _until(column: Column, rows: Rows, curve: list[float], whole: bool, spent: str) -> float | None:
    if column.to is None:
        raise ValueError(f"{column.read} needs the target it is about: to = VALUE")
    up = column.of in SHARES
    for row, value in zip(rows, curve, strict=True):
        if value >= column.to if up else value <= column.to:
            return float(row[spent])
    return math.inf if whole else None


def _pace(rows: Rows) -> float | None:
    """Seconds per round, without what came before the second row: a GPU warms up there."""
    if len(rows) < 3:
        return None
    first, last = rows[1], rows[-1]
    pace: float = (last["seconds"] - first["seconds"]) / (last["round"] - first["round"])
    return pace


def _slope(rows: Rows, curve: list[float]) -> float | None:
    """The factor per round: least squares of the logarithm, over the values above rounding."""
    top = max((v for v in curve if v > 0), default=0.0)
    points = [
        (row["round"], math.log(v)) for row, v in zip(rows, curve, strict=True) if v > 1e-13 * top
    ]
    if len(points) < 2:
        return None
    n, sx, sy = len(points), sum(x for x, _ in points), sum(y for _, y in points)
    sxx, sxy = sum(x * x for x, _ in points), sum(x * y for x, y in points)
    return math.exp((n * sxy - sx * sy) / (n * sxx - sx * sx))
