"""Runs Flower's commands so that they load nothing that a server sent.

``python -m undrift.federate.no_sent_code HOME COMMAND ...`` runs one. With ``--listen SOCKET`` in
the place of arguments it runs the command in a copy of itself (a fork) whenever ``clientapp_stub``
asks: loading Flower takes longer than most local work.

Flower unpacks the apps that it is sent below its home, and loads them from there. Here that is
refused: an app may name installed modules, and bring none.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from importlib.metadata import entry_points
from pathlib import Path
from types import ModuleType

from undrift.federate import apps
from undrift.federate.pipe import listen

LOADED = apps.client
"""The only ClientApp of a node, loaded for all messages."""


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


def main() -> None:
    home, command, *arguments = sys.argv[1:]
    (entry,) = entry_points(group="console_scripts", name=command)
    run = entry.load()
    sys.meta_path.insert(0, Installed(Path(home)))  # from now on
    if arguments[:1] == ["--listen"]:
        arguments = asked(Path(arguments[1]))
    sys.argv = [command, *arguments]
    run()


def asked(path: Path) -> list[str]:
    """Wait for ever for connections of the stub; returns their arguments, each in a copy of this
    process.
    """
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for the copies
    with listen(path) as listener:
        while True:
            connection, _ = listener.accept()
            with connection:
                arguments = connection.makefile(encoding="utf-8").read().split("\0")
                if os.fork() == 0:
                    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
                    # The copy keeps the connection: the stub, and so Flower, waits until it closes,
                    # which it does however the copy ends.
                    connection.detach()
                    return arguments


if __name__ == "__main__":
    main()
