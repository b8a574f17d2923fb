"""Methods from a user's file, without leaving them in the registry."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from undrift.check import template as own
from undrift.core.method import Method, registry
from undrift.core.params import hints


def load(file: Path) -> list[type[Method]]:
    """The methods ``file`` defines; ``BadFile`` says what is wrong with it."""
    whole, wrong, found = file.absolute(), "", []  # a whole path is what tracebacks have
    with _aside() as taken:
        try:
            found = own.load(whole)
            for cls in found:
                hints(cls)
        except own.BadFile as error:
            wrong = str(error).replace(str(whole), str(file))
        except (Exception, SystemExit) as error:  # an annotation may say anything
            wrong = f"{file}: {type(error).__name__}: {error}"
    if taken:
        wrong = f"{file}: {taken[0]} is a method of undrift already: choose another name"
    if wrong:
        raise own.BadFile(wrong)
    return found


@contextmanager
def _aside() -> Iterator[list[str]]:
    """Leaves the registry as it was, and the folder of the file too; tells which known names were
    taken.
    """
    before, compiles, taken = dict(registry), sys.dont_write_bytecode, list[str]()
    sys.dont_write_bytecode = True
    try:
        yield taken
    finally:
        sys.dont_write_bytecode = compiles
        taken += [name for name, known in before.items() if registry.get(name) is not known]
        registry.clear()
        registry.update(before)
