"""What a run recorded: columns that grow by one row per evaluation."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Any

import numpy as np


class History(Mapping[str, np.ndarray]):
    """Columns by name; a value a problem does not have is NaN.

    ``vectors`` is what each participating client sent and received so far, in vectors of model
    size.
    """

    def __init__(self) -> None:
        self._rows: list[dict[str, float]] = []

    def append(self, row: dict[str, float]) -> None:
        self._rows.append(row)

    def __getitem__(self, column: str) -> np.ndarray:
        if not any(column in row for row in self._rows):
            raise KeyError(f"{column} was not recorded; there are {', '.join(self)}")
        return np.array([row.get(column, np.nan) for row in self._rows])

    def __iter__(self) -> Iterator[str]:
        return iter(dict.fromkeys(name for row in self._rows for name in row))

    def __len__(self) -> int:
        return len(list(iter(self)))

    @property
    def rows(self) -> list[dict[str, float]]:
        """One mapping per evaluation."""
        return self._rows

    @property
    def last(self) -> dict[str, float]:
        return self._rows[-1]

    def first(self, column: str, at_most: float, of: str = "round") -> float | None:
        """The first value of ``of`` at which ``column`` is at most the given value, ``None`` if it
        never is.
        """
        for row in self._rows:
            if row.get(column, np.nan) <= at_most:
                return row[of]
        return None

    def __repr__(self) -> str:
        return f"History({len(self._rows)} rows; last: {self.ending()})"

    def ending(self, without: Collection[str] = ()) -> str:
        """The last row in words, but for some columns."""
        shown = (
            [f"{k}={_short(v)}" for k, v in self.last.items() if k not in without]
            if self._rows
            else []
        )
        return ", ".join(shown) or "empty"


def _short(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)
