"""What a client remembers, as files of its own machine: one for every work that may still count.

A file is whole and on disk before the reply to that work leaves, and is called after the work. An
order says after which work it continues: so work that did not count, or is asked for again, is done
again from where it began. A file that should be there and is not is an error, never a fresh start.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import NamedTuple

from torch import Tensor

from undrift.engines.format import BadFormat, read_sealed, write_sealed

MOST = 2**20
"""Bytes of the head of a file."""
NAME = re.compile(r"(\d{1,18})-(\d{1,18})-(\d{1,18})")


class Tag(NamedTuple):
    """One work of a client."""

    round: int
    place: int
    """Of the phase in its round."""
    attempt: int
    """A round may begin again, and is then another one."""


class BadGeneration(RuntimeError):
    """The states that an order continues from are not there, or are not those of this run."""


class Generations:
    """The states of one client in one run, in ``folder``."""

    def __init__(self, folder: Path, run: str, client: int):
        self.folder, self.run, self.client = folder, run, client

    def load(self, tag: Tag) -> dict[str, Tensor]:
        """The states after a work."""
        path = self._path(tag)
        if not path.exists():
            raise BadGeneration(
                f"{path}: the states that the order continues from are not on this node; put the "
                "folder back, or begin the run afresh"
            )
        try:
            header, tensors = read_sealed(path, MOST)
        except BadFormat as error:
            raise BadGeneration(f"{path}: {error}") from error
        expected = self._about(tag)
        if header != expected:
            raise BadGeneration(f"{path}: of another run or client ({header}, not {expected})")
        return tensors

    def store(self, tag: Tag, tensors: Mapping[str, Tensor]) -> None:
        """Write the states after a work; they are on disk when this returns."""
        self.make_folder()
        write_sealed(self._path(tag), tensors, self._about(tag))

    def make_folder(self) -> None:
        """For this user alone: states can reveal about the data what gradients reveal."""
        self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)

    def keep(self, tags: Collection[Tag]) -> None:
        """Remove the states after all other works."""
        for path in self.folder.glob("*.safetensors"):
            found = NAME.fullmatch(path.stem)
            if found and Tag(*map(int, found.groups())) not in tags:
                path.unlink(missing_ok=True)

    def _about(self, tag: Tag) -> dict[str, str]:
        return {"client": str(self.client), "run": self.run, "work": json.dumps(tag)}

    def _path(self, tag: Tag) -> Path:
        return self.folder / f"{tag.round}-{tag.place}-{tag.attempt}.safetensors"
