"""Runs that are killed and resumed end as if nothing had happened, bit for bit.

    python -m tests.faults.kills [--count 200] [--seed 0]

A trial runs a spec, kills it one to three times, half of them at random instants and half of them
at a chosen point, and lets it end. Then rows (but their seconds), outcomes with the digest of the
model, model files, the states of server and clients at the end and the names of all files must be
those of a run without a break, and every kill may have cost one round at most.

A run is a fork of this process, which has loaded torch already; what is patched, is so in the fork.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import random
import shutil
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from pathlib import Path
from typing import NamedTuple

import torch

from tests.faults.tally import Tally, arguments
from undrift.cli import main as undrift
from undrift.cli import run as verb
from undrift.engines.checkpoint import MOST
from undrift.engines.engine import Engine
from undrift.engines.messages import format
from undrift.engines.messages.format import dump, read
from undrift.records import journal
from undrift.records.folder import CHECKPOINTS, Folder
from undrift.records.rows import key_of
from undrift.runs.trial import Trial

HEAD = """\
name = "mine"
rounds = 10
steps = 3
schedule = 0.99
seed = [0, 1]
"""
SAMPLES = """\
batch = 4
[problem]
name = "least-squares"
clients = 6
rows = 8
"""
NETWORK = """\
batch = 16
[problem]
name = "images"
train = 100
test = 20
model = "mlp"
hidden = 8
clients = 4
"""
SETTINGS = {
    "SCAFFOLD, with bad clients": f"""cohort = 4
{SAMPLES}
[[method]]
name = "Scaffold"
lr = 0.02
[[faults]]
kind = "drop-after"
rate = 0.2
[[faults]]
kind = "nan"
clients = [3]
since = 4
""",
    "FedSpeed, with drop-outs": f"""cohort = {{size = 5, dropout = 0.2}}
{SAMPLES}
[[method]]
name = "FedSpeed"
lr = 0.02
lam = 10.0
rho = 0.01
""",
    "FedRecu": f"""{SAMPLES}
[[method]]
name = "FedRecu"
lr = 0.02
""",
    "Mime, and FedAvg that diverges": f"""cohort = 4
every = 3
{SAMPLES}
[[method]]
name = "Mime"
lr = 0.02
beta = 0.5
rounds = 8
[[method]]
name = "FedAvg"
lr = 9.0
""",
    "FedDC, store = file": f"""cohort = 3
engine = {{name = "simulate", store = "file"}}
{SAMPLES}
[[method]]
name = "FedDC"
lr = 0.02
""",
    "FedAvg, a network": f"""cohort = 3
{NETWORK}
[[method]]
name = "FedAvg"
lr = 0.1
""",
}
"""What is run, beside ``HEAD``."""
RUN = Path("runs/mine")
STATES, BEGUN, POINTS = "states", "begun", "points"
"""Folders and files that a fork leaves here: digests of states, rounds begun, points passed."""


class Point(NamedTuple):
    """The ``count``-th time that a run passes ``name``."""

    name: str
    count: int


class Points:
    """Counts the points that a run passes, and kills it at one of them."""

    def __init__(self, deadly: Point | None):
        self.deadly, self.passed = deadly, Counter[str]()

    def here(self, name: str) -> bool:
        """Pass a point; whether it is the one to die at."""
        self.passed[name] += 1
        return self.deadly == (name, self.passed[name])

    def watch(self) -> None:
        """Patch all that writes, removes or computes."""
        for name in ("fsync", "replace", "unlink", "rmdir", "mkdir"):
            setattr(os, name, self._around(name, getattr(os, name)))
        Engine.advance = self._around("phase", Engine.advance)
        journal.io = _Module(io, FileIO=self._torn_lines())
        format.writing = self._torn_tensors(format.writing)

    def _around(self, name: str, call: Callable) -> Callable:
        def called(*about, **more):
            if self.here(f"before {name}"):
                die()
            result = call(*about, **more)
            if self.here(f"after {name}"):
                die()
            return result

        return called

    def _torn_lines(self) -> type[io.FileIO]:
        points = self

        class Torn(io.FileIO):
            def write(self, line):
                if points.here("in a line"):
                    super().write(line[: len(line) // 2])
                    die()
                return super().write(line)

        return Torn

    def _torn_tensors(self, writing: Callable) -> Callable:
        points = self

        class Torn:
            def __init__(self, file):
                self.file, self.seek = file, file.seek

            def write(self, content):
                if points.here("in a checkpoint"):
                    self.file.write(bytes(content)[: len(content) // 2])
                    self.file.flush()
                    die()
                self.file.write(content)
                if points.here("between tensors"):
                    self.file.flush()
                    die()

        @contextmanager
        def torn(path: Path) -> Iterator[Torn]:
            with writing(path) as file:
                yield Torn(file)

        return torn


class _Module:
    """A module with some names replaced."""

    def __init__(self, module, **names):
        self.__dict__.update(vars(module) | names)


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


@contextmanager
def silence() -> Iterator[None]:
    with open(os.devnull, "w") as nowhere, redirect_stdout(nowhere), redirect_stderr(nowhere):
        yield


def go(*words: str, deadly: Point | None = None) -> int:
    """The process id of a command under way, in a fork that dies at a point."""
    if pid := os.fork():
        return pid
    code = 70
    try:
        points = Points(deadly)
        points.watch()
        watch_states()
        with silence():
            code = undrift([*words, "--checkpoint", "0"])
        lines = [f"{count} {name}\n" for name, count in points.passed.items()]
        Path(POINTS).write_text("".join(lines), encoding="utf-8")
    finally:
        os._exit(code)


def watch_states() -> None:
    """Leave digests of all states when a method ends, and a mark for every round begun."""
    run, run_round = Trial.run, Engine.run_round

    def watched(trial, *about):
        result = run(trial, *about)
        tensors, counters = result.engine.snapshot()
        digest = hashlib.sha256(str(counters).encode())
        for name in sorted(tensors):
            digest.update(name.encode())
            digest.update(tensors[name].contiguous().numpy().tobytes())
        Path(STATES).mkdir(exist_ok=True)
        (Path(STATES) / f"{trial.task.label}-{trial.seed}").write_text(
            digest.hexdigest(), encoding="utf-8"
        )
        return result

    def begun(engine):
        with open(BEGUN, "ab", 0) as file:
            file.write(b"x")
        run_round(engine)

    Trial.run, Engine.run_round = watched, begun


def rest(pid: int) -> int:
    _, status = os.waitpid(pid, 0)
    return os.waitstatus_to_exitcode(status)


class Ending(NamedTuple):
    """What a run left."""

    rows: list
    outcomes: list
    left_out: list
    states: dict
    files: dict
    begun: int


def ending() -> Ending:
    """... in the working folder."""
    folder = Folder(RUN)
    rows = [{k: v for k, v in row.items() if k != "seconds"} for row in folder.rows()]
    rows.sort(key=key_of)
    files = {
        str(f.relative_to(RUN)): content(f) if f.suffix == ".safetensors" else b""
        for f in RUN.rglob("*")
    }
    states = {f.name: f.read_text(encoding="utf-8") for f in Path(STATES).iterdir()}
    begun = Path(BEGUN).stat().st_size
    return Ending(
        rows, folder.outcomes(), sorted(folder.record().left_out, key=key_of), states, files, begun
    )


def content(file: Path) -> bytes:
    """What a model or a state is, but for the time that it took."""
    if file.parent.name != CHECKPOINTS:
        return file.read_bytes()
    header, tensors = read(file, MOST)
    notes = json.loads(header["notes"])
    del notes["seconds"]
    found = [header["identity"], header["counters"], notes]
    return json.dumps(found).encode() + dump(tensors)


def clear() -> None:
    shutil.rmtree("runs", ignore_errors=True)
    shutil.rmtree(STATES, ignore_errors=True)
    Path(BEGUN).unlink(missing_ok=True)


class Whole(NamedTuple):
    """A run without a break: how it ended, its seconds, and how often it passed each point."""

    ending: Ending
    seconds: float
    points: dict[str, int]


def whole() -> Whole:
    clear()
    began = time.monotonic()
    if code := rest(go("run", "spec.toml")):
        raise RuntimeError(f"a run without a break ended with {code}")
    seconds, text = time.monotonic() - began, Path(POINTS).read_text(encoding="utf-8")
    points = {name: int(count) for count, name in (x.split(" ", 1) for x in text.splitlines())}
    return Whole(ending(), seconds, points)


def killed(usual: Whole, chosen: bool, draw: random.Random) -> str | None:
    """Run or resume, and die; how, or ``None`` where the run was over before."""
    resumes = (RUN / "spec.toml").exists() and draw.random() < 0.5
    words = ("resume", "mine") if resumes else ("run", "spec.toml")
    how = "at an instant"
    if chosen:
        name = draw.choice(sorted(usual.points))
        point = Point(name, draw.randint(1, usual.points[name]))
        pid, how = go(*words, deadly=point), f"{point.name} {point.count}"
    else:
        pid = go(*words)
        time.sleep(draw.random() * usual.seconds)
        os.kill(pid, signal.SIGKILL)
    code = rest(pid)
    if code not in (0, -signal.SIGKILL):
        raise RuntimeError(f"{' '.join(words)} ended with {code}")
    return how if code else None


def trial(usual: Whole, chosen: bool, draw: random.Random) -> tuple[list[str], str | None]:
    """How it was killed, and what was not as in a run without a break."""
    clear()
    kills: list[str] = []
    try:
        for _ in range(draw.randint(1, 3)):
            while not (how := killed(usual, chosen, draw)):
                clear()
                kills = []
            kills.append(how)
        if code := rest(go("run", "spec.toml")):
            return kills, f"the last run ended with {code}"
    except RuntimeError as error:
        return kills, str(error)
    found = ending()
    wrong = [
        name
        for name in ("rows", "outcomes", "left_out", "states", "files")
        if getattr(found, name) != getattr(usual.ending, name)
    ]
    again = found.begun - usual.ending.begun
    if again > len(kills):
        wrong.append(f"number of rounds ({again} done again)")
    return kills, f"other {', '.join(wrong)}" if wrong else None


def kill(count: int, seed: int, settings: dict[str, str] = SETTINGS) -> tuple[Tally, Counter[str]]:
    """So many trials, and how often they were killed where."""
    torch.set_num_threads(1)
    verb.draw = lambda *about: None  # takes longer than the run
    draw, kills = random.Random(seed), Counter[str]()
    tally = Tally("kills", f"SIGKILL at instants and inside writes, {len(settings)} methods")
    home = Path.cwd()
    with tempfile.TemporaryDirectory() as place:
        try:
            for k, (label, spec) in enumerate(settings.items()):
                here = Path(place) / str(k)
                here.mkdir()
                os.chdir(here)
                Path("spec.toml").write_text(HEAD + spec, encoding="utf-8")
                with silence():
                    undrift(["run", "spec.toml", "--out", "loaded"])  # so that all is loaded
                usual = whole()
                for number in range(k, count, len(settings)):
                    how, problem = trial(usual, number // len(settings) % 2 == 1, draw)
                    kills.update(one.rstrip("0123456789 ") for one in how)
                    tally.add(f"{label}, trial {number}, killed {'; '.join(how)}", problem)
        finally:
            os.chdir(home)
    return tally, kills


def main() -> int:
    given = arguments(__doc__, count=200)
    tally, kills = kill(given.count, given.seed)
    where = ", ".join(f"{number} {name}" for name, number in kills.most_common())
    print(f"  {kills.total()} kills: {where}")
    return tally.report()


if __name__ == "__main__":
    sys.exit(main())
