"""Methods from a user's file, without leaving them in the registry."""

from __future__ import annotations

import importlib.util
import sys
import traceback
from pathlib import Path
from types import ModuleType

from undrift import methods
from undrift.core.method import Method, registry
from undrift.core.params import hints


class BadFile(ValueError):
    """A file that holds no usable method: ``file``, ``line`` where it is known, and ``text``."""

    def __init__(self, file: Path, text: str, line: int | None = None):
        self.file, self.text, self.line = file, text, line
        super().__init__(f"{file}{'' if line is None else f':{line}'}: {text}")


def load(file: Path) -> list[type[Method]]:
    """The methods that ``file`` defines. It is executed, as any module is."""
    if not file.is_file():
        raise BadFile(file, "there is no such file")
    whole = file.absolute()  # as tracebacks have it
    spec = importlib.util.spec_from_file_location(f"undrift_own_{file.stem}", whole)
    if spec is None or spec.loader is None:
        raise BadFile(file, "not a Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # where dataclasses look up annotations
    before, bytecode = dict(registry), sys.dont_write_bytecode
    sys.dont_write_bytecode = True  # the user's folder stays as it is
    try:
        spec.loader.exec_module(module)
        found = _methods(module)
        for cls in found:
            hints(cls)  # an annotation may be anything
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # sys.exit() too: the file does not end this program
        line = line_in(error, whole)
        what = error.msg if isinstance(error, SyntaxError) and line == error.lineno else error
        raise BadFile(file, f"{type(error).__name__}: {what}", line) from error
    finally:
        sys.dont_write_bytecode = bytecode
        registry.clear()
        registry.update(before)
    if not found:
        raise BadFile(file, "defines no method; write a class that derives from undrift.Method")
    for cls in found:
        if cls.__name__ in methods.__all__:
            text = f"{cls.__name__} is a method of undrift already: choose another name"
            raise BadFile(file, text)
    return found


def line_in(error: BaseException, file: Path) -> int | None:
    """The last line of ``file`` that ``error`` passed through."""
    frames = traceback.walk_tb(error.__traceback__)
    lines = [line for frame, line in frames if Path(frame.f_code.co_filename) == file]
    if isinstance(error, SyntaxError) and error.lineno and error.filename == str(file):
        lines.append(error.lineno)
    return lines[-1] if lines else None


def _methods(module: ModuleType) -> list[type[Method]]:
    """The concrete methods whose classes stand in ``module``."""
    return [
        cls
        for cls in vars(module).values()
        if isinstance(cls, type)
        and issubclass(cls, Method)
        and not cls.abstract
        and cls.__module__ == module.__name__
    ]
