"""What happens in a run, as it happens. ``str(event)`` is a sentence for people."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import dataclass_transform

from undrift.core.faults import Rejection
from undrift.records.outcome import Outcome, in_words
from undrift.records.rows import Row


@dataclass_transform(frozen_default=True)
@dataclasses.dataclass(frozen=True)
class Event:
    """Anything that happens in a run; subclasses become frozen dataclasses."""

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        dataclasses.dataclass(frozen=True)(cls)


class Continued(Event):
    """An unfinished run is taken up again."""

    folder: Path
    done: int
    total: int

    def __str__(self) -> str:
        return f"Continues in {self.folder}: {self.done} of {self.total} are done."


class NotCompared(Event):
    """Whether the run began with the same data and code is not known of some of them."""

    folder: Path
    names: Sequence[str]

    def __str__(self) -> str:
        names = " and ".join(self.names)
        return f"{self.folder}: {names} cannot be compared with what the run began with."


class Unlocked(Event):
    """Nothing keeps others from running into the same folder."""

    folder: Path

    def __str__(self) -> str:
        return (
            f"{self.folder} is on a file system without locks: undrift cannot tell whether another "
            "one is running it, so start it once."
        )


class Elsewhere(Event):
    """Versions or hardware have changed since the run began."""

    changes: Mapping[str, tuple[object, object]]
    """Name -> before and now."""

    def __str__(self) -> str:
        words = ", ".join(f"{name} was {a} and is {b}" for name, (a, b) in self.changes.items())
        return (
            f"Since the run began, {words}: "
            "its numbers may differ from those of an uninterrupted run."
        )


class Began(Event):
    """A method starts, or continues, with a seed."""

    label: str
    seed: int
    rounds: int

    def __str__(self) -> str:
        return f"{self.label}, seed {self.seed}: {self.rounds} rounds"


class Moved(Event):
    """Client states are kept elsewhere than planned, because free memory has changed."""

    label: str
    place: str

    def __str__(self) -> str:
        return f"{self.label}: client states go {self.place}, because free memory has changed"


class PassedOver(Event):
    """A checkpoint that cannot be used."""

    label: str
    seed: int
    why: str

    def __str__(self) -> str:
        return self.why


class Resumed(Event):
    """A method continues from a checkpoint."""

    label: str
    seed: int
    round: int

    def __str__(self) -> str:
        return f"{self.label}, seed {self.seed}: continues from round {self.round}"


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


class LeftOut(Event):
    """Clients whose work did not count in a round; with a folder they are on disk already."""

    label: str
    seed: int
    rejections: Sequence[Rejection]

    def __str__(self) -> str:
        why = "; ".join(f"client {one.client}: {one.reason}" for one in self.rejections)
        return f"{self.label}, seed {self.seed}, round {self.rejections[0].round}: {why}"


class Ended(Event):
    """A method is through with a seed."""

    outcome: Outcome

    def __str__(self) -> str:
        end = self.outcome
        why = end.note or in_words(end.status)
        if end.same_as is not None:
            why = f"as seed {end.same_as}, because no seed changes it"
        return f"{end.label}, seed {end.seed}: {why}"


class Finishing(Event):
    """Everything has ended; the folder is about to be marked as finished."""

    folder: Path

    def __str__(self) -> str:
        return f"Finishing {self.folder}."


class LoggerLost(Event):
    """A logger failed; the run continues without it."""

    logger: str
    why: str

    def __str__(self) -> str:
        return f"The logger {self.logger} failed, and the run continues without it: {self.why}"


class Died(Event):
    """A process of several ended in the middle of its work, and the others with it."""

    label: str
    seed: int
    why: str

    def __str__(self) -> str:
        return f"{self.label}, seed {self.seed}: a process died ({self.why})"


Emit = Callable[[Event], None]


def ignore(event: Event) -> None:
    """Nobody listens."""
