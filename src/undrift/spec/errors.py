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
        # A flag may have set what is wrong, the table around it, or something inside.
        near = [at for at in self.flags if all(a == b for a, b in zip(at, path, strict=False))]
        if near and path:
            return Complaint(path, text, self.flags[max(near, key=len)])
        if self.text is None:
            return Complaint(path, text, self.source + "".join(f"[{key!r}]" for key in path))
        return Complaint(path, text, self.source, line_of(self.text, path))


def keys_of(field: str) -> Keys:
    """The keys of a field that is written with dots."""
    return tuple(int(key) if key.isdecimal() else key for key in field.split(".") if key)


def line_of(text: str, path: Keys) -> int:
    """The line of ``path``, or of the innermost table or key around it that has one."""
    lines = locate(text)
    while path and path not in lines:
        path = path[:-1]
    return lines.get(path, 1)


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
