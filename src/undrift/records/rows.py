"""Rows of a run as lines of JSON, and back: what was measured, whose work did not count."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping
from typing import Any

from undrift._files import read_json
from undrift.core.faults import Rejection
from undrift.core.params import unknown

METRICS, LEFT_OUT, CLIENTS = "metrics.jsonl", "left_out.jsonl", "clients.jsonl"
NEEDED: Mapping[str, set[str]] = {
    METRICS: {"label", "seed", "round", "vectors", "gradients"},
    LEFT_OUT: {"label", "seed", *Rejection._fields},
    CLIENTS: {"label", "seed", "round", "of", "loss"},
}
"""The files of rows, and what every row of them has."""
WORDS = {math.inf: "inf", -math.inf: "-inf"}
"""Infinite numbers as files have them, where null is what is not known."""
TEXTS = ("label", "method", "of")
"""Columns that are no numbers."""
Row = dict[str, Any]
Key = tuple[str, int]
"""Label and seed."""


def key_of(row: Row) -> Key:
    """Whose row it is."""
    return row["label"], row["seed"]


def choose(keys: Iterable[Key], label: str, seed: int | None = None) -> Key:
    """The key with that label and seed, or the only one with that label.

    :class:`KeyError` if there is none, or several.
    """
    known = [*dict.fromkeys(keys)]
    labels = dict.fromkeys(name for name, _ in known)
    if label not in labels:
        raise KeyError(unknown("method", label, labels))
    found = [key for key in known if key[0] == label and seed in (None, key[1])]
    if len(found) == 1:
        return found[0]
    wanted = repr(label) if seed is None else f"{label!r} with seed {seed}"
    there = ", ".join(f"{name!r} with seed {number}" for name, number in known if name == label)
    raise KeyError(f"{wanted} is not one run: there are {there}")


def text_of(row: Row) -> bytes:
    """The line of a row."""
    return json.dumps({key: _spelled(value) for key, value in row.items()}).encode()


def _spelled(value: object) -> object:
    """JSON has no infinity, which becomes a word, and no NaN, which becomes null."""
    if isinstance(value, list):
        return [*map(_spelled, value)]
    if not isinstance(value, float) or math.isfinite(value):
        return value
    return WORDS.get(value)


def numbers(row: Row) -> Row:
    """A row of a file, with its infinite numbers."""
    return {k: v if k in TEXTS else _number(v) for k, v in row.items()}


def _number(value: object) -> object:
    if isinstance(value, list):
        return [*map(_number, value)]
    return float(value) if isinstance(value, str) and value in WORDS.values() else value


def columns(rows: Iterable[Row]) -> dict[str, list[Any]]:
    """Rows as columns, with ``None`` where a row has no such number: the first has no drift."""
    rows = list(rows)
    names = dict.fromkeys(name for row in rows for name in row)
    return {name: [row.get(name) for row in rows] for name in names}


def row_of(text: bytes, needed: set[str]) -> Row | None:
    """The row of a line; ``None`` if it has none."""
    row = parsed(text)
    whole = isinstance(row, dict) and row.keys() >= needed
    return row if whole and keyed(row) and isinstance(row["round"], int) else None


def keyed(found: Row) -> bool:
    return isinstance(found["label"], str) and isinstance(found["seed"], int)


def parsed(text: bytes) -> Any:
    """The content of a line; ``None`` if it has none."""
    try:
        return read_json(text)
    except ValueError:
        return None
