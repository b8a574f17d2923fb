"""Lines with a running digest: one that was changed, lost, moved or added is found.

A line is a JSON object. Its last entry, ``seal``, is a digest of the run, the file and every line
up to this one. Earlier versions wrote lines without; the seals of later lines cover those too.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable
from typing import NamedTuple

_TAIL = re.compile(rb', "seal": "([0-9a-f]{16})"}')
_LENGTH = len(', "seal": "0123456789abcdef"}')


class Lines(NamedTuple):
    """The lines of a file without their seals, and how far they are as they were written."""

    texts: list[bytes]
    sound: int
    """How many of them, from the first, are as they were written."""
    broken: int | None
    """The number of the first line whose seal is wrong or missing."""
    last: str
    """The running digest after all of them."""


def beginning(identity: str, file: str) -> str:
    """The running digest before the first line of a run's file."""
    return after("", f"{file} {identity}".encode())


def after(before: str, text: bytes) -> str:
    """The running digest after one more line."""
    return hashlib.sha256(before.encode() + text).hexdigest()[:16]


def sealed(text: bytes, seal: str) -> bytes:
    """The JSON object ``text`` as a line, with its seal."""
    return b'%b, "seal": "%b"}\n' % (text[:-1], seal.encode())


def seal(texts: Iterable[bytes], before: str) -> tuple[bytes, str]:
    """JSON objects as sealed lines, and the running digest after them."""
    lines = []
    for text in texts:
        before = after(before, text)
        lines.append(sealed(text, before))
    return b"".join(lines), before


def check(content: bytes, before: str, every: bool) -> Lines:
    """Check a file's lines, without a last one that a crash cut short.

    ``every`` line has a seal, unless an earlier version wrote the first ones.
    """
    texts = list[bytes]()
    sound, broken = 0, None
    for number, line in enumerate(content.split(b"\n")[:-1], 1):
        found = _TAIL.fullmatch(line, max(len(line) - _LENGTH, 0))
        text = line[:-_LENGTH] + b"}" if found else line
        texts.append(text)
        before = after(before, text)
        if broken is not None:
            continue
        if found and found[1] == before.encode():
            sound, every = number, True
        elif found or every:
            broken = number
    return Lines(texts, len(texts) if broken is None else sound, broken, before)
