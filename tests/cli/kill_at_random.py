"""Runs a spec, kills it at random instants and resumes it, until it is finished.

python kill_at_random.py KILLS SEED

Each run is a fork of this process, which has loaded torch already: a kill costs a tenth of a
second, not three.
"""

import os
import random
import shutil
import signal
import sys
import time
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path

import torch

from undrift.cli import main
from undrift.cli import run as verb

verb.draw = lambda *about: None  # takes longer than the run
RUN = Path("runs/mine")


def go(*words):
    """The process id of a command under way, in a fork of this process."""
    if pid := os.fork():
        return pid
    code = 70
    try:
        with open(os.devnull, "w") as nowhere, redirect_stdout(nowhere), redirect_stderr(nowhere):
            code = main([*words, "--checkpoint", "0"])
    finally:
        os._exit(code)


def rest(pid):
    _, status = os.waitpid(pid, 0)
    return os.waitstatus_to_exitcode(status)


def loop(kills, rng):
    """Kill so often, at instants spread over a third of the time that a whole run takes."""
    main(["run", "spec.toml", "--out", "whole"])  # here, so that all it needs is loaded
    began = time.monotonic()
    assert rest(go("run", "spec.toml", "--out", "again")) == 0
    most, finished = (time.monotonic() - began) / 3, 0
    while kills:
        pid = (
            go("resume", "mine")
            if (RUN / "spec.toml").exists() and rng.random() < 0.5
            else go("run", "spec.toml")
        )
        time.sleep(rng.random() * most)
        os.kill(pid, signal.SIGKILL)
        code = rest(pid)
        assert code in (0, -signal.SIGKILL), code
        kills -= code != 0
        if (RUN / "summary.json").exists():
            compare()
            shutil.rmtree(RUN)
            finished += 1
    assert rest(go("run", "spec.toml")) == 0
    compare()
    print(finished + 1)


def compare():
    from undrift.records.folder import Folder

    assert rest(go("run", "spec.toml")) == 0
    one, other = Folder(Path("whole/mine")), Folder(RUN)
    bare = [
        [{k: v for k, v in row.items() if k != "seconds"} for row in f.rows()] for f in (one, other)
    ]
    assert bare[0] == bare[1], next(pair for pair in zip(*bare, strict=False) if pair[0] != pair[1])
    assert one.record().left_out == other.record().left_out
    assert one.outcomes() == other.outcomes() and all(outcome.model for outcome in one.outcomes())
    times: dict[tuple, list] = {}
    for row in other.rows():
        times.setdefault((row["label"], row["seed"]), []).append(row["seconds"])
    assert all(taken == sorted(taken) for taken in times.values())
    assert {f.name for f in one.path.iterdir()} == {f.name for f in other.path.iterdir()}


if __name__ == "__main__":
    torch.set_num_threads(1)
    loop(int(sys.argv[1]), random.Random(int(sys.argv[2])))
