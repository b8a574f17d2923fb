"""The numbers of a report as CSV, for other programs."""

from __future__ import annotations

import base64
import csv
import io
from collections.abc import Iterable, Sequence

from undrift.records.folder import Row
from undrift.report.clients import lasts

LARGEST = 8_000_000
"""Bytes of a file in a report; of more rows, every second, third, ... is in it."""


def rows_csv(rows: Sequence[Row]) -> tuple[str, int]:
    """All rows as CSV, in base64, and which share of them it has: one in so many."""
    names = [*dict.fromkeys(name for row in rows for name in row)]
    stride = 1
    content = _csv(names, rows)
    while len(content) > LARGEST:
        stride *= 2
        content = _csv(names, rows[::stride])
    return base64.b64encode(content).decode(), stride


def clients_csv(clients: Sequence[Row]) -> str:
    """Each client's numbers at the end, in base64."""
    found = []
    for label, seeds in lasts(clients).items():
        for seed, row in seeds.items():
            about = {"label": label, "seed": seed, "round": row["round"], "of": row["of"]}
            vectors = {name: v for name, v in row.items() if isinstance(v, list)}
            for client in range(len(row["loss"])):
                numbers = {name: v[client] for name, v in vectors.items()}
                found.append({**about, "client": client, **numbers})
    names = [*dict.fromkeys(name for row in found for name in row)]
    return base64.b64encode(_csv(names, found)).decode()


def _csv(names: Sequence[str], rows: Iterable[Row]) -> bytes:
    text = io.StringIO(newline="")
    writer = csv.DictWriter(text, names, restval="", lineterminator="\n")
    writer.writeheader()
    for row in rows:
        writer.writerow({name: _cell(value) for name, value in row.items()})
    return text.getvalue().encode()


def _cell(value: object) -> object:
    """A text that a spreadsheet would take for a formula begins with an apostrophe."""
    if isinstance(value, str) and value.startswith(("=", "+", "-", "@")):
        return f"'{value}"
    return value
