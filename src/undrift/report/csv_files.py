"""The numbers of a report as CSV, for other programs."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Sequence

from undrift.records.differences import curves
from undrift.records.folder import Row


def rows_csv(rows: Sequence[Row]) -> bytes:
    """Rows as CSV, with a column for every name that one of them has."""
    text = io.StringIO(newline="")
    names = dict.fromkeys(name for row in rows for name in row)
    writer = csv.DictWriter(text, [*names], restval="", lineterminator="\n")
    writer.writeheader()
    for row in rows:
        writer.writerow({name: _cell(value) for name, value in row.items()})
    return text.getvalue().encode()


def clients_csv(clients: Iterable[Row]) -> bytes:
    """Each client's numbers at the end."""
    lasts = [curve[-1] for seeds in curves(clients).values() for curve in seeds.values()]
    return rows_csv(
        [
            {n: v for n, v in row.items() if not isinstance(v, list)}
            | {"client": client}
            | {n: v[client] for n, v in row.items() if isinstance(v, list)}
            for row in lasts
            for client in range(len(row["loss"]))
        ]
    )


def _cell(value: object) -> object:
    """A text that a spreadsheet would take for a formula begins with an apostrophe."""
    if isinstance(value, str) and value.startswith(("=", "+", "-", "@")):
        return f"'{value}"
    return value
