"""On which line of a TOML text a key stands; tomllib keeps no positions."""

from __future__ import annotations

import re
import tomllib
from bisect import bisect_left
from itertools import count

Path = tuple[str | int, ...]
"""Keys and array positions from the top: ``("method", 1, "lr")`` is lr of the second [[method]]."""

BLANK = re.compile(r"[ \t]*")
FILLER = re.compile(r"(?:[ \t\r\n]+|#[^\n]*)*")
BARE = re.compile(r"[A-Za-z0-9_-]+")
SCALAR = re.compile(r"[^,\]}#\n]*")
STRING = re.compile(
    r'"""(?:\\.|[^\\])*?"""(?:"{0,2})'  # up to two quotes may stand before the closing three
    r"|'''.*?'''(?:'{0,2})"
    r'|"(?:\\.|[^"\\])*"'
    r"|'[^']*'",
    re.DOTALL,
)


def locate(text: str) -> dict[Path, int]:
    """The line (from 1) of every table, key and array item of ``text``, which tomllib has accepted.

    >>> locate("a = 1\\n[[b]]\\nc.d = [2,\\n3]")[("b", 0, "c", "d", 1)]
    4
    """
    scanner = _Scanner(text)
    scanner.document()
    return scanner.lines


def line_of(lines: dict[Path, int], path: Path) -> int:
    """The line of ``path``, or of the innermost thing around it that is written down."""
    while path and path not in lines:
        path = path[:-1]
    return lines.get(path, 1)


class _Scanner:
    """Walks a valid text once. ``at`` is the next character, ``sizes`` the arrays of tables met so
    far.
    """

    def __init__(self, text: str):
        self.text, self.at = text, 0
        self.lines: dict[Path, int] = {}
        self.sizes: dict[Path, int] = {}
        self.ends = [m.start() for m in re.finditer("\n", text)]

    def document(self) -> None:
        table: Path = ()
        self.skip(FILLER)
        while self.at < len(self.text):
            if self.next("["):
                table = self.header()
            else:
                self.pair(table)
            self.skip(FILLER)

    def header(self) -> Path:
        start, brackets = self.at, 2 if self.next("[[") else 1
        self.at += brackets
        *parents, last = self.key()
        path: Path = ()
        for part in parents:
            path = self.inside((*path, part))
        path = (*path, last)
        if brackets == 2:
            self.sizes[path] = self.sizes.get(path, 0) + 1
        path = self.inside(path)
        self.mark(path, start)
        self.at += brackets
        return path

    def pair(self, table: Path) -> None:
        start = self.at
        path = (*table, *self.key())
        self.mark(path, start)
        self.at += 1  # the equals sign
        self.skip(BLANK)
        self.value(path)

    def key(self) -> list[str]:
        parts = []
        while True:
            self.skip(BLANK)
            quoted = self.next('"') or self.next("'")
            part = self.skip(STRING if quoted else BARE)
            parts.append(tomllib.loads(f"key = {part}")["key"] if quoted else part)
            self.skip(BLANK)
            if not self.next("."):
                return parts
            self.at += 1

    def value(self, path: Path) -> None:
        if self.next('"') or self.next("'"):
            self.skip(STRING)
        elif self.next("["):
            self.items(path)
        elif self.next("{"):
            self.at += 1
            while not self.closed("}"):
                self.pair(path)
        else:
            self.skip(SCALAR)

    def items(self, path: Path) -> None:
        self.at += 1
        for i in count():
            if self.closed("]"):
                return
            self.mark((*path, i), self.at)
            self.value((*path, i))

    def closed(self, bracket: str) -> bool:
        """Passes what separates two items, and the closing bracket."""
        self.skip(FILLER)
        if self.next(","):
            self.at += 1
            self.skip(FILLER)
        if found := self.next(bracket):
            self.at += 1
        return found

    def inside(self, path: Path) -> Path:
        """The last element, where ``path`` is an array of tables."""
        return (*path, self.sizes[path] - 1) if path in self.sizes else path

    def mark(self, path: Path, at: int) -> None:
        line = bisect_left(self.ends, at) + 1
        for k in range(len(path), 0, -1):  # what is around a known place is known
            if path[:k] in self.lines:
                return
            self.lines[path[:k]] = line

    def next(self, text: str) -> bool:
        return self.text.startswith(text, self.at)

    def skip(self, pattern: re.Pattern[str]) -> str:
        """Passes what ``pattern`` matches here. No match means a text tomllib would have refused."""
        match = pattern.match(self.text, self.at)
        if match is None:
            raise ValueError(f"not TOML at character {self.at}")
        self.at = match.end()
        return match[0]
