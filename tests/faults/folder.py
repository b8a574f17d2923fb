"""Run folders that are damaged at random: it is found, or the run ends as if nothing had been done.

    python -m tests.faults.folder [--mutations 1000] [--checkpoints 10000] [--seed 0]

Rows, outcomes and checkpoints of finished and of interrupted runs are mutated. A finished run has
to be refused, or to read as before. An interrupted one must not read as anything it never was, and
is resumed: refused, or equal to the undisturbed run in every row, outcome and model.
"""

from __future__ import annotations

import argparse
import os
import random
import re
import shutil
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch

from undrift.engines.checkpoint import BadCheckpoint, restore
from undrift.records.folder import CHECKPOINTS, COMPLETE, ENDED, BadFolder, Folder, Outcome
from undrift.records.rows import METRICS, key_of
from undrift.runs import keep, trial
from undrift.runs.events import Dropped, Event, Measured, PassedOver
from undrift.runs.experiment import Experiment, make
from undrift.runs.keep import begin, carry_out, take_up
from undrift.spec.reader import parse

SPEC = """\
name = "mine"
rounds = 6
every = {every}
seeds = [0, 1]
cohort = 2
[problem]
name = "quadratic"
clients = 3
dim = 3
seed = {seed}
[[method]]
name = "FedAvg"
lr = 0.1
[[method]]
name = "Scaffold"
lr = 0.1
[[method]]
name = "FedProx"
lr = 0.1
mu = 0.2
"""
Rows = list[dict[str, Any]]
Content = tuple[Rows, list[Outcome], dict[str, bytes]]


class Killed(BaseException):
    """As if by SIGKILL: nothing is tidied up."""


class Stop:
    """Asks to stop after so many looks."""

    def __init__(self, looks: int):
        self.looks = looks

    @property
    def asked(self) -> bool:
        self.looks -= 1
        return self.looks < 0


class Still:
    """A clock that stands still, so that equal runs have equal seconds."""

    @staticmethod
    def perf_counter() -> float:
        return 0.0


@contextmanager
def still() -> Iterator[None]:
    """The clock stands still; nobody waits for the disk or looks up versions again and again."""
    before = trial.time, keep.environment, os.fsync
    known = keep.environment("cpu")
    trial.time, keep.environment, os.fsync = Still, lambda device: known, lambda file: None
    try:
        yield
    finally:
        trial.time, keep.environment, os.fsync = before


def killed_after(rows: int) -> Callable[[Event], None]:
    left = [rows]

    def hear(event: Event) -> None:
        left[0] -= isinstance(event, Measured)
        if left[0] < 0:
            raise Killed

    return hear


def content(folder: Folder) -> Content:
    """Everything that has to be equal."""
    models = {file.name: file.read_bytes() for file in folder.file("models").glob("*")}
    return *folder.record()[:2], models


class Case:
    """A run folder, and what it becomes if nobody touches it."""

    def __init__(self, path: Path, experiment: Experiment, expected: Content):
        self.path, self.experiment, self.expected = path, experiment, expected
        self.finished = Folder(path).complete


def cases(place: Path) -> list[Case]:
    """Finished runs; runs that were stopped, killed, and had several methods under way."""
    found = []
    for every, seed in ((1, 0), (2, 0), (1, 7)):
        experiment = make(parse(SPEC.format(every=every, seed=seed)))
        name = f"{every}-{seed}"
        carry_out(experiment, Folder(place / f"{name}-whole"), pause=0)
        expected = content(Folder(place / f"{name}-whole"))
        for looks in (5, 20, 33):
            path = place / f"{name}-stopped-{looks}"
            carry_out(experiment, Folder(path), stop=Stop(looks), pause=0)
        for rows, pause in ((6, 0), (17, 0), (20, 1e9)):
            folder = Folder(place / f"{name}-killed-{rows}")
            try:
                carry_out(experiment, folder, emit=killed_after(rows), pause=pause)
            except Killed:
                folder.close()
        mixed(experiment, place / f"{name}-mixed")
        found += [Case(p, experiment, expected) for p in sorted(place.glob(f"{name}-*"))]
    return found


def mixed(experiment: Experiment, path: Path) -> None:
    """Several methods and seeds in turns, some to their end, as processes side by side leave it."""
    folder = Folder(path)
    begin(folder, experiment)
    for looks in (3, 4, 9):
        for key in [("FedAvg", 0), ("Scaffold", 0), ("FedAvg", 1), ("Scaffold", 1)]:
            some = looks if key[1] == 0 else 4
            list(experiment.run(folder, stop=Stop(some), pause=0, only=[key]))
            folder.close()
            folder = Folder(path)
            take_up(folder, experiment, lambda event: None)
    folder.close()


def flip(data: bytes, draw: random.Random, others: list[bytes]) -> bytes:
    at = draw.randrange(len(data))
    return data[:at] + bytes([data[at] ^ 1 << draw.randrange(8)]) + data[at + 1 :]


def digit(data: bytes, draw: random.Random, others: list[bytes]) -> bytes:
    digits = [k for k, byte in enumerate(data) if 48 <= byte < 58]
    at = draw.choice(digits) if digits else 0
    return data[:at] + b"%d" % draw.randrange(10) + data[at + 1 :]


def some(data: bytes, draw: random.Random, others: list[bytes]) -> bytes:
    at = draw.randrange(len(data))
    return data[:at] + draw.randbytes(draw.randrange(1, 9)) + data[at + draw.randrange(9) :]


def cut(data: bytes, draw: random.Random, others: list[bytes]) -> bytes:
    return data[: draw.randrange(len(data))]


def empty(data: bytes, draw: random.Random, others: list[bytes]) -> bytes:
    return b""


def swapped(data: bytes, draw: random.Random, others: list[bytes]) -> bytes:
    return draw.choice(others)


def spliced(data: bytes, draw: random.Random, others: list[bytes]) -> bytes:
    other = draw.choice(others)
    return data[: draw.randrange(len(data))] + other[draw.randrange(len(other) or 1) :]


def by_lines(
    change: Callable[[list[bytes], int, int, list[bytes]], list[bytes]],
) -> Callable[[bytes, random.Random, list[bytes]], bytes]:
    def mutate(data: bytes, draw: random.Random, others: list[bytes]) -> bytes:
        lines = data.splitlines(keepends=True) or [b""]
        foreign = [line for other in others for line in other.splitlines(keepends=True)]
        one, two = draw.randrange(len(lines)), draw.randrange(len(lines))
        return b"".join(change(lines, one, two, [draw.choice(foreign or [b"{}\n"])]))

    mutate.__name__ = change.__name__
    return mutate


def removed(lines: list[bytes], one: int, two: int, foreign: list[bytes]) -> list[bytes]:
    return lines[:one] + lines[one + 1 :]


def removed_block(lines: list[bytes], one: int, two: int, foreign: list[bytes]) -> list[bytes]:
    return lines[: min(one, two)] + lines[max(one, two) :]


def lost_end(lines: list[bytes], one: int, two: int, foreign: list[bytes]) -> list[bytes]:
    return lines[:one]


def repeated(lines: list[bytes], one: int, two: int, foreign: list[bytes]) -> list[bytes]:
    return [*lines[:one], lines[two], *lines[one:]]


def repeated_block(lines: list[bytes], one: int, two: int, foreign: list[bytes]) -> list[bytes]:
    return lines[: max(one, two)] + lines[min(one, two) :]


def exchanged(lines: list[bytes], one: int, two: int, foreign: list[bytes]) -> list[bytes]:
    made = [*lines]
    made[one], made[two] = lines[two], lines[one]
    return made


def inserted(lines: list[bytes], one: int, two: int, foreign: list[bytes]) -> list[bytes]:
    return lines[:one] + foreign + lines[one:]


def replaced(lines: list[bytes], one: int, two: int, foreign: list[bytes]) -> list[bytes]:
    return lines[:one] + foreign + lines[one + 1 :]


def added(lines: list[bytes], one: int, two: int, foreign: list[bytes]) -> list[bytes]:
    return lines + foreign


LINES = (removed, removed_block, lost_end, repeated, repeated_block, exchanged)
FOREIGN = (inserted, replaced, added)
OF_BYTES = (flip, flip, digit, digit, some, cut, empty, swapped, spliced)
OF_LINES = (*OF_BYTES, *(by_lines(change) for change in (*LINES, *FOREIGN)))


def damage(case: Case, path: Path, all_cases: list[Case], draw: random.Random) -> str:
    """Mutate one or two files of the copy at ``path``; what was done."""
    done = []
    while not done:
        for _ in range(draw.choice((1, 1, 1, 2))):
            inside = [COMPLETE] if case.finished else [ENDED]
            inside += [str(f.relative_to(path)) for f in path.glob(f"{CHECKPOINTS}/*.safetensors")]
            name = draw.choice([METRICS, METRICS, inside[0], draw.choice(inside)])
            file = path / name
            before = file.read_bytes() if file.is_file() else b""
            alike = [
                f for other in all_cases for f in other.path.glob(str(Path(name).parent / "*.*"))
            ]
            others = [f.read_bytes() for f in alike if f.suffix == file.suffix]
            kinds = OF_BYTES if name.endswith("safetensors") else OF_LINES
            kind = draw.choice(kinds)
            if draw.random() < 0.03 and before:
                file.unlink()
                done.append(f"{name} removed")
            elif before and (after := kind(before, draw, others or [before])) != before:
                file.write_bytes(after)
                done.append(f"{name} {kind.__name__}")
    return ", ".join(done)


def is_part(case: Case, rows: Rows, outcomes: list[Outcome]) -> bool:
    """Whether these are the first rows of each method and seed, and outcomes, of the run."""
    (expected, ends, _), known = case.expected, {key_of(row) for row in rows}
    parts = {key: [row for row in rows if key_of(row) == key] for key in known}
    wholes = {key: [row for row in expected if key_of(row) == key] for key in known}
    return all(wholes[key][: len(parts[key])] == parts[key] for key in known) and all(
        outcome in ends and outcomes.count(outcome) == 1 for outcome in outcomes
    )


def verdict(case: Case, path: Path) -> str:
    """What becomes of a damaged folder."""
    folder, said = Folder(path), "nothing was said"
    try:
        rows, outcomes, *_ = folder.record()
    except BadFolder:
        said = "found"
        if folder.complete:
            return "found: refused"
    else:
        if folder.complete:
            return "harmless: it reads as before" if whole(case, path) else "SILENT"
        if not is_part(case, rows, outcomes):
            return "SILENT: it reads as what it never was"
    heard: list[Event] = []
    try:
        carry_out(case.experiment, folder, emit=heard.append)
    except BadFolder:
        return "found: not resumed"
    if any(isinstance(event, Dropped | PassedOver) for event in heard):
        said = "found"
    if not whole(case, path):
        return f"SILENT: resumed, {said}, but it ended differently"
    return f"{'found' if said == 'found' else 'harmless'}: resumed to an equal end, {said}"


def whole(case: Case, path: Path) -> bool:
    return content(Folder(path)) == case.expected


def fuzz(count: int, seed: int = 0) -> tuple[Counter[str], list[str]]:
    """What became of damaged folders; those that were not found."""
    draw, found, silent = random.Random(seed), Counter[str](), list[str]()
    with still(), tempfile.TemporaryDirectory() as scratch:
        known = cases(Path(scratch) / "runs")
        for k in range(count):
            case, path = known[k % len(known)], Path(scratch) / "damaged"
            shutil.copytree(case.path, path)
            what = damage(case, path, known, draw)
            became = verdict(case, path)
            found[became] += 1
            if became.startswith("SILENT"):
                silent.append(f"mutation {k} of seed {seed}: {case.path.name}: {what}: {became}")
            shutil.rmtree(path)
    return found, silent


def fuzz_checkpoints(count: int, seed: int = 0) -> tuple[Counter[str], list[str]]:
    """What became of damaged checkpoints; those that were taken."""
    draw, found, silent = random.Random(seed), Counter[str](), list[str]()
    with still(), tempfile.TemporaryDirectory() as scratch:
        files = list[tuple[Any, str, int, bytes]]()
        for case in cases(Path(scratch) / "runs"):
            folder = Folder(case.path)
            for k, seed_of in ((k, s) for k in range(3) for s in case.experiment.seeds):
                made = case.experiment.place(k, seed_of, folder)
                assert made
                task = case.experiment.tasks[k]
                files += [
                    (task.engine(seed_of), made.shelf.identity, round, file.read_bytes())
                    for round, file in made.shelf.files()
                ]
        contents, path = [data for *_, data in files], Path(scratch) / "0-0-0.safetensors"
        for k in range(count):
            engine, identity, round, data = files[k % len(files)]
            made = data
            while made == data:
                kind = draw.choice(OF_BYTES)
                made = kind(data, draw, contents)
            path.write_bytes(made)
            try:
                restore(engine, path, identity, round)
            except BadCheckpoint as error:
                found[re.split(r" [(\d]", error.reason)[0]] += 1
            else:
                found["SILENT"] += 1
                silent.append(f"checkpoint {k} of seed {seed}: {kind.__name__}")
    return found, silent


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else None)
    parser.add_argument("--mutations", type=int, default=1_000)
    parser.add_argument("--checkpoints", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    silent, tried = [], 0
    for what, run, count in (
        ("folders", fuzz, arguments.mutations),
        ("checkpoints", fuzz_checkpoints, arguments.checkpoints),
    ):
        began = time.perf_counter()
        found, missed = run(count, arguments.seed)
        print(f"  {count} damaged {what} in {time.perf_counter() - began:.0f} s")
        for reason, number in found.most_common():
            print(f"  {number:8d} {reason}")
        silent += missed
        tried += count
    for one in silent:
        print(f"  {one}")
    print(f"folder: damage found, or without effect, {tried - len(silent)} of {tried}")
    return 1 if silent else 0


if __name__ == "__main__":
    raise SystemExit(main())
