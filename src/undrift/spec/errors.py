"""What is wrong with a spec, and the place that says it."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping
from pathlib import Path

from undrift.spec.lines import Keys, line_of


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


class Origin:
    """Where each part of a spec was written; ``flags`` are those of the command line, by path.

    Without a ``text`` the spec is a dictionary of Python, and a place is told by its keys.
    """

    def __init__(self, source: str, text: str | None = None):
        self.source, self.text = source, text
        self.flags: dict[Keys, str] = {}

    def complaint(self, path: Keys, text: str) -> Complaint:
        # A flag may have set what is wrong, the table around it, or something inside.
        near = [at for at in self.flags if all(a == b for a, b in zip(at, path, strict=False))]
        if near and path:
            return Complaint(path, text, self.flags[max(near, key=len)])
        if self.text is None:
            return Complaint(path, text, self.source + "".join(f"[{key!r}]" for key in path))
        return Complaint(path, text, self.source, line_of(self.text, path))

    def complaints(self, path: Keys, problems: Mapping[str, str]) -> list[Complaint]:
        """About fields of the table at ``path``, written with dots."""
        return [self.complaint((*path, *keys_of(at)), text) for at, text in problems.items()]


def keys_of(field: str) -> Keys:
    """The keys of a field that is written with dots."""
    return tuple(int(key) if key.isdecimal() else key for key in field.split(".") if key)
