"""The name of a node, drawn once and kept in its folder."""

from __future__ import annotations

import os
import secrets
from pathlib import Path

from undrift._files import writing


def node_name(folder: Path) -> str:
    """The name of the node that lives in a folder; the same every time."""
    return drawn(folder / "name", 8)


def drawn(path: Path, size: int) -> str:
    """A number that is drawn once, and kept in a file."""
    if not path.exists():
        with writing(path) as file:
            os.fchmod(file.fileno(), 0o600)
            file.write(secrets.token_hex(size).encode())
    return path.read_text(encoding="utf-8").strip()
