"""Where recorded runs are."""

from __future__ import annotations

from pathlib import Path

from undrift.core.params import unknown

ROOT = Path("runs")


def place(name: str) -> Path:
    """The folder of the run ``name``, which may be a path."""
    path = Path(name)
    return path if path.exists() or len(path.parts) > 1 else ROOT / name


def missing(name: str) -> str:
    """What is wrong with a name, if it is not that of a run."""
    path = place(name)
    if path.is_dir():
        return ""
    root = path.parent
    near = sorted(f.name for f in root.iterdir() if f.is_dir()) if root.is_dir() else []
    return f"{unknown('run', name, near)} (in {root})"
