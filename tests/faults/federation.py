"""A federation whose parts are killed ends as one machine does.

    python -m tests.faults.federation [--count 30] [--server 10] [--seed 0]

Real SuperLink, ServerApp and SuperNodes on this machine. ``count`` kills strike nodes: the
SuperNode or the worker, at random instants, and right after states were written and before the
reply has arrived. ``server`` kills strike the ServerApp, the SuperLink, or undrift
federate itself, which is then started again. At the end models must be within 1e-10 of those of
undrift run.
"""

from __future__ import annotations

import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from safetensors.torch import load_file

from tests.faults.tally import Tally, arguments

SPEC = """\
name = "mine"
rounds = {rounds}
every = {every}
steps = 3
batch = 3

[problem]
name = "least-squares"
clients = 3
rows = 8
dim = 5

[[method]]
name = "FedRecu"
lr = 0.03

[[method]]
name = "Scaffold"
lr = 0.03
"""
NEAR = 1e-10
MINDER = "supervise.py"
NODE = ("supernode", "worker", "written, then the supernode", "written, then the worker")
SERVER = ("serverapp", "superlink", "federate")
COMMANDS = {
    "supernode": "flower-supernode",
    "worker": "undrift.federate.worker",
    "serverapp": "flwr-serverapp",
    "superlink": "flower-superlink",
}


class Federation:
    """``undrift federate --local 3`` in the background."""

    def __init__(self, folder: Path, rounds: int, every: int | None = None):
        self.folder = folder
        self.spec = folder / "spec.toml"
        text = SPEC.format(rounds=rounds, every=every or rounds)
        self.spec.write_text(text, encoding="utf-8")
        self.log = folder / "federate.log"
        self._seen: set[Path] = set()
        self.start()

    def start(self) -> None:
        command = [sys.executable, "-m", "undrift", "federate", str(self.spec), "--local", "3"]
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                [*command, "--out", str(self.folder / "far"), "--checkpoint", "0"],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )

    @property
    def states(self) -> list[Path]:
        return sorted((self.folder / "far" / "mine" / "nodes").glob("node-*/states"))

    def working(self, timeout: float = 300) -> bool:
        """Wait until some client has done some work since the last strike."""
        before = self._seen
        return self._until(lambda: bool(self._files() - before), timeout)

    def kill(self, what: str, draw: random.Random) -> bool:
        """Strike once; false if it was over before."""
        if what == "federate":
            self.process.kill()
            self.process.wait()
            self._seen = self._files()
            self.start()
            return True
        node, part = None, what
        if what.startswith("written"):
            before = self._files()
            if not self._until(lambda: bool(self._files() - before), 120):
                return False
            fresh = sorted(self._files() - before)[0]
            node = next(part for part in fresh.parts if part.startswith("node-"))
            part = "worker" if "worker" in what else "supernode"
        if not self._until(lambda: bool(self.targets(part, node)), 120):
            return False
        self._seen = self._files()
        with suppress(ProcessLookupError):
            os.kill(draw.choice(self.targets(part, node)), signal.SIGKILL)
            return True
        return False

    def targets(self, part: str, node: str | None) -> list[int]:
        """The processes of a part, of one node if that matters."""
        tree = below(self.process.pid)
        if node is not None:
            joined = [
                pid
                for pid, words in tree.items()
                if f"/{node} " in f"{words} " and " join " in words and MINDER not in words
            ]
            tree = below(joined[0]) if joined else {}
        command = COMMANDS[part]
        return [pid for pid, words in tree.items() if command in words and MINDER not in words]

    def _files(self) -> set[Path]:
        return {path for folder in self.states for path in folder.rglob("[0-9]*.safetensors")}

    def _until(self, holds: Callable[[], bool], timeout: float) -> bool:
        until = time.monotonic() + timeout
        while time.monotonic() < until and self.process.poll() is None:
            if holds():
                return True
            time.sleep(0.005)
        return False

    def end(self, timeout: float) -> int | None:
        """The exit code; ``None`` if it had to be ended."""
        try:
            return self.process.wait(timeout)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
            return None

    def apart(self) -> float:
        """How far the models are from those of one machine."""
        near = self.folder / "near"
        if not near.exists():
            command = [sys.executable, "-m", "undrift", "run", str(self.spec), "--out", str(near)]
            subprocess.run(command, check=True, capture_output=True, timeout=300)
        worst = 0.0
        files = sorted((near / "mine" / "models").glob("*-last.safetensors"))
        for file in files:
            x = load_file(file)["x"]
            far = load_file(self.folder / "far" / "mine" / "models" / file.name)["x"]
            worst = max(worst, float((x - far).norm() / x.norm()))
        return worst if files else float("inf")


def below(root: int) -> dict[int, str]:
    """The commands of all processes that come from one."""
    parents, words = dict[int, int](), dict[int, str]()
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            try:
                text = (entry / "cmdline").read_bytes().replace(b"\0", b" ")
                after = (entry / "stat").read_text(encoding="utf-8").rpartition(")")[2]
            except OSError:
                continue
            words[int(entry.name)] = text.decode(errors="replace")
            parents[int(entry.name)] = int(after.split()[1])
    found: dict[int, str] = {}
    level = [root]
    while level:
        level = [pid for pid, parent in parents.items() if parent in level]
        found |= {pid: words[pid] for pid in level}
    return found


def trial(plan: list[str], draw: random.Random, tally: Tally) -> None:
    """One federation, struck as planned."""
    folder = Path(tempfile.mkdtemp(prefix="undrift-faults-"))
    rounds = 6 + 2 * len(plan)
    run = Federation(folder, rounds)
    struck = Counter[str]()
    for what in plan:
        if not run.working():
            break
        time.sleep(draw.uniform(0.5, 9.0))
        struck[what] += run.kill(what, draw)
    code = run.end(200 + 90 * len(plan))
    far = run.apart() if code == 0 else float("inf")
    words = ", ".join(f"{what} x {times}" for what, times in struck.items() if times)
    problem = None if code == 0 and far <= NEAR else f"exit {code}, {far:.1e} apart; {folder}"
    for _ in range(struck.total()):
        tally.add(words, problem)
    print(f"{words}: exit {code}, {far:.1e} apart", flush=True)
    if problem is None:
        shutil.rmtree(folder)


def main() -> int:
    args = arguments(__doc__, count=6, server=3)
    draw = random.Random(args.seed)
    tally = Tally("Federation", "kills of its parts")
    kinds = [NODE[k % len(NODE)] for k in range(args.count)]
    kinds += [SERVER[k % len(SERVER)] for k in range(args.server)]
    draw.shuffle(kinds)
    while kinds:
        plan, kinds = kinds[:5], kinds[5:]
        trial(plan, draw, tally)
    return tally.report()


if __name__ == "__main__":
    sys.exit(main())
