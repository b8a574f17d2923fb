"""What happens in a run, as it happens. ``str(event)`` is a sentence for people."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence

from undrift.core.faults import Rejection
from undrift.records.rows import ENDS, Outcome, Row


class Event:
    """Anything that happens in a run."""


@dataclasses.dataclass(frozen=True)
class Notice(Event):
    """Something worth a sentence: a run is continued, a checkpoint cannot be used."""

    text: str
    warning: bool = False
    """Whether a program that does not listen is warned."""

    def __str__(self) -> str:
        return self.text


@dataclasses.dataclass(frozen=True)
class Began(Event):
    """A method starts, or continues, with a seed."""

    label: str
    seed: int
    rounds: int

    def __str__(self) -> str:
        return f"{self.label}, seed {self.seed}: {self.rounds} rounds"


@dataclasses.dataclass(frozen=True)
class Measured(Event):
    """Another row; with a folder it is on disk already."""

    label: str
    method: str
    seed: int
    row: Row
    drawn: bool = True
    """Whether anything was drawn at random so far."""
    clients: Row | None = None
    """Each client's numbers, where they are measured."""


@dataclasses.dataclass(frozen=True)
class LeftOut(Event):
    """Clients whose work did not count in a round; with a folder they are on disk already."""

    label: str
    seed: int
    rejections: Sequence[Rejection]


@dataclasses.dataclass(frozen=True)
class Ended(Event):
    """A method is through with a seed."""

    outcome: Outcome

    def __str__(self) -> str:
        end = self.outcome
        why = end.note or ENDS[end.status].words
        if end.same_as is not None:
            why = f"as seed {end.same_as}, because no seed changes it"
        return f"{end.label}, seed {end.seed}: {why}"


Emit = Callable[[Event], None]


def ignore(event: Event) -> None:
    """Nobody listens."""
