"""Checkpoints that are damaged at random are never taken.

python -m tests.faults.folder [--checkpoints 10000] [--seed 0]
"""

from __future__ import annotations

import argparse
import os
import random
import re
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import torch

from undrift.engines.checkpoint import BadCheckpoint, restore
from undrift.records.folder import Folder
from undrift.runs import run_experiment, trial
from undrift.runs.events import Event, Measured
from undrift.runs.experiment import Experiment, make
from undrift.runs.run_experiment import begin, reopen, run_in_folder
from undrift.spec.reader import parse

SPEC = """\
name = "mine"
rounds = 6
every = {every}
seed = [0, 1]
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
    before = trial.time, run_experiment.environment, os.fsync
    known = run_experiment.environment("cpu")
    trial.time, run_experiment.environment, os.fsync = (
        Still,
        lambda device: known,
        lambda file: None,
    )
    try:
        yield
    finally:
        trial.time, run_experiment.environment, os.fsync = before


def killed_after(rows: int) -> Callable[[Event], None]:
    left = [rows]

    def hear(event: Event) -> None:
        left[0] -= isinstance(event, Measured)
        if left[0] < 0:
            raise Killed

    return hear


class Case(NamedTuple):
    """A run folder, and the experiment that it is of."""

    path: Path
    experiment: Experiment


def cases(place: Path) -> list[Case]:
    """Finished runs; runs that were stopped, killed, and had several methods under way."""
    found = []
    for every, seed in ((1, 0), (2, 0), (1, 7)):
        experiment = make(parse(SPEC.format(every=every, seed=seed)))
        name = f"{every}-{seed}"
        run_in_folder(experiment, Folder(place / f"{name}-whole"), pause=0)
        for looks in (5, 20, 33):
            path = place / f"{name}-stopped-{looks}"
            run_in_folder(experiment, Folder(path), stop=Stop(looks), pause=0)
        for rows, pause in ((6, 0), (17, 0), (20, 1e9)):
            folder = Folder(place / f"{name}-killed-{rows}")
            try:
                run_in_folder(experiment, folder, emit=killed_after(rows), pause=pause)
            except Killed:
                folder.close()
        mixed(experiment, place / f"{name}-mixed")
        found += [Case(p, experiment) for p in sorted(place.glob(f"{name}-*"))]
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
            reopen(folder, experiment, lambda event: None)
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


OF_BYTES = (flip, flip, digit, digit, some, cut, empty, swapped, spliced)


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
    parser.add_argument("--checkpoints", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    count, began = arguments.checkpoints, time.perf_counter()
    found, silent = fuzz_checkpoints(count, arguments.seed)
    print(f"  {count} damaged checkpoints in {time.perf_counter() - began:.0f} s")
    for reason, number in found.most_common():
        print(f"  {number:8d} {reason}")
    for one in silent:
        print(f"  {one}")
    print(f"folder: damage found, or without effect, {count - len(silent)} of {count}")
    return 1 if silent else 0


if __name__ == "__main__":
    raise SystemExit(main())
