"""The lines of a TOML text on which its tables and keys stand; tomllib keeps no positions."""

from __future__ import annotations

import tomllib
from functools import lru_cache

Keys = tuple[str | int, ...]
"""Keys and array positions from the top: ``("method", 1, "lr")`` is lr of the second [[method]]."""


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
