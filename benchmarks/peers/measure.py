"""One process on its cores: what it answers, and the memory of all its descendants."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import tempfile
import time
from collections import defaultdict
from pathlib import Path
from typing import Any

from benchmarks.peers.contestants import ROOT

PAUSE = 0.5
"""Seconds between two looks at the memory."""
QUIET = {
    "FLWR_TELEMETRY_ENABLED": "0",
    "RAY_USAGE_STATS_ENABLED": "0",
    "TQDM_DISABLE": "1",
    "PYTHONWARNINGS": "ignore",
}


class Failed(RuntimeError):
    """A contender gave no answer."""


def run(command: list[str], cores: int, limit: float) -> dict[str, Any]:
    """The answer of ``command`` on so many cores, with ``memory`` that of the whole process tree,
    in MB.
    """
    mine = sorted(os.sched_getaffinity(0))
    if len(mine) < cores:
        raise Failed(f"{cores} cores were asked for, but only {len(mine)} are there")
    environment = {**os.environ, **QUIET, "PYTHONPATH": str(ROOT)}
    with tempfile.TemporaryFile("w+") as said, tempfile.TemporaryFile("w+") as complained:
        process = subprocess.Popen(
            ["taskset", "--cpu-list", ",".join(map(str, mine[:cores])), *command],
            stdout=said, stderr=complained, env=environment, cwd=ROOT,
        )  # fmt: skip
        most, end = 0.0, time.monotonic() + limit
        try:
            while process.poll() is None and time.monotonic() < end:
                most = max(most, memory(process.pid))
                time.sleep(PAUSE)
        finally:
            late = process.poll() is None
            if late:
                stop(process)
        said.seek(0)
        complained.seek(0)
        lines = [line for line in said.read().splitlines() if line.startswith("{")]
        if late or process.returncode or not lines:
            last = [line for line in complained.read().splitlines() if line.strip()][-1:]
            reason = f"no answer within {limit:g} s" if late else f"exit code {process.returncode}"
            raise Failed(": ".join([reason, *last]))
    answer = json.loads(lines[-1])
    return {**answer, "memory": max(most, answer["memory"])}


def tree(root: int) -> list[int]:
    """A process and its descendants."""
    children = defaultdict(list)
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            parent = int((folder / "stat").read_text().rpartition(")")[2].split()[1])
        except (OSError, IndexError):  # it has ended
            continue
        children[parent].append(int(folder.name))
    found = [root]
    for process in found:
        found += children[process]
    return found


def memory(root: int) -> float:
    """Of a process and its descendants now, in MB; pages that several of them share are counted
    once.
    """
    total = 0
    for process in tree(root):
        try:
            share = re.search(
                r"^Pss:\s+(\d+)", Path(f"/proc/{process}/smaps_rollup").read_text(), re.MULTILINE
            )
        except OSError:
            continue
        total += int(share[1]) if share else 0
    return total / 1e3


def stop(process: subprocess.Popen[bytes]) -> None:
    """End a process and its descendants."""
    for member in reversed(tree(process.pid)):
        try:
            os.kill(member, signal.SIGKILL)
        except ProcessLookupError:
            continue
    process.wait()
