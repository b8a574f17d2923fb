"""The file of a user's own method to start from."""

from __future__ import annotations

import re
from importlib.resources import files
from pathlib import Path

from undrift._files import reserved
from undrift.methods import __all__ as known

NAME = re.compile(r"[A-Z][A-Za-z0-9]*")


class BadName(ValueError):
    """A name that no new method can have."""


def write(name: str, folder: Path) -> Path:
    """A new file with a method called ``name`` that passes the battery; no file is replaced."""
    file = folder / f"{name.lower()}.py"
    if not NAME.fullmatch(name):
        raise BadName(f"{name!r} cannot name a method: a capital letter, then letters and digits")
    if reserved(name):
        raise BadName(f"{name} cannot name a file on Windows: choose another name")
    if name in known:
        raise BadName(f"{name} is a method of undrift already: choose another name")
    template = files("undrift.check").joinpath("method.txt").read_text(encoding="utf-8")
    try:
        with file.open("x", encoding="utf-8") as out:
            out.write(template.format(name=name))
    except FileExistsError:
        raise BadName(f"{file} exists already: choose another name, or remove it") from None
    return file
