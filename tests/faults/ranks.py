"""Runs that several processes share end soon after one of them is killed, and can be resumed.

    python -m tests.faults.ranks [--count 12] [--seed 0]

A trial runs a spec on two ranks and kills one of them at a random instant, resumes it on four and
kills one of these, and lets simulate end it. The others must be gone within ten seconds of every
kill, and rows, outcomes, models and the states of server and clients must be those of a run of one
process without a break, bit for bit: those of them that are the same on two and four ranks where
nobody is killed, as some processors give a client other bits beside fewer others.

The launcher and the ranks are forks of this process, which has loaded torch already.
"""

from __future__ import annotations

import os
import random
import signal
import sys
import tempfile
import time
from pathlib import Path

import torch

from tests.faults.kills import (
    HEAD,
    RUN,
    SETTINGS,
    Ending,
    clear,
    ending,
    rest,
    silence,
    watch_states,
)
from tests.faults.tally import Tally, arguments
from undrift.cli import launch
from undrift.cli import main as undrift
from undrift.cli import run as verb

RANKS = (2, 4)
LONGEST = 10.0
"""Seconds in which all processes must be gone after one of them was killed."""
PIDS = "pids"


class Forked:
    """A process as the launcher starts it, but without loading anything."""

    def __init__(self, words, stdin, env, process_group):
        mine, theirs = os.pipe()
        self.returncode = None
        self.pid = os.fork()
        if not self.pid:
            os.dup2(mine, 0)
            os.close(theirs)
            os.setpgid(0, process_group)
            os.environ.update(env)
            answer(words[3:])
        os.close(mine)
        self._stdin = theirs
        with open(PIDS, "a", encoding="utf-8") as file:
            file.write(f"{self.pid}\n")

    def poll(self):
        if self.returncode is None:
            found, status = os.waitpid(self.pid, os.WNOHANG)
            if found:
                self.returncode = os.waitstatus_to_exitcode(status)
        return self.returncode

    def wait(self):
        while self.poll() is None:
            time.sleep(0.01)
        return self.returncode

    def kill(self):
        if self.poll() is None:
            os.kill(self.pid, signal.SIGKILL)


def answer(words) -> None:
    """Do what a command says, and end."""
    code = 70
    try:
        with silence():
            code = undrift(words)
    finally:
        os._exit(code)


def go(*words: str) -> int:
    """The process id of a command under way."""
    Path(PIDS).unlink(missing_ok=True)
    if pid := os.fork():
        return pid
    launch.subprocess.Popen = Forked
    watch_states()
    answer([*words, "--checkpoint", "0"])
    return 0


def started(count: int, pid: int) -> list[int]:
    """The process ids of so many ranks, once they are there; none if the command had no need."""
    for _ in range(1000):
        found = Path(PIDS).read_text(encoding="utf-8").split() if Path(PIDS).exists() else []
        if len(found) == count:
            return [*map(int, found)]
        if os.waitpid(pid, os.WNOHANG)[0]:  # the run was whole: its last kill came after its end
            return []
        time.sleep(0.01)
    raise RuntimeError("the ranks did not start")


def killed(words: tuple[str, ...], count: int, seconds: float, draw: random.Random) -> str | None:
    """Run and kill a rank; what went wrong, or "over" if the run was over before."""
    pid = go(*words)
    ranks = started(count, pid)
    if not ranks:
        return "over"
    time.sleep(draw.random() * seconds)
    chosen = draw.choice(ranks)
    try:
        os.kill(chosen, signal.SIGKILL)
    except ProcessLookupError:
        rest(pid)
        return "over"
    began = time.monotonic()
    code = rest(pid)
    took = time.monotonic() - began
    if code == 0:
        return "over"
    left = [other for other in ranks if alive(other)]
    if left or took > LONGEST:
        return f"{len(left)} processes are left {took:.1f} s after the kill"
    LATEST.append(took)
    return None if code == 1 else f"exit code {code}"


LATEST: list[float] = []
"""Seconds from each kill to the end of all processes."""


def alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def trial(
    usual: Ending, names: list[str], seconds: dict[int, float], draw: random.Random
) -> list[str | None]:
    """What went wrong after each of the kills."""
    clear()
    problems: list[str | None] = []
    for count in RANKS:
        words = ("run", "spec.toml", "--engine", "distributed")
        if (RUN / "spec.toml").exists():
            words = ("resume", "mine", "--engine", "distributed")
        found = killed((*words, "--workers", str(count)), count, seconds[count], draw)
        if found == "over":
            break
        problems.append(found)
    if code := rest(go("run", "spec.toml", "--engine", "simulate")):
        problems.append(f"the last run ended with {code}")
    found = ending()
    wrong = differing(found, usual, names)
    if problems and wrong:
        problems[-1] = f"other {', '.join(wrong)}"
    return problems


def kill(count: int, seed: int) -> Tally:
    """At least so many kills."""
    torch.set_num_threads(1)
    verb.draw = lambda *about: None  # takes longer than the run
    draw, home, number = random.Random(seed), Path.cwd(), 0
    tally = Tally("ranks", "SIGKILL of one rank of 2, then of 4, then one process")
    prepared: dict[str, tuple[Ending, list[str], dict[int, float]]] = {}
    with tempfile.TemporaryDirectory() as place:
        try:
            while tally.trials < count:
                label = [*SETTINGS][number % len(SETTINGS)]
                here = Path(place) / str(number % len(SETTINGS))
                here.mkdir(exist_ok=True)
                os.chdir(here)
                if label not in prepared:
                    Path("spec.toml").write_text(HEAD + SETTINGS[label], encoding="utf-8")
                    prepared[label] = whole(label)
                for k, problem in enumerate(trial(*prepared[label], draw)):
                    tally.add(f"{label}, trial {number}, kill {k}", problem)
                number += 1
        finally:
            os.chdir(home)
    return tally


def differing(found: Ending, usual: Ending, names: list[str]) -> list[str]:
    return [name for name in names if getattr(found, name) != getattr(usual, name)]


def whole(label: str) -> tuple[Ending, list[str], dict[int, float]]:
    """What a run of one process leaves, what of it runs of several leave too, and their times."""
    seconds, names = {}, ["rows", "outcomes", "left_out", "states", "files"]
    clear()
    if code := rest(go("run", "spec.toml", "--engine", "simulate")):
        raise RuntimeError(f"a run without a break ended with {code}")
    usual = ending()
    for count in RANKS:
        clear()
        began = time.monotonic()
        words = ("run", "spec.toml", "--engine", "distributed", "--workers", str(count))
        if code := rest(go(*words)):
            raise RuntimeError(f"a run on {count} ranks ended with {code}")
        seconds[count] = time.monotonic() - began
        for other in differing(ending(), usual, names):
            print(f"  {label}: {count} ranks have other {other} without a kill: not compared")
            names.remove(other)
    return usual, names, seconds


def main() -> int:
    given = arguments(__doc__, count=12)
    tally = kill(given.count, given.seed)
    print(f"  the others ended after {max(LATEST, default=0):.1f} s at most")
    return tally.report()


if __name__ == "__main__":
    sys.exit(main())
