"""What the owner of a node has decided. Imports no torch."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import NamedTuple

from undrift.flower.node_name import drawn

TROUBLE = "cannot do what the server asks: "
"""What a line of a worker's log begins with that its owner has to read."""


class Place(NamedTuple):
    """Where the data, the states and the methods of a node are."""

    name: str = ""
    """Of the node; it stays the same when the node starts again."""
    states: Path = Path()
    data: Path | None = None
    part: int | None = None
    """This node is client ``part`` of a problem that everybody can build; ``None``: its data are
    its own.
    """
    methods: Path | None = None
    """The folder with the files of methods that may run here."""
    device: str = "cpu"

    def words(self) -> list[str]:
        """For the command line of the worker."""
        found = ["--name", self.name, "--states", str(self.states), "--device", self.device]
        for flag in ("data", "part", "methods"):
            value = getattr(self, flag)
            found += [] if value is None else [f"--{flag}", str(value)]
        return found


def salted(digest: str, folder: Path) -> str:
    """A digest of data that says whether they are the same as before, and nothing else: who has it
    cannot try out what they might be, without a number that stays in a folder of the node.
    """
    return hashlib.sha256(f"{drawn(folder / 'salt', 32)} {digest}".encode()).hexdigest()
