"""What a user's file defines, without leaving it in the registries."""

from __future__ import annotations

import dataclasses
import importlib.util
import sys
import traceback
from pathlib import Path
from types import FunctionType, ModuleType
from typing import Any

from undrift import methods
from undrift.core.method import Method, registry
from undrift.core.params import hints
from undrift.objectives import Objective
from undrift.objectives.base import registry as losses
from undrift.problems.named import registry as problems
from undrift.spec.beside import beside, importable, refuse_late
from undrift.spec.errors import BadFile
from undrift.spec.functions import Maker

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
    refuse_late(file)
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # where dataclasses look up annotations
    registries: list[dict[str, Any]] = [registry, losses, problems]
    before, bytecode = [dict(known) for known in registries], sys.dont_write_bytecode
    sys.dont_write_bytecode = True  # the user's folder stays as it is
    try:
        with importable(beside(whole)):
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
