"""Flower's commands, for the installed undrift alone: ``python -m ... NAME HOME``.

Flower unpacks the apps that it is sent below its home, and loads them from there. Here that is
refused: an app may name installed modules, and bring none.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from importlib.metadata import entry_points
from pathlib import Path
from types import ModuleType
from typing import cast


class Installed(MetaPathFinder):
    """Refuses modules in ``folder``, where Flower unpacks what servers send."""

    def __init__(self, folder: Path):
        self.folder = folder.resolve()

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        found = PathFinder.find_spec(name, path, target)
        if found is None:
            return None
        for place in [found.origin or "", *(found.submodule_search_locations or ())]:
            if Path(place).resolve().is_relative_to(self.folder):
                raise ImportError(
                    f"{name} is code that was sent to this machine, which runs the installed "
                    "undrift alone"
                )
        return None


def guarded(command: str, home: Path) -> Callable[[], object]:
    """What a command of Flower's runs; from now on this process loads nothing from its home."""
    (entry,) = entry_points(group="console_scripts", name=command)
    loaded = cast(Callable[[], object], entry.load())
    sys.meta_path.insert(0, Installed(home))
    return loaded


def main() -> None:
    name, home, *arguments = sys.argv[1:]
    sys.argv = [name, *arguments]
    guarded(name, Path(home))()


if __name__ == "__main__":
    main()
