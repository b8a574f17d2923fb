"""The lines of a TOML text on which its tables and keys stand; tomllib keeps no positions."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator, Mapping

Keys = tuple[str | int, ...]
"""Keys and array positions from the top: ``("method", 1, "lr")`` is lr of the second [[method]]."""

_QUOTED = r'"(?:\\.|[^"\\])*"' + r"|'[^']*'"
_STRING = (
    r'"""(?:\\.|[^\\])*?"""(?:"{0,2})'  # up to two quotes may stand before the closing three
    r"|'''.*?'''(?:'{0,2})|" + _QUOTED
)
_KEY = rf"(?:[A-Za-z0-9_-]+|{_QUOTED})"
_START = re.compile(rf"[ \t]*(\[?\[?)[ \t]*({_KEY}(?:[ \t]*\.[ \t]*{_KEY})*)")
_TOKEN = re.compile(rf"{_STRING}|#[^\n]*|[\[\]{{}}\n]", re.DOTALL)


def locate(text: str) -> dict[Keys, int]:
    """The line (from 1) of every table and key at the start of a line; tomllib accepts ``text``.

    >>> locate("a = 1\\n[[b]]\\nc.d = [2,\\n3]")[("b", 0, "c", "d")]
    3
    """
    lines: dict[Keys, int] = {}
    sizes: dict[Keys, int] = {}
    table: Keys = ()
    for line, brackets, keys in _statements(text):
        path: Keys = () if brackets else table
        for k, key in enumerate(keys):
            path = (*path, key)
            lines.setdefault(path, line)
            if brackets == "[[" and k == len(keys) - 1:
                sizes[path] = sizes.get(path, 0) + 1
            if path in sizes:
                path = (*path, sizes[path] - 1)
                lines.setdefault(path, line)
        if brackets:
            table = path
    return lines


def line_of(lines: Mapping[Keys, int], path: Keys) -> int:
    """The line of ``path``, or of the innermost table or key around it that has one."""
    while path and path not in lines:
        path = path[:-1]
    return lines.get(path, 1)


def _statements(text: str) -> Iterator[tuple[int, str, list[str]]]:
    """The line, the opening brackets and the dotted key of every header and key-value pair."""
    at, line = 0, 1
    while at < len(text):
        if start := _START.match(text, at):
            yield line, start[1], _parts(start[2])
        depth = 0
        for token in _TOKEN.finditer(text, at):
            at, line = token.end(), line + token[0].count("\n")
            depth += (token[0] in "[{") - (token[0] in "]}")
            if token[0] == "\n" and depth == 0:
                break
        else:
            return


def _parts(dotted: str) -> list[str]:
    """The parts of a dotted key, unquoted."""
    found, table = [], tomllib.loads(f"{dotted} = 0")
    while isinstance(table, dict):
        (key,) = table
        found.append(key)
        table = table[key]
    return found
