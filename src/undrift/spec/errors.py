"""What is wrong with a spec, and the place that says it."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping
from functools import cached_property
from pathlib import Path

from undrift.spec.lines import Keys, line_of, locate


@dataclasses.dataclass(frozen=True)
class Place:
    """A line of the file ``source``, the whole file, or (without a line) a command-line flag."""

    source: str
    line: int | None = None

    def __str__(self) -> str:
        text = self.source if self.line is None else f"{self.source}:{self.line}"
        return text if len(text) <= 300 else f"{text[:297]}..."


@dataclasses.dataclass(frozen=True)
class Complaint:
    """One thing that is wrong: with which key, what, and where it was written."""

    path: Keys
    text: str
    place: Place

    def __str__(self) -> str:
        return f"{self.place}: {self.text}"


class BadSpec(ValueError):
    """A spec that cannot be run; ``complaints`` has everything that is wrong with it."""

    def __init__(self, complaints: Iterable[Complaint]):
        different = {(c.place, c.text): c for c in reversed([*complaints])}  # the first of equals
        self.complaints = sorted(reversed(different.values()), key=lambda c: c.place.line or 0)
        super().__init__("\n".join(map(str, self.complaints)))


class BadFile(ValueError):
    """A file that cannot be used: ``file``, ``line`` where it is known, and ``text``."""

    def __init__(self, file: Path, text: str, line: int | None = None):
        self.file, self.text, self.line = file, text, line
        super().__init__(f"{file}{'' if line is None else f':{line}'}: {text}")


class Origin:
    """Where each part of a spec was written; ``flags`` are those of the command line, by path.

    Without a ``text`` the spec is a dictionary of Python, and a place is told by its keys.
    """

    def __init__(self, source: str, text: str | None = None):
        self.source, self.text = source, text
        self.flags: dict[Keys, str] = {}

    @cached_property
    def lines(self) -> Mapping[Keys, int]:
        """The lines of its keys; only complaints need them."""
        return locate(self.text or "")

    def place(self, path: Keys) -> Place:
        for k in range(len(path), 0, -1):
            if flag := self.flags.get(path[:k]):
                return Place(flag)
        if self.text is None:
            return Place(self.source + "".join(f"[{key!r}]" for key in path))
        return Place(self.source, line_of(self.lines, path))

    def complaint(self, path: Keys, text: str) -> Complaint:
        return Complaint(path, text, self.place(path))


class Complaints:
    """The complaints about one document, gathered until all of it has been read."""

    def __init__(self, origin: Origin):
        self.origin, self.found = origin, list[Complaint]()

    def add(self, path: Keys, text: str) -> None:
        self.found.append(self.origin.complaint(path, text))

    def add_fields(self, path: Keys, problems: Mapping[str, str]) -> None:
        """Complain about fields of the table at ``path``, written with dots."""
        for field, text in problems.items():
            self.add((*path, *keys_of(field)), text)


def keys_of(field: str) -> Keys:
    """The keys of a field that is written with dots."""
    return tuple(int(key) if key.isdecimal() else key for key in field.split(".") if key)
