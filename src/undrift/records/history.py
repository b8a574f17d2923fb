"""What a run recorded: columns that grow by one row per evaluation."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from importlib import import_module
from importlib.util import find_spec
from typing import Any

import numpy as np
from numpy.typing import NDArray

from undrift.records.rows import Row, columns

FRAMES = ("pandas", "polars")
Frame = Any
"""A DataFrame of either."""


class History(Mapping[str, NDArray[np.float64]]):
    """Columns by name; a value a problem does not have is NaN.

    ``vectors`` is what each participating client sent and received so far, in vectors of model
    size.
    """

    def __init__(self, rows: Iterable[Row] = ()) -> None:
        self._rows = list(rows)

    def __getitem__(self, column: str) -> NDArray[np.float64]:
        if not any(column in row for row in self._rows):
            raise KeyError(f"{column} was not recorded; there are {', '.join(self)}")
        return np.array([row.get(column, np.nan) for row in self._rows])

    def __iter__(self) -> Iterator[str]:
        return iter(dict.fromkeys(name for row in self._rows for name in row))

    def __len__(self) -> int:
        return len(list(iter(self)))

    @property
    def rows(self) -> list[Row]:
        """One mapping per evaluation."""
        return self._rows

    @property
    def last(self) -> Row:
        return self._rows[-1]

    def frame(self) -> Frame:
        """The rows as a DataFrame of pandas or polars, whichever is installed."""
        return frame(self._rows)

    def __repr__(self) -> str:
        return f"History({len(self._rows)} rows; last: {self.ending()})"

    def ending(self, without: Collection[str] = ()) -> str:
        """The last row in words, but for some columns."""
        last = self._rows[-1] if self._rows else {}
        shown = [f"{k}={_short(v)}" for k, v in last.items() if k not in without]
        return ", ".join(shown) or "empty"


def frame(rows: Iterable[Row]) -> Frame:
    """Rows as a DataFrame of pandas, else of polars.

    Raises :class:`ImportError` if neither is installed.
    """
    for name in FRAMES:
        if find_spec(name):
            return import_module(name).DataFrame(columns(rows))
    raise ImportError(
        f"a DataFrame needs {' or '.join(FRAMES)}: pip install pandas, or pip install polars"
    )


def _short(value: object) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)
