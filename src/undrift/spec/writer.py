"""TOML text of a document. Lists and inner tables stay on the line of their key."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping

BARE = re.compile(r"[A-Za-z0-9_-]+")


def toml(document: Mapping[str, object]) -> str:
    """``document`` as a file: values first, then a [section] for each table."""
    tables = {key: _tables(value) for key, value in document.items()}
    parts = [_pairs({key: value for key, value in document.items() if not tables[key]})]
    for key, found in tables.items():
        head = f"[[{_key(key)}]]" if isinstance(document[key], list) else f"[{_key(key)}]"
        parts += [f"\n{head}\n{_pairs(table)}" for table in found]
    return "".join(parts)


def inline(value: object) -> str:
    """A value on one line.

    >>> inline({"name": "MOON", "mu": 0.5, "on": True, "list": [1, 2]})
    '{ name = "MOON", mu = 0.5, on = true, list = [1, 2] }'
    """
    if isinstance(value, Mapping):
        return f"{{ {', '.join(f'{_key(k)} = {inline(v)}' for k, v in value.items())} }}"
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(inline, value))}]"
    if isinstance(value, float):
        return repr(value)
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")


def _tables(value: object) -> list[Mapping[str, object]]:
    """The tables of a section, or of several with one name; empty for any other value."""
    found = value if isinstance(value, list) else [value]
    tables = [table for table in found if isinstance(table, Mapping)]
    return tables if len(tables) == len(found) else []


def _pairs(table: Mapping[str, object]) -> str:
    return "".join(f"{_key(key)} = {inline(value)}\n" for key, value in table.items())


def _key(key: str) -> str:
    return key if BARE.fullmatch(key) else inline(key)
