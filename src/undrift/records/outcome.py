"""How one method ended with one seed."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Literal, NamedTuple, TypeVar

from undrift.core.problem import COLUMNS

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


SPENT = {*COLUMNS, "bytes"} - {"drift"}
"""Columns that are known even of a run that diverged."""


def in_words(status: str) -> str:
    """A status as tables show it; one of another version as it is."""
    return ENDS[status].words if status in ENDS else status


def at_end(row: Mapping[str, Value], status: str) -> dict[str, Value | None]:
    """The last row of a run; of one that diverged or did not end, what it spent, and ``None`` for
    all else.

    That row may be from before the round in which it diverged, and its numbers good; and at an
    earlier round than those of others.
    """
    if status in ENDED:
        return {**row}
    return {name: value if name in SPENT else None for name, value in row.items()}


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
    suggested: Mapping[str, float] | None = None
    """Of a method that diverged: hyper-parameters to try, where some were found."""

    @property
    def key(self) -> tuple[str, int]:
        """Label and seed."""
        return self.label, self.seed

    def record(self) -> dict[str, object]:
        """For files."""
        return dataclasses.asdict(self)
