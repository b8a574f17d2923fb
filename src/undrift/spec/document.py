"""From the file of a spec to its document: text, then TOML."""

from __future__ import annotations

import difflib
import re
import tomllib
from codecs import BOM_UTF8
from pathlib import Path

from undrift._files import read_plain, shallow
from undrift.spec.errors import BadSpec, Complaint, Place
from undrift.spec.schema import Values

LARGEST_SPEC = 2**18
"""Bytes of a spec; the longest of the papers' has 15 thousand."""
DOTS = 200
"""In one line: tomllib takes quadratic time for a key of many parts."""


def read(source: str | Path) -> str:
    """The text of a spec file. Raises :class:`BadSpec`."""
    file = Path(source)
    try:
        content = read_plain(file, LARGEST_SPEC)
        return content.removeprefix(BOM_UTF8).decode()  # as editors on Windows begin files
    except FileNotFoundError:
        others = [other.name for other in file.parent.glob("*.toml")]
        near = difflib.get_close_matches(file.name, others, n=1, cutoff=0.5)
        hint = f"; did you mean {file.parent / near[0]}?" if near else ""
        raise _bad(f"there is no such file{hint}", str(source)) from None
    except UnicodeDecodeError as error:
        raise _bad(f"not UTF-8 text (byte {error.start})", str(source)) from None
    except OSError as error:
        why = error.strerror or "cannot be read"
        raise _bad(why[0].lower() + why[1:], str(source)) from None


def parsed(text: str, source: str) -> Values:
    """The document of a TOML text."""
    for number, content in enumerate(text.split("\n"), 1):
        if content.count(".") > DOTS:
            raise _bad(f"not a spec: a line with more than {DOTS} dots", source, number)
    try:
        found: Values = shallow(tomllib.loads(text))
        return found
    except tomllib.TOMLDecodeError as error:
        # Before Python 3.14 the line is in the message alone.
        place = re.search(r" \(at line (\d+), column \d+\)$| \(at end of document\)$", str(error))
        line = int(place[1]) if place and place[1] else len(text.splitlines()) or 1
        message = str(error)[: place.start()] if place else str(error)
        raise _bad(f"not TOML: {message}", source, line) from None
    except (RecursionError, ValueError):  # Python reads no number of thousands of digits
        remark = "nested too deeply, or with a number of thousands of digits"
        raise _bad(f"not a spec: {remark}", source) from None


def _bad(text: str, source: str, line: int | None = None) -> BadSpec:
    return BadSpec([Complaint((), text, Place(source, line))])
