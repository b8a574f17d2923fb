"""What is wrong with a spec, and the line that says it; tomllib keeps no positions."""

from __future__ import annotations

import dataclasses
import tomllib
from collections.abc import Iterable
from functools import lru_cache
from pathlib import Path

Keys = tuple[str | int, ...]
"""Keys and array positions from the top: ``("method", 1, "lr")`` is lr of the second [[method]]."""


@dataclasses.dataclass(frozen=True)
class Complaint:
    """One thing that is wrong: with which key, what, and where it was written."""

    path: Keys
    text: str
    source: str
    """A file, the keys of a dictionary, or a flag of the command line."""
    line: int | None = None

    def __str__(self) -> str:
        line = "" if self.line is None else f":{self.line}"
        return f"{self.source}{line}: {self.text}"


class BadSpec(ValueError):
    """A spec that cannot be run; ``complaints`` has everything that is wrong with it."""

    def __init__(self, complaints: Iterable[Complaint]):
        different = {str(complaint): complaint for complaint in complaints}
        self.complaints = sorted(different.values(), key=lambda c: c.line or 0)
        super().__init__("\n".join(map(str, self.complaints)))


class BadFile(ValueError):
    """A file that cannot be used: ``file``, ``line`` where it is known, and ``text``."""

    def __init__(self, file: Path, text: str, line: int | None = None):
        self.file, self.text, self.line = file, text, line
        super().__init__(f"{file}{'' if line is None else f':{line}'}: {text}")


@dataclasses.dataclass
class Origin:
    """Where each part of a spec was written; ``flags`` are those of the command line, by path.

    Without a ``text`` the spec is a dictionary of Python, and a place is told by its keys.
    """

    source: str
    text: str | None = None
    flags: dict[Keys, str] = dataclasses.field(default_factory=dict)

    def complaint(self, path: Keys, text: str) -> Complaint:
        """What is wrong at ``path``: there, or at the innermost table around it that is written."""
        around = [path[:k] for k in range(len(path), 0, -1)]
        inside: dict[Keys, str | int] = {
            at[:k]: flag for at, flag in self.flags.items() for k in range(1, len(at) + 1)
        }
        # A flag may have set what is wrong, the table around it, or something inside.
        places: list[str | int | None] = [*map(self.flags.get, around), inside.get(path)]
        if self.text is not None:  # or have made a table that the file does not have
            written = inside | locate(self.text)
            places += [written.get(at) for at in around]
        place = next((place for place in places if place), 1)
        if isinstance(place, str):
            return Complaint(path, text, place)
        if self.text is None:
            return Complaint(path, text, self.source + "".join(f"[{key!r}]" for key in path))
        return Complaint(path, text, self.source, place)


def keys_of(field: str) -> Keys:
    """The keys of a field that is written with dots."""
    return tuple(int(key) if key.isdecimal() else key for key in field.split(".") if key)


@lru_cache(maxsize=8)
def locate(text: str) -> dict[Keys, int]:
    """The line (from 1) of every table and key at the start of a line; tomllib accepts ``text``.

    >>> locate("a = 1\\n[[b]]\\nc.d = [2,\\n3]")[("b", 0, "c", "d")]
    3
    """
    lines: dict[Keys, int] = {}
    sizes: dict[Keys, int] = {}
    table: Keys = ()
    statement, first = "", 1
    for number, line in enumerate(text.split("\n"), 1):
        statement += f"{line}\n"
        try:
            found: object = tomllib.loads(statement)
        except tomllib.TOMLDecodeError:
            continue  # in the middle of a string or a list of several lines
        header = statement.lstrip().startswith("[")
        path: Keys = () if header else table
        # A header, or a key with its value, is a table with one key at each level of its name.
        while isinstance(found, dict) and len(found) == 1:
            ((key, found),) = found.items()
            path = (*path, key)
            lines.setdefault(path, first)
            if header and isinstance(found, list):
                sizes[path] = sizes.get(path, 0) + 1
            if path in sizes:
                path = (*path, sizes[path] - 1)
                lines.setdefault(path, first)
        if header:
            table = path
        statement, first = "", number + 1
    return lines
