"""From the file of a spec to its document: text, then TOML."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

from undrift._files import read_plain, shallow
from undrift.spec.errors import BadSpec, Complaint
from undrift.spec.schema import Values

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


def parsed(text: str, source: str) -> Values:
    """The document of a TOML text."""
    try:
        # Those of decimal numbers are no keys: a schedule may list thousands of them.
        if any(re.sub(r"\d\.\d", "", line).count(".") > DOTS for line in text.split("\n")):
            raise ValueError(f"a line with more than {DOTS} dots")
        found: Values = shallow(tomllib.loads(text))
        return found
    except (ValueError, RecursionError) as error:
        # Before Python 3.14 the line of an error of TOML is in its message alone.
        place = re.search(r"\(at line (\d+)", str(error))
        line = int(place[1]) if place else None
        raise BadSpec([Complaint((), f"not TOML: {error}", source, line)]) from None
