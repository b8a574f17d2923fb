"""TOML text of a document. Lists and inner tables stay on the line of their key."""

from __future__ import annotations

import json
from collections.abc import Mapping


def toml(document: Mapping[str, object]) -> str:
    """``document`` as a file: values first, then a [section] for each table."""
    values, sections = "", ""
    for key, value in document.items():
        found = value if isinstance(value, list) else [value]
        tables = [table for table in found if isinstance(table, Mapping)]
        if not tables or len(tables) < len(found):
            values += f"{key} = {inline(value)}\n"
            continue
        head = f"[[{key}]]" if isinstance(value, list) else f"[{key}]"
        for table in tables:
            lines = (f"{name} = {inline(inner)}\n" for name, inner in table.items())
            sections += f"\n{head}\n{''.join(lines)}"
    return values + sections


def inline(value: object) -> str:
    """A value on one line; keys of tables are plain words.

    >>> inline({"name": "MOON", "mu": 0.5, "on": True, "list": [1, 2]})
    '{ name = "MOON", mu = 0.5, on = true, list = [1, 2] }'
    """
    if isinstance(value, Mapping):
        return f"{{ {', '.join(f'{key} = {inline(inner)}' for key, inner in value.items())} }}"
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(inline, value))}]"
    if isinstance(value, float):
        return repr(value)
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
