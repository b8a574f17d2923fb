"""Folders of recorded runs, by path or by name."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

from undrift.cli.output import refuse
from undrift.core.params import unknown
from undrift.records.folder import Folder

ROOT = Path("runs")


def place(name: str) -> Path:
    """The folder of the run ``name``, which may be a path."""
    path = Path(name)
    return path if path.exists() or len(path.parts) > 1 else ROOT / name


def missing(name: str) -> str:
    """Why ``name`` is not the name of a run; empty if it is one."""
    path = place(name)
    if path.is_dir():
        return ""
    root = path.parent
    near = sorted(f.name for f in root.iterdir() if f.is_dir()) if root.is_dir() else []
    return f"{unknown('run', name, near)} (in {root})"


def recorded(names: Sequence[str], complaints: Iterable[str] = ()) -> list[Folder]:
    """The folders of some runs, each once; refused if one is missing or there are complaints."""
    wrong = [*filter(None, map(missing, names)), *complaints]
    if wrong:
        refuse(wrong)
    return list({path.resolve(): Folder(path) for path in map(place, names)}.values())
