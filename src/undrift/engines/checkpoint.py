"""Checkpoints: safetensors with a JSON header. A crash while writing leaves the previous one."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from torch import Tensor

from undrift.engines.engine import Engine
from undrift.engines.messages.format import BadFormat, order, read, write
from undrift.engines.work import Counters

KEPT = 2
"""Checkpoints of one run: should the newest be damaged, there is another."""

NOTE = "note."
"""What the names of tensors begin with that are no part of the engine's state."""
MOST = 2**24
"""Bytes of a head: its notes, and the places of its tensors."""

Notes = dict[str, Any]
"""What a run keeps beside the engine's state: what JSON holds, and tensors."""
Fits = Callable[[Counters], bool]


class BadCheckpoint(ValueError):
    """A file that is not a whole checkpoint of this run."""

    def __init__(self, path: Path, reason: str):
        self.path, self.reason = path, reason
        remedy = "remove it to continue from an older one, or else from the beginning"
        super().__init__(f"{path}: {reason}; {remedy}")


def store(engine: Engine, path: Path, identity: str, **notes: object) -> None:
    """Write the engine's state and ``notes`` to ``path`` in one step.

    ``identity`` names the run. A note is what JSON holds, or a tensor. The vectors of all clients
    are written in blocks, without a second copy. A process that does not lead only hands over its
    part of them.
    """
    parts, counters = engine.snapshot(whole=False)
    if not engine.leads:
        for name in order(parts):
            for _ in [] if isinstance(parts[name], Tensor) else parts[name]:
                pass
        return
    parts |= {f"{NOTE}{name}": v for name, v in notes.items() if isinstance(v, Tensor)}
    words = {name: note for name, note in notes.items() if not isinstance(note, Tensor)}
    header = {"identity": identity, "counters": json.dumps(counters), "notes": json.dumps(words)}
    write(path, parts, header)


def restore(
    engine: Engine,
    path: Path,
    identity: str,
    round: int | None = None,
    fits: Fits = lambda counters: True,
) -> Notes:
    """Continue from ``path`` and return its notes.

    A file that is damaged, or belongs to another run or ``round``, is refused and changes nothing,
    and so is one whose counters do not fit what was recorded.
    """
    header, tensors = _read(path, identity)
    counters = json.loads(header["counters"])
    if round not in (None, counters["round"]):
        raise BadCheckpoint(path, f"is of round {counters['round']}, not {round}")
    if not fits(counters):
        raise BadCheckpoint(path, "the rows recorded before it are not all there")
    noted = {name: tensors.pop(name) for name in [*tensors] if name.startswith(NOTE)}
    try:
        engine.restore(tensors, counters)
    except ValueError as error:
        raise BadCheckpoint(path, str(error)) from error
    notes: Notes = json.loads(header["notes"])
    return notes | {name.removeprefix(NOTE): tensor for name, tensor in noted.items()}


def renamed(path: Path, to: Path, before: str, identity: str) -> None:
    """Copy the checkpoint of the run ``before`` as one of the run with an ``identity``.

    Raises :class:`BadCheckpoint`.
    """
    header, tensors = _read(path, before)
    write(to, tensors, header | {"identity": identity})


def _read(path: Path, identity: str) -> tuple[dict[str, str], dict[str, Tensor]]:
    """The head and the tensors of a whole checkpoint of this run."""
    try:
        header, tensors = read(path, MOST)
    except BadFormat as error:
        raise BadCheckpoint(path, str(error)) from error
    if header["identity"] != identity:
        raise BadCheckpoint(path, "belongs to another run")
    return header, tensors


class Shelf(NamedTuple):
    """The newest checkpoints of one run, in ``folder`` under ``name``."""

    folder: Path
    name: str
    identity: str

    def store(self, engine: Engine, **notes: object) -> None:
        path = self.folder / f"{self.name}-{engine.round}.safetensors"
        store(engine, path, self.identity, **notes)
        if engine.leads:
            self.clear(but=KEPT)

    def restore(self, engine: Engine, fits: Fits, tell: Callable[[str], None]) -> Notes | None:
        """Continue from the newest sound one whose counters ``fits`` accepts; returns its notes.

        ``None`` if there is none; ``tell`` hears of those that are passed over.
        """
        notes = None
        for round, file in self.files() if engine.leads else ():
            try:
                notes = restore(engine, file, self.identity, round, fits)
                break
            except BadCheckpoint as error:
                tell(f"{error.path}: {error.reason}; passed over")
        return engine.continued(notes)

    def clear(self, but: int = 0) -> None:
        """Remove them, but for so many of the newest."""
        for _, file in self.files()[but:]:
            file.unlink()

    def files(self) -> list[tuple[int, Path]]:
        """(round, file), the newest first."""
        found = []
        for file in self.folder.glob("*.safetensors"):
            name, _, round = file.stem.rpartition("-")
            if name == self.name and round.isdecimal():
                found.append((int(round), file))
        return sorted(found, reverse=True)
