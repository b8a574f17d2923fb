"""What a spec takes from Python files of the user's: which files, and what is found in them."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import TypeVar

from undrift.core.method import Method
from undrift.core.params import fold, not_allowed, unknown
from undrift.objectives import Objective
from undrift.spec import plugins
from undrift.spec.beside import beside, importable
from undrift.spec.errors import BadFile, BadSpec, Complaints, Origin
from undrift.spec.functions import Maker
from undrift.spec.lines import Keys
from undrift.spec.overrides import tables
from undrift.spec.schema import Values

Code = Callable[[Mapping[str, Sequence[str]]], None]
"""Called before any file of a spec is executed, with the labels of the methods in each file."""


def own_tables(document: Values) -> dict[Keys, Values]:
    """The tables of a document that name a file of the user's, by their places."""
    places: list[tuple[Keys, object]] = [
        ((key,), document.get(key)) for key in ("problem", "network", "data", "objective")
    ]
    for i, table in enumerate(tables(document)):
        places += [(("method", i), table), (("method", i, "objective"), table.get("objective"))]
    return {path: table for path, table in places if isinstance(table, dict) and "file" in table}


def labels_by_file(calls: Mapping[Keys, Values]) -> dict[str, list[str]]:
    """The users' files, with what is from each: labels of methods, names of the rest."""
    files: dict[str, list[str]] = {}
    for table in calls.values():
        files.setdefault(table["file"], []).append(str(table.get("label", table["name"])))
    return {file: list(dict.fromkeys(names)) for file, names in files.items()}


@dataclasses.dataclass
class Own:
    """What is from users' files, by its place in the spec."""

    methods: dict[Keys, type[Method]] = dataclasses.field(default_factory=dict)
    objectives: dict[Keys, type[Objective]] = dataclasses.field(default_factory=dict)
    makers: dict[Keys, Maker] = dataclasses.field(default_factory=dict)


def load_files(calls: Mapping[Keys, Values], origin: Origin, folder: Path) -> Own:
    """Execute the files of users, and find in them what the spec names."""
    own, complaints = Own(), Complaints(origin)
    execute = cache(plugins.execute)
    with importable(_modules(calls, folder, complaints)):  # once for all files
        for path, table in calls.items():
            try:
                found = execute(folder / table["file"])
            except BadFile as error:
                complaints.add((*path, "file"), str(error))
                continue
            kind = str(path[0] if len(path) == 2 else path[-1])  # ("method", i), or what a key says
            if kind == "method":
                _choose(own.methods, found.methods, found, kind, path, table, complaints)
            elif kind == "objective":
                _choose(own.objectives, found.objectives, found, kind, path, table, complaints)
                if path in own.objectives:
                    own.objectives[path].file = table["file"]
            else:
                _choose(own.makers, found.makers.values(), found, kind, path, table, complaints)
    if complaints.found:
        raise BadSpec(complaints.found)
    return own


def _modules(calls: Mapping[Keys, Values], folder: Path, complaints: Complaints) -> dict[str, Path]:
    """The modules that the files import from beside them; complains about two of one name."""
    found = dict[str, Path]()
    for path, table in calls.items():
        for name, place in beside((folder / table["file"]).absolute()).items():
            if (other := found.setdefault(name, place)) != place:
                text = f"{table['file']} imports {place}, another file {other}: rename one of them"
                complaints.add((*path, "file"), text)
    return found


Found = TypeVar("Found", bound=Callable[..., object])


def _choose(
    own: dict[Keys, Found],
    found: Iterable[Found],
    plugin: plugins.Plugin,
    kind: str,
    path: Keys,
    table: Values,
    complaints: Complaints,
) -> None:
    """Take the one that ``table`` names, or complain that the file has no such thing."""
    known = {fold(one.__name__): one for one in found}
    if one := known.get(fold(table["name"])):
        own[path] = one
        return
    names = [one.__name__ for one in known.values()]
    text = unknown(f"{kind} of {table['file']}", table["name"], names)
    if others := [name for name in plugin.names if name not in names]:
        text += f"; other names in the file: {', '.join(others)}"
    complaints.add((*path, "name"), text)


def judge_file(file: object, path: Keys, folder: Path, complaints: Complaints) -> None:
    """Complain about a file that is not there, or not where a spec may have it."""
    if not _inside(file, folder):
        text = "a Python file in the folder of the spec or below it"
        complaints.add((*path, "file"), not_allowed("file", file, text))
    elif not (folder / str(file)).is_file():
        complaints.add((*path, "file"), f"{folder / str(file)}: there is no such file")


def _inside(file: object, folder: Path) -> bool:
    """Whether ``file`` names a Python file in the folder of the spec or below it."""
    if not (isinstance(file, str) and file.isprintable() and file.endswith(".py")):
        return False
    if Path(file).is_absolute() or ".." in Path(file).parts:
        return False
    return (folder / file).resolve().is_relative_to(folder.resolve())
