"""The files of a user's own method, problem, network or objective to start from."""

from __future__ import annotations

import keyword
import re
from collections.abc import Collection
from importlib.resources import files
from pathlib import Path
from typing import Literal, NamedTuple

from undrift.methods import __all__ as methods
from undrift.models.named import registry as networks
from undrift.objectives.base import registry as objectives
from undrift.problems.named import registry as problems

Kind = Literal["method", "problem", "network", "objective"]
CLASS = re.compile(r"[A-Z][A-Za-z0-9]*"), "a capital letter, then letters and digits"
FUNCTION = re.compile(r"[a-z][a-z0-9_]*"), "a small letter, then small letters, digits and _"


class Template(NamedTuple):
    """What a kind of thing is called, and the names that are taken."""

    form: tuple[re.Pattern[str], str]
    taken: Collection[str]
    example: str


TEMPLATES: dict[Kind, Template] = {
    "method": Template(CLASS, methods, "Mine"),
    "problem": Template(FUNCTION, problems, "my_problem"),
    "network": Template(FUNCTION, networks, "my_network"),
    "objective": Template(CLASS, objectives, "MyLoss"),
}


class BadName(ValueError):
    """A name that nothing new can have."""


def write(name: str, folder: Path, kind: Kind = "method") -> Path:
    """A new file with something called ``name`` that passes its checks; no file is replaced."""
    file, template = folder / f"{name.lower()}.py", TEMPLATES[kind]
    pattern, form = template.form
    article = "an" if kind == "objective" else "a"
    if not pattern.fullmatch(name) or keyword.iskeyword(name):
        raise BadName(f"{name!r} cannot name {article} {kind}: {form}, such as {template.example}")
    if name in template.taken:
        raise BadName(f"{name} is {article} {kind} of undrift already: choose another name")
    text = files("undrift.check").joinpath(f"{kind}.txt").read_text(encoding="utf-8")
    try:
        with file.open("x", encoding="utf-8") as out:
            out.write(text.format(name=name))
    except FileExistsError:
        raise BadName(f"{file} exists already: choose another name, or remove it") from None
    return file
