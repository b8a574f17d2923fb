"""Runs Flower's commands so that they load nothing that a server sent.

``python -m undrift.federate.no_sent_code HOME COMMAND ...`` runs one. With ``--listen SOCKET`` in
the place of arguments it runs the command in a copy of itself (a fork) whenever ``clientapp_stub``
asks: loading Flower takes longer than most local work.

Flower unpacks the apps that it is sent below its home, and loads them from there. Here that is
refused: an app may name installed modules, and bring none.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import sys
import traceback
from collections.abc import Callable, Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from importlib.metadata import entry_points
from pathlib import Path
from types import ModuleType
from typing import NoReturn

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
        serve(run, command, Path(arguments[1]))
    sys.argv = [command, *arguments]
    run()


def serve(run: Callable[[], object], command: str, path: Path) -> NoReturn:
    """Run the command for every connection, which has its arguments and where it writes."""
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for the copies
    with listen(path) as listener:
        while True:
            connection, _ = listener.accept()
            try:
                text, files, _, _ = socket.recv_fds(connection, 2**16, 2)
                while more := connection.recv(2**16):
                    text += more
                arguments = json.loads(text)
            except (OSError, ValueError):
                connection.close()
                continue
            if os.fork() == 0:
                # The copy keeps the connection: the stub, and so Flower, waits until it closes,
                # which it does however the copy ends.
                listener.close()
                sys.argv = [command, *arguments]
                _run(run, files)
            for file in files:
                os.close(file)
            connection.close()


def _run(run: Callable[[], object], files: Sequence[int]) -> NoReturn:
    """In the copy: what a new process would do. The stub waits until its line closes with it."""
    code = 1
    try:
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        for file, number in zip(files, (1, 2), strict=False):
            os.dup2(file, number)
            os.close(file)
        run()
        code = 0
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else int(end.code is not None)
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


if __name__ == "__main__":
    main()
