"""From the file of a spec to its document, and back: text and TOML."""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from undrift._files import read_plain, shallow
from undrift.spec.errors import BadSpec, Complaint

LARGEST_SPEC = 2**18
"""Bytes of a spec; the longest of the papers' has 15 thousand."""
DOTS = 200
"""In one line: tomllib takes quadratic time for a key of many parts."""


def read(source: str | Path) -> str:
    """The text of a spec file. Raises :class:`BadSpec`."""
    try:
        # Editors on Windows begin files with a byte order mark, which is no part of the text.
        return read_plain(Path(source), LARGEST_SPEC).decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise BadSpec([Complaint((), f"not UTF-8 text: {error}", str(source))]) from None
    except OSError as error:
        raise BadSpec([Complaint((), error.strerror or str(error), str(source))]) from None


def parsed(text: str, source: str) -> dict[str, Any]:
    """The document of a TOML text."""
    try:
        # Those of decimal numbers are no keys: a schedule may list thousands of them.
        if re.search(rf"(\.[^.\n]*){{{DOTS + 1}}}", re.sub(r"\d\.\d", "", text)):
            raise ValueError(f"a line with more than {DOTS} dots")
        found: dict[str, Any] = shallow(tomllib.loads(text))
        return found
    except (ValueError, RecursionError) as error:
        # Before Python 3.14 the line of an error of TOML is in its message alone.
        place = re.search(r"\(at line (\d+)", str(error))
        line = int(place[1]) if place else None
        raise BadSpec([Complaint((), f"not TOML: {error}", source, line)]) from None


def toml(document: Mapping[str, object]) -> str:
    """``document`` as a file: values first, then a [section] for each table.

    Lists and inner tables stay on the line of their key.
    """
    values, sections = "", ""
    for key, value in document.items():
        found = value if isinstance(value, list) else [value]
        tables = [table for table in found if isinstance(table, Mapping)]
        if not tables or len(tables) < len(found):
            values += f"{key} = {inline(value)}\n"
            continue
        head = f"[[{key}]]" if isinstance(value, list) else f"[{key}]"
        for table in tables:
            sections += f"\n{head}\n"
            for name, inner in table.items():
                sections += f"{name} = {inline(inner)}\n"
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
