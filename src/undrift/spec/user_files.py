"""What a spec takes from Python files of the user's: which files, and what is found in them."""

from __future__ import annotations

import dataclasses
import inspect
import sys
import traceback
import typing
import warnings
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from importlib.machinery import SourceFileLoader
from pathlib import Path
from types import FunctionType, ModuleType
from typing import Annotated, Any, Literal

from undrift._files import read_plain
from undrift.core.method import Method, registry
from undrift.core.params import (
    BadParameters,
    alternatives,
    fold,
    hints,
    not_allowed,
    unknown,
    values,
)
from undrift.objectives import Objective
from undrift.objectives.base import registry as losses
from undrift.problems.named import registry as problems
from undrift.spec.errors import BadFile

LARGEST_SOURCE = 2**22
"""Bytes of a user's file."""
OWN = "undrift_own_"
"""What the names of modules begin with that are users' files."""
NAMES = ("name", "file")
"""Keys of a table that calls a function; no parameter can have these names."""
PARAMETERS = (
    "a spec gives parameters by their names, which are not name or file, and their types: "
    "int, float, str, bool, a Literal or a list of these"
)
Maker = Callable[..., Any]


@dataclasses.dataclass(frozen=True)
class Plugin:
    """What a user's file defines, by its names."""

    file: Path
    source: bytes
    methods: dict[str, type[Method]]
    objectives: dict[str, type[Objective]]
    makers: dict[str, Maker]
    """Its functions and other classes."""


def execute(file: Path) -> Plugin:
    """Execute a file, as any module is, and return what it defines."""
    whole = file.absolute()  # as tracebacks have it
    loader = SourceFileLoader(f"{OWN}{file.stem}", str(whole))
    module = ModuleType(loader.name)
    module.__file__ = loader.path
    sys.modules[module.__name__] = module  # where dataclasses look up annotations
    registries: list[dict[str, Any]] = [registry, losses, problems]
    before, bytecode = [dict(known) for known in registries], sys.dont_write_bytecode
    # A file that is changed twice in a second would be taken from the bytecode of the first time.
    sys.dont_write_bytecode = True
    try:
        source = read_plain(file, LARGEST_SOURCE)
        with _importing_from(whole.parent):
            loader.exec_module(module)
        own: dict[str, Maker] = {
            k: v
            for k, v in vars(module).items()
            if isinstance(v, type | FunctionType) and v.__module__ == module.__name__
        }
        classes = {k: v for k, v in own.items() if isinstance(v, type)}
        methods = {k: v for k, v in classes.items() if issubclass(v, Method) and not v.abstract}
        objectives = {k: v for k, v in classes.items() if issubclass(v, Objective)}
        for cls in (*methods.values(), *objectives.values()):
            hints(cls)  # an annotation may be anything
    except (Exception, SystemExit) as error:  # the file does not end this program
        raise BadFile(file, f"{type(error).__name__}: {error}", line_in(error, whole)) from error
    finally:
        sys.dont_write_bytecode = bytecode
        for known, entries in zip(registries, before, strict=True):
            known.clear()
            known.update(entries)
    makers = {k: v for k, v in own.items() if k not in methods and k not in objectives}
    return Plugin(file, source, methods, objectives, makers)


@contextmanager
def _importing_from(folder: Path) -> Iterator[None]:
    """Let a user's file import modules of its own folder; these are no part of what is recorded."""
    before = {*sys.modules}
    sys.path.insert(0, str(folder))
    try:
        yield
    finally:
        sys.path.remove(str(folder))
    if own := sorted(name for name in {*sys.modules} - before if (folder / f"{name}.py").is_file()):
        text = f"{', '.join(own)} from {folder}: imported, but not recorded with the run"
        warnings.warn(text, stacklevel=3)


def line_in(error: BaseException, file: Path) -> int | None:
    """The last line that ``error`` passed through of a file whose path ends with ``file``."""
    frames, tail = traceback.walk_tb(error.__traceback__), file.parts
    places = [(Path(frame.f_code.co_filename).parts, line) for frame, line in frames]
    lines = [line for parts, line in places if parts[-len(tail) :] == tail]
    return lines[-1] if lines else None


Code = Callable[[str], None]
"""Called with the name of each file of a spec before it is executed. A ``ValueError`` of it is a
complaint about the spec, and the file is not executed.
"""


def distrust(remedy: str) -> Code:
    """Refuses the code that a run's folder brings."""

    def refuse(file: str) -> None:
        text = "Python code in the folder, which would be executed. If you trust it"
        raise BadFile(Path(file), f"{text}: {remedy}")

    return refuse


@dataclasses.dataclass
class UserFiles:
    """The Python files that a spec in ``folder`` names, each executed once."""

    folder: Path
    code: Code | None
    executed: dict[str, Plugin] = dataclasses.field(default_factory=dict)
    sources: dict[str, bytes] = dataclasses.field(default_factory=dict)

    def find(self, kind: str, file: object, name: str) -> Maker:
        """What a file has under a name; :class:`BadFile`, or ``ValueError`` about the name."""
        plugin = self._plugin(kind, file)
        of_kind: dict[str, Mapping[str, Maker]] = {
            "method": plugin.methods,
            "objective": plugin.objectives,
        }
        known = of_kind.get(kind, plugin.makers)
        for there, found in known.items():
            if fold(there) == fold(name):
                return found
        raise ValueError(unknown(f"{kind} of {file}", name, known))

    def _plugin(self, kind: str, file: object) -> Plugin:
        """A file must lie in the folder of the spec: a run's folder keeps it in the same place."""
        if not isinstance(file, str) or not _is_inside(self.folder.resolve(), file):
            text = "a Python file in the folder of the spec or below it"
            raise BadParameters(kind, {"file": not_allowed("file", file, text)})
        if file not in self.executed:
            if self.code and (self.folder / file).is_file():
                self.code(file)
            self.executed[file] = execute(self.folder / file)
            self.sources[file] = self.executed[file].source
        return self.executed[file]


def _is_inside(folder: Path, file: str) -> bool:
    if not (file.isprintable() and file.endswith(".py")):
        return False
    found = (folder / file).resolve()
    return found.is_relative_to(folder) and found.relative_to(folder).as_posix() == file


def parameters(maker: Maker, offered: Collection[str] = ()) -> type:
    """A dataclass of what a spec may set of a function, or of the constructor of a class.

    Parameters called as something that is ``offered`` are left out. Raises ``ValueError``.
    """
    name = getattr(maker, "__name__", type(maker).__name__)
    try:
        found = inspect.signature(maker).parameters.values()
        function = maker.__init__ if isinstance(maker, type) else maker  # type: ignore[misc]
        declared = typing.get_type_hints(function, include_extras=True)
    except (TypeError, ValueError, NameError) as error:
        raise ValueError(f"{name} has parameters that cannot be read: {error}") from None
    made: list[tuple[str, Any, Any]] = []
    by_name = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
    for parameter in found:
        hint = declared.get(parameter.name)
        if parameter.name in offered:
            continue
        if parameter.kind not in by_name or parameter.name in NAMES or not _in_toml(hint):
            raise ValueError(f"the parameter {parameter.name} of {name}: {PARAMETERS}")
        made.append((parameter.name, hint, _field(parameter.default)))
    cls = dataclasses.make_dataclass(name, made, frozen=True, kw_only=True)
    cls.__doc__ = inspect.getdoc(maker) or ""
    return cls


def _field(default: object) -> object:
    """The field of a parameter with this default."""
    if default is inspect.Parameter.empty:
        return dataclasses.field()
    return dataclasses.field(default_factory=lambda: default)


def _in_toml(hint: object) -> bool:
    """Whether TOML has values of a type."""
    if choices := alternatives(hint):
        return all(choice is type(None) or _in_toml(choice) for choice in choices)
    origin = typing.get_origin(hint)
    if origin is Annotated or origin is list:
        return _in_toml(typing.get_args(hint)[0])
    return origin is Literal or hint in (int, float, str, bool)


@dataclasses.dataclass(frozen=True)
class UserCall:
    """A function of the user's, and the values that it is called with."""

    file: str
    """Relative to the spec."""
    name: str
    maker: Maker = dataclasses.field(compare=False)
    values: object
    """The parameters that the spec sets."""

    def table(self) -> Mapping[str, object]:
        """What the spec has of it."""
        return {"file": self.file, "name": self.name, **values(self.values)}

    def __call__(self, **offered: object) -> object:
        taken = inspect.signature(self.maker).parameters
        given = {name: value for name, value in offered.items() if name in taken}
        return self.maker(**given, **values(self.values))
