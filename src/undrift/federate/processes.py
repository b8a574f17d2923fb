"""Processes that end with the one that started them, each with a log of its own."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from undrift.federate import supervise

QUIET = {"FLWR_TELEMETRY_ENABLED": "0", "FLWR_DISABLE_UPDATE_CHECK": "1"}
WAIT = 10.0


class Process:
    """A command in the background; it ends at the latest when this process does.

    ``scratch`` is a folder that is gone when it has been ended.
    """

    def __init__(
        self,
        command: Sequence[str],
        log: Path,
        environment: Mapping[str, str] | None = None,
        scratch: Path | None = None,
    ):
        self.command, self.log, self.scratch = [*command], log, scratch
        self._unminded = False
        """Whether its minder is gone without having removed ``scratch``."""
        log.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with open(log, "ab", opener=lambda path, flags: os.open(path, flags, 0o600)) as out:
            self._minder = subprocess.Popen(
                [sys.executable, "-I", "-S", supervise.__file__, str(scratch or ""), *command],
                stdin=subprocess.PIPE,
                stdout=out,
                stderr=subprocess.STDOUT,
                env={**os.environ, **QUIET, **(environment or {})},
                start_new_session=True,
            )

    @property
    def code(self) -> int | None:
        """How it ended; ``None`` while it runs."""
        return self._minder.poll()

    def hang_up(self) -> None:
        """Ask it to end, without waiting."""
        if self._minder.stdin is not None and not self._minder.stdin.closed:
            self._unminded = self.code is not None
            self._minder.stdin.close()

    def end(self) -> None:
        """End it, and all that it started."""
        self.hang_up()
        try:
            self._minder.wait(WAIT)
        except subprocess.TimeoutExpired:
            self._unminded = True
            self._minder.kill()
            self._minder.wait()
        if self._unminded and self.scratch is not None:
            shutil.rmtree(self.scratch, ignore_errors=True)

    def __enter__(self) -> Process:
        return self

    def __exit__(self, *error: object) -> None:
        self.end()


def tool(name: str) -> str:
    """A command of Flower's, beside this Python or on the path."""
    beside = Path(sys.executable).with_name(name)
    found = str(beside) if beside.is_file() else shutil.which(name)
    if found is None:
        raise FileNotFoundError(2, "there is no such command; install undrift[flower]", name)
    return found


def searched(*first: Path) -> str:
    """A search path for commands that begins with these folders and this Python's own."""
    places = [*map(str, first), str(Path(sys.executable).parent), os.environ.get("PATH", "")]
    return os.pathsep.join(place for place in places if place)


def script(folder: Path, name: str, words: Sequence[str]) -> None:
    """A command in ``folder`` that runs ``words`` with its arguments."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / name
    path.write_text(f'#!/bin/sh\nexec {shlex.join(words)} "$@"\n', encoding="utf-8")
    path.chmod(0o700)


def module(name: str) -> list[str]:
    """What runs a module of this package."""
    return [sys.executable, "-m", f"undrift.federate.{name}"]
