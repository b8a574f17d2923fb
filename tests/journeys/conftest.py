"""What a user types, from an empty folder to the result: real processes, each under a time limit.

``make journeys`` runs all of them; ``make test`` those that are not marked slow.
"""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
LIMIT = 240.0
"""Seconds of a command; on two quiet cores it takes a tenth of that."""


class Typed:
    """A shell in a folder, where undrift, python and torchrun are those of this environment."""

    def __init__(self, folder: Path, **environment: str):
        self.folder = folder
        self.environment = os.environ | {"COLUMNS": "100", **environment}
        self.programs: Mapping[str, list[str]] = {
            "undrift": [sys.executable, "-m", "undrift"],
            "python": [sys.executable],
            "torchrun": [sys.executable, "-m", "torch.distributed.run"],
        }
        self.running: list[subprocess.Popen[str]] = []

    def __call__(self, command: str, code: int = 0, limit: float = LIMIT) -> str:
        """What a command prints; it must end in time, and with this exit code."""
        process = self.start(command)
        try:
            out, errors = process.communicate(timeout=limit)
        except subprocess.TimeoutExpired:
            self.end()
            out, errors = process.communicate()
            pytest.fail(f"{command} did not end in {limit:g} s:\n{out[-2000:]}\n{errors[-2000:]}")
        if process.returncode != code:
            pytest.fail(f"{command} ended with {process.returncode}:\n{out}\n{errors[-4000:]}")
        return out + errors

    def start(self, command: str) -> subprocess.Popen[str]:
        """Begin a command, in a group of its own."""
        first, *words = shlex.split(command)
        process = subprocess.Popen(
            [*self.programs.get(first, [first]), *words],
            cwd=self.folder,
            env=self.environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            encoding="utf-8",
            start_new_session=True,
        )
        self.running.append(process)
        return process

    def kill_once(self, command: str, when: Callable[[], bool], limit: float = LIMIT) -> None:
        """Kill a command and all that it has started, once something is there."""
        process, until = self.start(command), time.monotonic() + limit
        while not when():
            if process.poll() is not None or time.monotonic() > until:
                self.end()
                pytest.fail(
                    f"{command} was over before it could be killed: {process.communicate()}"
                )
            time.sleep(0.02)
        self.end()
        process.communicate()

    def end(self) -> None:
        """Nothing outlives a journey."""
        for process in self.running:
            try:
                os.killpg(process.pid, signal.SIGKILL)
            except ProcessLookupError:
                continue
            process.wait()


@pytest.fixture
def typed(tmp_path: Path) -> Iterator[Typed]:
    shell = Typed(tmp_path)
    yield shell
    shell.end()
