"""Processes that end with the one that started them: ``python supervise.py FOLDER COMMAND ...``.

Who ends whom: a :class:`Process` starts a supervisor (``main``), and that the command, each the
leader of a session of its own, so that Ctrl-C on a terminal reaches neither. The supervisor holds
the reading end of a pipe whose other end only the starting process has. It closes when that process
hangs up, and also when it is killed, which nobody could catch. Then the supervisor

1. asks the command and all that it started to end (SIGTERM to its process group),
2. kills what is left of them after ``GRACE`` seconds,
3. removes the folder, when nobody can write to it any more.

A command that ends by itself is not started again here: its exit code is the supervisor's, and the
folder stays for the next one. This file uses nothing but Python's own library: it is run with
``-I -S``, and starts at once.
"""

from __future__ import annotations

import contextlib
import os
import shlex
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

GRACE = 3.0
"""Seconds between asking a command to end and killing it."""
WAIT = 10.0
"""Seconds that a supervisor may take to end; more than ``GRACE``."""


class Process:
    """A command in the background, with a log of its own.

    ``scratch`` is a folder that is gone when it has been ended. ``tells`` leaves it the standard
    error of this process, for what its owner has to read.
    """

    def __init__(
        self,
        command: Sequence[str],
        log: Path,
        environment: Mapping[str, str] | None = None,
        scratch: Path | None = None,
        tells: bool = False,
    ):
        self.log = log
        log.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with open(log, "ab", opener=lambda path, flags: os.open(path, flags, 0o600)) as out:
            # Nothing is ever written to its standard input: that it closes is the sign to end, and
            # the kernel closes it when this process is killed.
            self._supervisor = subprocess.Popen(
                [sys.executable, "-I", "-S", __file__, str(scratch or ""), *command],
                stdin=subprocess.PIPE,
                stdout=out,
                stderr=None if tells else subprocess.STDOUT,
                env={**os.environ, **(environment or {})},
                start_new_session=True,
            )

    @property
    def code(self) -> int | None:
        """How it ended; ``None`` while it runs."""
        return self._supervisor.poll()

    def last_words(self) -> str:
        return " ".join(self.log.read_text(encoding="utf-8", errors="replace").split()[-40:])

    def hang_up(self) -> None:
        """Ask it to end, without waiting: several can end side by side."""
        if self._supervisor.stdin is not None and not self._supervisor.stdin.closed:
            self._supervisor.stdin.close()

    def end(self) -> None:
        """End it, and all that it started."""
        self.hang_up()
        try:
            self._supervisor.wait(WAIT)
        except subprocess.TimeoutExpired:
            self._supervisor.kill()
            self._supervisor.wait()


def end_all(processes: Sequence[Process]) -> None:
    """End them side by side, since each may take seconds."""
    for process in processes:
        process.hang_up()
    for process in processes:
        process.end()


def within(seconds: float, holds: Callable[[], bool]) -> bool:
    """Whether something comes to hold within so many seconds."""
    until = time.monotonic() + seconds
    while not holds():
        if time.monotonic() > until:
            return False
        time.sleep(0.1)
    return True


def module(name: str) -> list[str]:
    """What runs a module of this package."""
    return [sys.executable, "-m", f"undrift.federate.{name}"]


def script(folder: Path, name: str, words: Sequence[str]) -> None:
    """A command in ``folder`` that runs ``words`` with its arguments."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / name
    path.write_text(f'#!/bin/sh\nexec {shlex.join(words)} "$@"\n', encoding="utf-8")
    path.chmod(0o700)


def main() -> int:
    folder, *words = sys.argv[1:]
    # What the command writes is for this user alone, also where Flower makes files by itself.
    os.umask(0o077)
    command = subprocess.Popen(words, stdin=subprocess.DEVNULL, start_new_session=True)
    over = threading.Event()

    def end(number: int) -> None:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(command.pid, number)

    def watch() -> None:
        while os.read(0, 1):
            pass
        over.set()
        end(signal.SIGTERM)
        with contextlib.suppress(subprocess.TimeoutExpired):
            command.wait(GRACE)
        end(signal.SIGKILL)

    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda *_: None)  # the pipe alone says when it is over
    threading.Thread(target=watch, daemon=True).start()
    # What a command leaves behind ends with it, also within GRACE: nobody would end it later.
    code = command.wait()
    end(signal.SIGKILL)
    if over.is_set() and folder:  # otherwise the command may be started again
        shutil.rmtree(folder, ignore_errors=True)
    return code if code >= 0 else 128 - code


if __name__ == "__main__":
    sys.exit(main())
