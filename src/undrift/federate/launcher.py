"""Runs Flower's ``flwr-clientapp`` for every message, in a copy of a process that has loaded it.

Loading it takes longer than most local work. It is also where a node makes sure that it runs the
installed undrift (``guard``).
"""

from __future__ import annotations

import json
import os
import signal
import socket
import sys
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NoReturn

from undrift.federate import client_app
from undrift.federate.no_sent_code import guarded
from undrift.federate.pipe import listen

COMMAND = "flwr-clientapp"
LOADED = client_app.app
"""The only ClientApp of a node, loaded for all messages."""


def main() -> int:
    """Listen at the first argument; what servers send is below the second."""
    path, home = map(Path, sys.argv[1:3])
    command = guarded(COMMAND, home)
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


def _run(command: Callable[[], object], arguments: list[str], files: Sequence[int]) -> NoReturn:
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
