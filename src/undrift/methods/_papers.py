"""The papers of methods and objectives as BibTeX: those that a docstring refers to by title."""

from __future__ import annotations

import re
import unicodedata
from functools import cache
from importlib.resources import files

from undrift.core.params import section

_ENTRY = re.compile(r"@\w+\{(?P<key>\w+),.*?\n  title = \{(?P<title>.*?)\},\n.*?\n\}", re.DOTALL)


@cache
def papers() -> dict[str, str]:
    """The key of every paper of ``papers.bib``, and its entry."""
    return {found["key"]: found[0] for found in _ENTRY.finditer(_text())}


def cited(cls: type) -> dict[str, str]:
    """Key -> entry of each paper under ``References:``, in that order."""
    said = _letters(reference(cls))
    titles = {found["key"]: _letters(found["title"]) for found in _ENTRY.finditer(_text())}
    keys = sorted((said.find(title), key) for key, title in titles.items() if title in said)
    return {key: papers()[key] for _, key in keys}


def reference(cls: type) -> str:
    """The plain form."""
    return " ".join(section(cls, "References"))


@cache
def _text() -> str:
    return files(__package__).joinpath("papers.bib").read_text(encoding="utf-8")


def _letters(text: str) -> str:
    """Without accents, which BibTeX has as commands, capitals and signs."""
    plain = unicodedata.normalize("NFKD", re.sub(r"\\\W|\\[a-z]\b", "", text)).casefold()
    return "".join(letter for letter in plain if letter.isascii() and letter.isalnum())
