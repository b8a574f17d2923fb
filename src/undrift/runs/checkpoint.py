"""Checkpoints: safetensors with a JSON header, written so that a crash leaves the previous one whole."""

from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open
from safetensors.torch import load, save
from torch import Tensor

from undrift.engines import Engine


class BadCheckpoint(ValueError):
    """A file that is not a whole checkpoint of this run; the message says why."""


def store(engine: Engine, path: Path, identity: str) -> None:
    """Write the engine's state to ``path`` in one step; ``identity`` names the run it belongs to."""
    tensors, counters = engine.snapshot()
    tensors = {name: t.detach().cpu().clone().contiguous() for name, t in tensors.items()}
    header = {"identity": identity, "counters": json.dumps(counters)}
    header["digest"] = _digest(tensors, header)
    _write(path, save(tensors, metadata=header))


def restore(engine: Engine, path: Path, identity: str) -> None:
    """Continue from ``path``; a file that is damaged or belongs to another run is refused and changes nothing."""
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


def _digest(tensors: dict[str, Tensor], header: dict[str, Any]) -> str:
    total = hashlib.sha256(json.dumps({k: header[k] for k in ("identity", "counters") if k in header}).encode())
    for name in sorted(tensors):
        total.update(f"{name} {tensors[name].dtype} {list(tensors[name].shape)}".encode())
        total.update(tensors[name].numpy().tobytes())
    return total.hexdigest()


def _write(path: Path, content: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_suffix(".part")
    try:
        with part.open("wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        part.replace(path)
    finally:
        part.unlink(missing_ok=True)
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)
