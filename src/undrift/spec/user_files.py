"""What a spec takes from Python files of the user's: which files, and what is found in them."""

from __future__ import annotations

import dataclasses
import importlib.util
import sys
import traceback
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from types import FunctionType, ModuleType
from typing import Any, TypeVar

from undrift import methods
from undrift.core.method import Method, registry
from undrift.core.params import fold, hints, not_allowed, unknown
from undrift.objectives import Objective
from undrift.objectives.base import registry as losses
from undrift.problems.named import registry as problems
from undrift.spec.errors import BadFile, BadSpec, Complaints, Origin
from undrift.spec.functions import Maker
from undrift.spec.lines import Keys
from undrift.spec.overrides import tables
from undrift.spec.schema import Values

OWN = "undrift_own_"
"""What the names of modules begin with that are users' files."""


@dataclasses.dataclass(frozen=True)
class Plugin:
    """What a user's file defines."""

    file: Path
    methods: list[type[Method]]
    objectives: list[type[Objective]]
    makers: dict[str, Maker]
    """Its functions and other classes by their names."""

    @property
    def names(self) -> list[str]:
        """Of all that it defines."""
        return [*(cls.__name__ for cls in (*self.methods, *self.objectives)), *self.makers]


def execute(file: Path) -> Plugin:
    """Execute a file, as any module is, and return what it defines."""
    if not file.is_file():
        raise BadFile(file, "there is no such file")
    whole = file.absolute()  # as tracebacks have it
    spec = importlib.util.spec_from_file_location(f"{OWN}{file.stem}", whole)
    if spec is None or spec.loader is None:
        raise BadFile(file, "not a Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # where dataclasses look up annotations
    registries: list[dict[str, Any]] = [registry, losses, problems]
    before, bytecode = [dict(known) for known in registries], sys.dont_write_bytecode
    sys.dont_write_bytecode = True  # the user's folder stays as it is
    try:
        with _importing_from(whole.parent):
            spec.loader.exec_module(module)
        own = {k: v for k, v in vars(module).items() if _stands_in(v, module)}
        classes = [cls for cls in own.values() if isinstance(cls, type)]
        found = [cls for cls in classes if issubclass(cls, Method) and not cls.abstract]
        objectives = [cls for cls in classes if issubclass(cls, Objective)]
        for cls in (*found, *objectives):
            hints(cls)  # an annotation may be anything
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # sys.exit() too: the file does not end this program
        line = line_in(error, whole)
        what = error.msg if isinstance(error, SyntaxError) and line == error.lineno else error
        raise BadFile(file, f"{type(error).__name__}: {what}", line) from error
    finally:
        sys.dont_write_bytecode = bytecode
        for known, entries in zip(registries, before, strict=True):
            known.clear()
            known.update(entries)
    for kind, names, others in (
        ("a method", [cls.__name__ for cls in found], methods.__all__),
        ("an objective", [cls.__name__ for cls in objectives], losses),
    ):
        for name in names:
            if name in others:
                raise BadFile(file, f"{name} is {kind} of undrift already: choose another name")
    makers = {k: v for k, v in own.items() if v not in found and v not in objectives}
    return Plugin(file, found, objectives, makers)


@contextmanager
def _importing_from(folder: Path) -> Iterator[None]:
    """Let a user's file import modules of its own folder; these are no part of what is recorded."""
    before = {*sys.modules}
    sys.path.insert(0, str(folder))
    try:
        yield
    finally:
        sys.path.remove(str(folder))
    new = {name.partition(".")[0] for name in {*sys.modules} - before}
    if own := sorted(name for name in new if _is_in(folder, name)):
        text = f"{', '.join(own)} from {folder}: imported, but not recorded with the run"
        warnings.warn(text, stacklevel=3)


def _is_in(folder: Path, module: str) -> bool:
    return (folder / f"{module}.py").is_file() or (folder / module / "__init__.py").is_file()


def line_in(error: BaseException, file: Path) -> int | None:
    """The last line of ``file`` that ``error`` passed through."""
    frames = traceback.walk_tb(error.__traceback__)
    lines = [line for frame, line in frames if Path(frame.f_code.co_filename) == file]
    if isinstance(error, SyntaxError) and error.lineno and error.filename == str(file):
        lines.append(error.lineno)
    return lines[-1] if lines else None


def _stands_in(thing: object, module: ModuleType) -> bool:
    """Whether a function or a class is defined in ``module``, not imported there."""
    kinds = (type, FunctionType)
    return isinstance(thing, kinds) and getattr(thing, "__module__", "") == module.__name__


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
    executed = cache(execute)
    for path, table in calls.items():
        try:
            found = executed(folder / table["file"])
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


Found = TypeVar("Found", bound=Callable[..., object])


def _choose(
    own: dict[Keys, Found],
    found: Iterable[Found],
    plugin: Plugin,
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
