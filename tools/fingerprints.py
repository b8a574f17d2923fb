"""Fingerprints of trajectories: which runs a change of the machinery moved, bit by bit.

    python -m tools.fingerprints write before.json     # in a checkout of the commit before
    python -m tools.fingerprints compare before.json   # in the checkout with the change

A fingerprint is of the model, its drift and the counted costs after a few rounds, or the kind of
refusal. Machines round differently, so both files come from one machine; neither is kept.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os
import sys
import tempfile
import warnings
from collections.abc import Callable, Iterator
from itertools import product
from pathlib import Path

import torch
from tests.engines.on_ranks import launch
from tests.engines.test_federated import federation
from tests.objectives.world import federation as digits

import undrift as ud
from undrift.check.federations import example, least_squares
from undrift.core import registry
from undrift.core.aggregation import Median
from undrift.core.faults import Fault
from undrift.engines import Simulate, Wire
from undrift.engines.distributed import Distributed
from undrift.objectives import MOON, FedDecorr, FedLC, FedNTD
from undrift.problems.named import build

ROUNDS = 3
CLIENTS = 5
RANKS = 2
OPTIONS: dict[str, dict[str, object]] = {
    "plain": {"steps": 3},
    "own steps": {"steps": [3, 1, 2, 5, 4]},
    "mini-batches": {"steps": 3, "batch": 3},
    "epochs": {"epochs": 2, "batch": 3},
    "cohort": {"steps": 3, "cohort": 3},
    "accumulate": {"steps": 2, "batch": 2, "training": {"accumulate": 2}},
    "schedule": {"steps": 3, "schedule": ud.schedules.Cosine(rounds=10)},
    "decay and clipping": {"steps": 3, "training": {"weight_decay": 0.01, "clip": 0.5}},
    "AdamW": {"steps": 3, "batch": 3, "training": {"optimiser": ud.AdamW()}},
    "median": {"steps": 3, "aggregation": Median()},
    "faults": {"steps": 3, "faults": (Fault(kind="nan", clients=[1], since=1, until=2),)},
}
OBJECTIVES = (None, MOON(), FedNTD(), FedLC(), FedDecorr())


def problems() -> dict[str, ud.Problem]:
    return {
        "least squares": least_squares(1, clients=CLIENTS, rows=8, dim=4),
        "softmax": build("softmax-synthetic", clients=CLIENTS, features=6, samples=12),
    }


def digest(*parts: object) -> str:
    found = hashlib.sha256()
    for part in parts:
        if isinstance(part, torch.Tensor):
            found.update(part.detach().cpu().contiguous().numpy().tobytes())
        else:
            found.update(repr(part).encode())
    return found.hexdigest()[:16]


def engines(folder: Path) -> dict[str, Callable[..., object]]:
    return {
        "simulate": lambda method, problem, **options: Simulate(method, problem, **options),
        "wire": lambda method, problem, **options: Wire(method, problem, **options),
        "federated": lambda method, problem, **options: federation(
            method, Path(tempfile.mkdtemp(dir=folder)), problem, **options
        )[0],
    }


def tasks() -> Iterator[tuple[str, ud.Method, ud.Problem, dict[str, object]]]:
    for place, problem in problems().items():
        for name in sorted(registry):
            method = example(registry[name], problem.constants, steps=3)
            for title, options in OPTIONS.items():
                yield f"{place} / {name} / {title}", method, problem, {**options, "seed": 3}


def trajectory(make: Callable[..., object], *task: object, **options: object) -> str:
    """Digest of a run of a few rounds, or the kind of error it ends with."""
    try:
        engine = make(*task, **options)
        for _ in range(ROUNDS):
            engine.run_round()
    except Exception as error:
        return type(error).__name__
    return digest(engine.x, dataclasses.astuple(engine.ledger), engine.drift)


def here() -> dict[str, str]:
    found = {}
    with tempfile.TemporaryDirectory() as folder:
        for title, make in engines(Path(folder)).items():
            for name, method, problem, options in tasks():
                found[f"{title} / {name}"] = trajectory(make, method, problem, **options)
    return found | networks()


def networks() -> dict[str, str]:
    found = {}
    methods = (ud.FedAvg(lr=0.05), ud.Scaffold(lr=0.05), ud.FedACG(lr=0.05), ud.FedSpeed(lr=0.05))
    for objective, method, kind in product(OBJECTIVES, methods, (Simulate, Wire)):
        options = {"steps": 2, "batch": 10, "cohort": 3, "seed": 3}
        label = f"{kind.__name__} / network / {type(objective).__name__} / {type(method).__name__}"
        found[label] = trajectory(kind, method, digits(objective), **options)
    return found


def on_ranks() -> dict[str, str]:
    """The tasks on the engine distributed, by this file as several ranks."""
    with tempfile.TemporaryDirectory() as folder:
        written = Path(folder, "found.json")
        for _, complaint, code in launch(RANKS, "rank", str(written), module="tools.fingerprints"):
            if code:
                sys.exit(complaint)
        return json.loads(written.read_text(encoding="utf-8"))


def rank(written: Path) -> None:
    found = {}
    for name, method, problem, options in tasks():
        found[f"distributed / {name}"] = trajectory(Distributed, method, problem, **options)
    if os.environ["RANK"] == "0":
        written.write_text(json.dumps(found))


def main(verb: str, file: str) -> int:
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    if verb == "rank":
        rank(Path(file))
        return 0
    found = here() | on_ranks()
    if verb == "write":
        Path(file).write_text(json.dumps(found, indent=0))
        refused = sum(not set(value) <= set("0123456789abcdef") for value in found.values())
        print(f"{len(found)} fingerprints, of which {refused} are refusals, in {file}")
        return 0
    before = json.loads(Path(file).read_text())
    moved = [
        name for name in sorted(before.keys() | found.keys()) if before.get(name) != found.get(name)
    ]
    for name in moved:
        print(f"{name}: {before.get(name)} -> {found.get(name)}")
    print(f"{len(before)} before, {len(found)} after, {len(moved)} moved")
    return bool(moved)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
