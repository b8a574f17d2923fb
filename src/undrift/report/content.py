"""What a report is made from."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import NotRequired, TypedDict

from undrift.core.problem import Samples
from undrift.records.folder import Row
from undrift.records.outcome import Outcome


class Partition(TypedDict):
    """How many samples of each class each client holds."""

    classes: list[str]
    counts: list[list[int]]
    """``[clients, classes]``"""
    of: NotRequired[str]
    """Which of several partitions this is."""
    seed: NotRequired[int]
    """Whose partition this is, where every seed has its own."""


@dataclasses.dataclass(frozen=True)
class About:
    """One run, apart from its numbers."""

    name: str
    facts: Sequence[str]
    spec: str
    environment: Mapping[str, object]
    command: str
    """Runs it again; empty if only the program that called ``undrift.run`` can."""
    remarks: Sequence[str] = ()
    partition: Partition | None = None
    clients: Sequence[Row] = ()
    """Each client's numbers, where they were measured; labels are those of the report."""


@dataclasses.dataclass(frozen=True)
class Setting:
    """What the costs of a method depend on."""

    method: str = ""
    steps: int | None = None
    """Local steps of a round, if all clients take as many."""
    clients: int | None = None
    """Clients of a round, if all take part."""
    kept: int = 0
    """Vectors that a client keeps for its local loss."""
    biased: bool = False
    """Whether no method is exact there: a robust reduction takes the place of its means, or another
    optimiser than SGD or momentum its local steps."""
    written: Mapping[str, object] = dataclasses.field(default_factory=dict)
    """The table of the method in the spec."""
    shared: Mapping[str, object] = dataclasses.field(default_factory=dict)
    """The schedule and the local optimiser of all methods of the spec that have no other."""


@dataclasses.dataclass(frozen=True)
class Content:
    """Everything in a report; labels are distinct across all runs."""

    runs: Sequence[About]
    rows: Sequence[Row]
    outcomes: Sequence[Outcome]
    planned: Mapping[str, Sequence[int]]
    """The seeds each label should be run with."""
    rounds: Mapping[str, int] = dataclasses.field(default_factory=dict)
    """For how many rounds."""
    target: float | None = None
    smooth: int = 1
    note: str = ""
    """Caveat printed next to every accuracy."""
    samples: Samples | None = None
    """Which losses and accuracies are of; ``None`` where that is not known, or not of all alike."""
    mixed: Sequence[str] = ()
    """What is said where numbers of the runs do not tell methods apart."""
    problems: Mapping[str, str] = dataclasses.field(default_factory=dict)
    """By label; differences are taken within one."""
    settings: Mapping[str, Setting] = dataclasses.field(default_factory=dict)
    """By label."""
    varied: Sequence[str] = ()
    """What seeds vary."""
    left_out: Sequence[Row] = ()
    """Clients whose work did not count."""
    baseline: str = ""
    """The label that others are compared with; empty: the first."""
