"""What a run records: rows as lines of JSON, and back, and how one method ended with one seed."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterable, Mapping
from typing import Any, Literal, NamedTuple, TypeVar

from undrift._files import finite, read_json
from undrift.core.faults import Rejection
from undrift.core.params import unknown
from undrift.core.problem import COLUMNS

METRICS, LEFT_OUT, CLIENTS = "metrics.jsonl", "left_out.jsonl", "clients.jsonl"
NEEDED: Mapping[str, set[str]] = {
    METRICS: {"label", "seed", "round", "vectors", "gradients"},
    LEFT_OUT: {"label", "seed", *Rejection._fields},
    CLIENTS: {"label", "seed", "round", "of", "loss"},
}
"""The files of rows, and what every row of them has."""
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
    found = [key for key in known if key[0] == label and seed in (None, key[1])]
    if len(found) == 1:
        return found[0]
    seeds = [str(number) for name, number in known if name == label]
    raise KeyError(
        f"{label!r} was run with seeds {', '.join(seeds)}: add --seed N, or in Python the seed"
        if seeds
        else unknown("method", label, dict(known))
    )


def text_of(row: Row) -> bytes:
    """The line of a row; null is a number that is not finite, or not known."""
    try:
        return json.dumps(row, allow_nan=False).encode()
    except ValueError:
        # Python would write Infinity and NaN, which no other reader of JSON takes.
        return json.dumps(finite(row)).encode()


def columns(rows: Iterable[Row]) -> dict[str, list[Any]]:
    """Rows as columns, with ``None`` where a row has no such number: the first has no drift."""
    found: dict[str, list[Any]] = {}
    for k, row in enumerate(rows):
        for name, value in row.items():
            # A list of k for every number would take time in the square of the rows.
            (found.get(name) or found.setdefault(name, [None] * k)).append(value)
        for values in found.values():
            if len(values) == k:
                values.append(None)
    return found


def row_of(text: bytes, needed: set[str]) -> Row | None:
    """The row of a line; ``None`` if it has none."""
    # A kill in the middle of a write leaves half a line, and others may edit the file: what is not
    # whole is no row, and the journal measures it again.
    try:
        row = read_json(text)
    except ValueError:
        return None
    if not isinstance(row, dict) or not row.keys() >= needed:
        return None
    known = isinstance(row["label"], str) and isinstance(row["seed"], int)
    return row if known and isinstance(row["round"], int) else None


Value = TypeVar("Value")
Status = Literal["done", "reached", "early", "diverged", "stuck", "failed", "stopped"]


class Ending(NamedTuple):
    """A status in words, and whether it is good, bad or leaves the run open."""

    words: str
    kind: Literal["good", "bad", "open"]


ENDS: Mapping[str, Ending] = {
    "done": Ending("all rounds run", "good"),
    "reached": Ending("target reached", "good"),
    "early": Ending("stopped early", "good"),
    "diverged": Ending("diverged", "bad"),
    "stuck": Ending("stuck", "bad"),
    "failed": Ending("failed", "bad"),
    "stopped": Ending("stopped", "open"),
    "unfinished": Ending("unfinished", "open"),
}
"""Every status. ``unfinished`` is that of a run without an outcome."""
UNCHANGED = "no seed changes it"
ENDED = ("done", "reached", "early", "stuck")
"""Statuses whose last row is where the method ended."""


KEPT_IF_DIVERGED = {*COLUMNS, "bytes"} - {"drift"}
"""Columns that are known even of a run that diverged."""


def at_end(row: Mapping[str, Value], status: str) -> dict[str, Value | None]:
    """The last row of a run; of one that diverged or did not end, what it spent, and ``None`` for
    all else.

    That row may be from before the round in which it diverged, and its numbers good; and at an
    earlier round than those of others.
    """
    if status in ENDED:
        return {**row}
    return {name: value if name in KEPT_IF_DIVERGED else None for name, value in row.items()}


@dataclasses.dataclass(frozen=True)
class Outcome:
    """How one method ended with one seed."""

    label: str
    method: str
    seed: int
    status: str
    """``done``, ``reached`` (the target), ``early`` (no better for long, or a callback asked for
    it), ``diverged``, ``stuck`` (rounds could not be counted), ``failed`` or ``stopped`` (by the
    user).
    """
    values: Mapping[str, object]
    """The hyper-parameters it ran with."""
    note: str = ""
    model: str = ""
    """The SHA-256 of the last model; of a run that diverged, of the last sound one."""
    best: Mapping[str, object] | None = None
    """``metric``, ``value`` and ``round`` of the best model, where it is known."""
    files: Mapping[str, str] = dataclasses.field(default_factory=dict)
    """Files of the ``last`` and the ``best`` model in the folder; one file if they are the same."""
    seeded: bool = True
    """Whether anything was drawn at random; if not, no seed changes the run."""
    same_as: int | None = None
    """The seed whose run stands for this one, where no seed changes it."""

    @property
    def key(self) -> tuple[str, int]:
        """Label and seed."""
        return self.label, self.seed
