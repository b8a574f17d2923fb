"""Runs Flower's ``flwr-clientapp`` for every message, in a copy of a process that has loaded it.

Loading it takes longer than most local work. It is also where a node makes sure that it runs the
installed undrift: a module from an app that a server sent is refused.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import sys
import traceback
from collections.abc import Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from importlib.metadata import entry_points
from pathlib import Path
from types import ModuleType
from typing import Any, NoReturn

from undrift.flower import client
from undrift.flower.pipe import listen

COMMAND = "flwr-clientapp"
APP = f"{client.__name__}:app"
"""The only ClientApp of a node."""


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
                    f"{name} is code that the server sent; this node runs the installed undrift "
                    f"alone ({APP})"
                )
        return None


def main() -> int:
    """Listen at the first argument; what servers send is below the second."""
    path, home = map(Path, sys.argv[1:3])
    (entry,) = entry_points(group="console_scripts", name=COMMAND)
    command = entry.load()
    sys.meta_path.insert(0, Installed(home))
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for them
    with listen(path) as listener:
        while True:
            connection, _ = listener.accept()
            try:
                text, files, _, _ = socket.recv_fds(connection, 2**16, 2)
                size = 4 + int.from_bytes(text[:4], "little")
                while len(text) < size:
                    if not (more := connection.recv(size - len(text))):
                        raise ConnectionError("cut short")
                    text += more
                arguments = json.loads(text[4:])
            except (OSError, ValueError):
                connection.close()
                continue
            if os.fork() == 0:
                listener.close()
                _run(command, arguments, files)
            for file in files:
                os.close(file)
            connection.close()


def _run(command: Any, arguments: list[str], files: Sequence[int]) -> NoReturn:
    """In the copy: what a new process would do; the shim waits until its end of the line closes."""
    code = 1
    try:
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        for file, number in zip(files, (1, 2), strict=False):
            os.dup2(file, number)
            os.close(file)
        sys.argv = [COMMAND, *arguments]
        command()
        code = 0
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else 0 if end.code is None else 1
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


if __name__ == "__main__":
    sys.exit(main())
