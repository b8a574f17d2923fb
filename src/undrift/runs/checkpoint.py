"""Checkpoints: safetensors with a JSON header, written so that a crash leaves the previous one whole."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open
from safetensors.torch import load, save
from torch import Tensor

from undrift.core.files import writing
from undrift.engines import Engine
from undrift.runs.folder import named

KEPT = 2
"""Checkpoints of one run: should the newest be damaged, there is another."""


class BadCheckpoint(ValueError):
    """A file that is not a whole checkpoint of this run; the message says why."""


def store(engine: Engine, path: Path, identity: str, **notes: Any) -> None:
    """Write the engine's state and ``notes`` to ``path`` in one step; ``identity`` names the run it belongs to."""
    tensors, counters = engine.snapshot()
    tensors = {name: t.detach().cpu().clone().contiguous() for name, t in tensors.items()}
    header = {"identity": identity, "counters": json.dumps(counters), "notes": json.dumps(notes)}
    header["digest"] = _digest(tensors, header)
    content = save(tensors, metadata=header)
    with named(path), writing(path) as file:
        file.write(content)


def restore(engine: Engine, path: Path, identity: str) -> dict[str, Any]:
    """Continue from ``path`` and return its notes.

    A file that is damaged or belongs to another run is refused and changes nothing.
    """
    try:
        content = path.read_bytes()
        tensors = load(content)
        with safe_open(path, "pt") as file:
            header = dict(file.metadata() or {})
    except (OSError, SafetensorError) as error:
        raise BadCheckpoint(f"{path}: cannot be read ({error}); remove it to start from the one before") from error
    if header.pop("digest", None) != _digest(tensors, header):
        raise BadCheckpoint(f"{path}: damaged (its digest does not match); remove it to start from the one before")
    if header["identity"] != identity:
        raise BadCheckpoint(f"{path}: belongs to another run; give the spec it was made with, or another folder")
    engine.restore(tensors, json.loads(header["counters"]))
    return json.loads(header["notes"])


class Shelf:
    """The newest checkpoints of one run, in ``folder`` under ``name``."""

    def __init__(self, folder: Path, name: str, identity: str):
        self.folder, self.name, self.identity = folder, name, identity

    def store(self, engine: Engine, **notes: Any) -> None:
        store(engine, self.folder / f"{self.name}-{engine.round}.safetensors", self.identity, **notes)
        for _, old in self.files()[KEPT:]:
            old.unlink()

    def restore(
        self, engine: Engine, fits: Callable[[int], bool], tell: Callable[[str], None]
    ) -> dict[str, Any] | None:
        """Continue from the newest sound one of a round that ``fits``, and return its notes; ``None`` if there is none.

        ``tell`` hears of those that are passed over.
        """
        for round, file in self.files():
            if not fits(round):
                tell(f"{file}: the rows measured before it are not all there; passed over")
                continue
            try:
                return restore(engine, file, self.identity)
            except ValueError as error:
                tell(f"{str(error).partition(';')[0]}; passed over")
        return None

    def clear(self) -> None:
        for _, file in self.files():
            file.unlink()

    def files(self) -> list[tuple[int, Path]]:
        """(round, file), the newest first."""
        found = [(file.stem.rpartition("-"), file) for file in self.folder.glob("*.safetensors")]
        return sorted(((int(n), f) for (name, _, n), f in found if name == self.name and n.isdecimal()), reverse=True)


def _digest(tensors: dict[str, Tensor], header: dict[str, Any]) -> str:
    known = {key: header[key] for key in ("identity", "counters", "notes") if key in header}
    total = hashlib.sha256(json.dumps(known).encode())
    for name in sorted(tensors):
        total.update(f"{name} {tensors[name].dtype} {list(tensors[name].shape)}".encode())
        total.update(tensors[name].numpy().tobytes())
    return total.hexdigest()
