"""Holds the engine distributed against simulate: ``launch`` starts this file as several ranks."""

import contextlib
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import torch
import torch.distributed as dist
from tests.engines.test_local import Twice
from tests.engines.test_seams import Stacking, Summing
from tests.objectives.world import federation
from tests.trials import trial

from undrift.check.federations import example, least_squares
from undrift.core import Message, Method, Phase, State, Vec, registry
from undrift.core.stopping import EarlyStopping, Goal
from undrift.engines import Simulate, checkpoint
from undrift.engines.distributed import Distributed
from undrift.engines.judge import Diverged
from undrift.engines.messages.format import read
from undrift.engines.options import RENDEZVOUS
from undrift.engines.ranks import Parted
from undrift.engines.site import WRITTEN
from undrift.methods import DANEPlus, FedAvg, FedRecu, FedRed, MimeMVR, Scaffold
from undrift.objectives import MOON
from undrift.problems import regression
from undrift.problems.named import build
from undrift.problems.neural import metrics as passes
from undrift.runs.clients import measured_clients
from undrift.runs.trial import TrialRules, measure

CLIENTS = 7
STEPS = [3, 1, 2, 5, 3, 2, 4]
PROBLEM = least_squares(1, clients=CLIENTS, rows=8, dim=5)
TOLERANCE = 1e-12
EVERY = 5
"""Rounds from one look to the next; the last is looked at too."""


class Poisoned(Method, abstract=True):
    """What client 2 remembers becomes infinite in even rounds, while its uploads stay sound; in the
    second phase, so that the round begins again without it.
    """

    lr: float = 0.05

    class Client(State):
        c: Vec

    class Up(Message):
        y: Vec

    class First(Phase):
        class Up(Message):
            g: Vec

        def work(self, me, got, f):
            return me.replace(c=me.c + 1), self.Up(g=f.grad(got.x))

        def merge(self, s, up, cohort):
            return s.replace(x=s.x - 0.01 * up.g)

    def client(self, x0):
        return self.Client(c=x0)

    def work(self, me, got, f):
        bad = torch.as_tensor((f.members == 2) & (f.round % 2 == 0)).unsqueeze(-1)
        y = f.sgd(got.x, self.lr)
        return me.replace(c=torch.where(bad, torch.inf, me.c + y)), self.Up(y=y)

    def merge(self, s, up, cohort):
        return s.replace(x=up.y)


def methods():
    """Every method, with what it allows of cohorts and unequal steps."""
    found = {name: example(registry[name], PROBLEM.constants, steps=3) for name in sorted(registry)}
    for cls in (DANEPlus, FedRed):
        method = example(cls, PROBLEM.constants, steps=3, average="rand")
        found[f"{cls.__name__} rand"] = method
    for name, method in found.items():
        setting = {"batch": None if method.solves else 3, "seed": 3}
        setting["steps"] = 3 if method.equal_steps else STEPS
        cohorts = (None,) if method.participation == "full" else (4, 2)
        for cohort in cohorts:
            yield f"{name}, cohort {cohort}", method, PROBLEM, setting | {"cohort": cohort}


def others():
    """What else an engine can be asked to do."""
    scaffold, average = Scaffold(lr=0.05), FedAvg(lr=0.05)
    usual = {"steps": STEPS, "cohort": 5, "batch": 3}
    yield "one client", scaffold, PROBLEM, usual | {"cohort": 1}
    yield "everybody", scaffold, PROBLEM, usual | {"cohort": None}
    yield "by samples", average, uneven_seven(), usual | {"aggregation": "weighted-mean"}
    yield "decay", FedRecu(lr=0.02), PROBLEM, {"steps": 3, "schedule": 0.9}
    cosine = {"name": "cosine", "rounds": 8, "warmup": 2}
    yield "schedule", FedRecu(lr=0.02), PROBLEM, {"steps": 3, "schedule": cosine}
    yield (
        "AdamW",
        average,
        PROBLEM,
        usual | {"batch": 2, "training": {"optimiser": "adamw", "accumulate": 2}},
    )
    yield "file", scaffold, PROBLEM, usual | {"store": "file"}
    yield "random sizes", scaffold, PROBLEM, usual | {"cohort": {"size": 3, "dropout": 0.4}}
    yield "stack", Stacking(), PROBLEM, {"steps": 2, "cohort": 3}
    yield "sum", Summing(), PROBLEM, usual
    yield "two descents", Twice(lr=0.05), PROBLEM, usual
    yield "states that are not finite", Poisoned(), PROBLEM, {"steps": 2, "cohort": 5}
    moon = FedAvg(lr=0.1)
    yield "MOON", moon, federation(MOON()), {"steps": 2, "batch": 5, "cohort": 3}
    images = {"clients": CLIENTS, "train": 210, "test": 120, "train_metrics": True}
    setting = {"epochs": 1, "batch": 8, "cohort": 5}
    for name, model in (("MLP", "mlp"), ("CNN", "cnn-small")):
        problem = build("images", model=model, hidden=8, **images)
        yield name, scaffold, problem.to(torch.float64, PROBLEM.device), setting
    logistic = build("logistic", clients=CLIENTS)
    noisy = build("quadratic", clients=CLIENTS, noise=0.1)
    yield "noise", scaffold, noisy, {"steps": STEPS, "cohort": 5}
    yield "logistic", scaffold, logistic, {"steps": 2, "batch": 4, "cohort": 3}


def only_rows():
    """What needs single uploads."""
    usual = {"steps": STEPS, "cohort": 5, "batch": 3}
    scaffold, average = Scaffold(lr=0.05), FedAvg(lr=0.05)
    yield "median", average, PROBLEM, usual | {"aggregation": "median"}
    clipping = {"name": "centred-clipping", "radius": 0.5}
    yield "centred clipping", MimeMVR(lr=0.05), PROBLEM, {"steps": 2, "aggregation": clipping}
    for kind in ("nan", "inf", "flip", "stale", "drop-before", "drop-after", "late"):
        plan = [{"kind": kind, "clients": [1, 4, 5], "rate": 0.4}]
        yield kind, scaffold, PROBLEM, usual | {"faults": plan}
        if kind in ("nan", "drop-after"):
            yield f"{kind}, two phases", MimeMVR(lr=0.05), PROBLEM, usual | {"faults": plan}
    plan = [{"kind": "scale", "factor": 1e9, "clients": [2]}]
    yield "too long", average, PROBLEM, usual | {"faults": plan, "judge": {"norm": 100.0}}
    mix = [{"kind": "label-noise", "clients": [0, 3], "rate": 0.5}]
    images = build("images", model="mlp", hidden=8, clients=CLIENTS, test=50)
    yield "wrong labels", scaffold, images, {"steps": 2, "batch": 8, "faults": mix}


def uneven_seven():
    twin = PROBLEM.to(PROBLEM.dtype, PROBLEM.device)
    twin.samples = [8, 3, 5, 1, 7, 2, 6]
    return twin


def compare(method, problem, setting, collect, rounds):
    """What differs, in words: of rows in any bit, of sums beyond rounding.

    Rows of regressions may be a rounding apart: some processors compute a client's products in
    another order beside fewer clients.
    """
    whole = Simulate(method, problem, **setting)
    ranks = Distributed(method, problem, collect=collect, **setting)
    for number in range(rounds):
        whole.run_round()
        ranks.run_round()
        if number + 1 < rounds and (number + 1) % EVERY:
            continue
        mine, theirs = measure(whole), measure(ranks)
        if mine.keys() != theirs.keys():
            return f"round {number}: other columns: {mine.keys() ^ theirs.keys()}"
        exact = collect == "rows" and not isinstance(problem, regression.Regression)
        for name in mine:
            if isinstance(mine[name], int) or exact:
                if mine[name] != theirs[name]:
                    return f"round {number}: {name} is {theirs[name]}, not {mine[name]}"
            elif abs(mine[name] - theirs[name]) > 1e-6 * max(abs(mine[name]), 1):
                return f"round {number}: {name} is {theirs[name]}, not {mine[name]}"
        if found := clients_apart(whole, ranks):
            return f"round {number}: {found}"
        if whole.rejections != ranks.rejections:
            return f"round {number}: left out {ranks.rejections}, not {whole.rejections}"
    (mine, counters), (theirs, others) = whole.snapshot(), ranks.snapshot()
    if mine.keys() != theirs.keys() or counters != others:
        return f"another snapshot: {mine.keys() ^ theirs.keys()}, {others}, not {counters}"
    for name in mine:
        apart = (mine[name] - theirs[name]).abs().max() if mine[name].numel() else torch.zeros(())
        scale = max(1.0, float(mine[name].abs().max())) if mine[name].numel() else 1.0
        if not (float(apart) == 0 if exact else float(apart) <= TOLERANCE * scale):
            return f"{name} is {float(apart)} apart"
    return None


def clients_apart(whole, ranks):
    """What differs of the clients' own numbers, up to rounding."""
    mine, theirs = measured_clients(whole), measured_clients(ranks)
    if mine.keys() != theirs.keys():
        return f"other numbers of clients: {mine.keys() ^ theirs.keys()}"
    for name in mine.keys() - {"round", "of"}:
        if not np.allclose(mine[name], theirs[name], rtol=1e-6, atol=1e-9, equal_nan=True):
            return f"{name} of the clients is {theirs[name]}, not {mine[name]}"
    return None


def moved():
    """A snapshot goes from simulate to the ranks and back."""
    setting = {"steps": 2, "batch": 3, "cohort": 4}
    whole, back = Simulate(Stacking(), PROBLEM, **setting), Simulate(Stacking(), PROBLEM, **setting)
    ranks = Distributed(Stacking(), PROBLEM, **setting)
    whole.run_round()
    ranks.restore(*(whole.snapshot() if ranks.leads else ({}, {})))
    back.restore(*ranks.snapshot())
    for engine in (whole, ranks, back):
        engine.run_round()
    same = torch.equal(whole.x, ranks.x) and torch.equal(whole.x, back.x)
    return None if same else "not the same after a restore"


def continued_from_a_file():
    """A checkpoint of the ranks has only clients that took part; ranks and simulate continue it."""
    method, setting = Scaffold(lr=0.05), {"steps": 2, "batch": 3, "cohort": 1}
    whole, back = Simulate(method, PROBLEM, **setting), Simulate(method, PROBLEM, **setting)
    ranks, again = Distributed(method, PROBLEM, **setting), Distributed(method, PROBLEM, **setting)
    for engine in (whole, ranks):
        engine.run_round()
        engine.run_round()
    taken = {whole.clock.at(k, 0).cohort.members.item() for k in range(2)}
    with tempfile.TemporaryDirectory() as folder:
        shelf = checkpoint.Shelf(Path(folder), "state", "run")
        shelf.store(ranks)
        shelf.restore(again, lambda counters: True, print)
        if ranks.leads:
            _, kept = read(Path(folder) / "state-2.safetensors", checkpoint.MOST)
            if kept[WRITTEN].tolist() != sorted(taken) or len(kept["client.c"]) != len(taken):
                return f"{kept[WRITTEN]} were written, not {taken}"
            shelf.restore(back, lambda counters: True, print)
    engines = [whole, again, back] if ranks.leads else [whole, again]
    for engine in engines:
        engine.run_round()
    mine, theirs = whole.snapshot()[0], again.snapshot()[0]
    same = all(torch.equal(mine[name], theirs[name]) for name in mine)
    return None if same and torch.equal(engines[-1].x, whole.x) else "not the same after a restore"


def divergence():
    """All ranks give up in the same round, with the state at its start."""
    engines = [kind(FedAvg(lr=1e200), PROBLEM, steps=3) for kind in (Simulate, Distributed)]
    found = []
    for engine in engines:
        with contextlib.suppress(Diverged):
            for _ in range(10):
                engine.run_round()
        found.append((engine.round, engine.x.tolist()))
    return None if found[0] == found[1] and found[0][0] < 9 else f"{found}"


def parted():
    """Ranks that have come to different models stop at the next row, all of them."""
    engine = Distributed(FedAvg(lr=0.05), PROBLEM)
    measure(engine)
    if not engine.leads:
        engine.server = engine.server.replace(x=engine.server.x + 1e-15)
    try:
        measure(engine)
    except Parted:
        return None
    return "nobody noticed"


def watched():
    """The leader calls a callback; everybody has its numbers, and stops by them."""
    engine, seen = Distributed(FedAvg(lr=0.05), PROBLEM), []

    def score(moment):
        seen.append(moment.round)
        return {"score": -moment.round}

    rows, goal = [], Goal(metric="score", mode="max")
    early = EarlyStopping(metric="score", mode="max", patience=2)
    going = trial(engine, 9, watch=rows.append, rules=TrialRules(None, early, goal, [score]))
    found = going.train(), [row["score"] for row in rows], going.best.round, bool(seen)
    expected = "early", [0, -1, -2], 0, engine.leads
    return None if found == expected else f"{found} instead of {expected}"


def memory():
    """Bytes of client states here are at most 1.1 / R of those of one process."""
    problem = least_squares(1, clients=100, rows=2, dim=5)
    whole, ranks = (kind(Scaffold(lr=0.05), problem) for kind in (Simulate, Distributed))
    for engine in (whole, ranks):
        engine.run_round()
    one, mine = (engine.site.store.gather(None)["c"].nbytes for engine in (whole, ranks))
    return None if mine <= 1.1 * one / ranks.ranks.size else f"{mine} bytes of {one}"


def main(rounds: int, everything: bool, only: list[str]) -> int:
    torch.set_num_threads(1)
    passes.PASS, regression.BLOCK = 50, 100  # so that there are several pieces to measure
    began, wrong, number = time.monotonic(), {}, 0
    cases = [*methods(), *others()]
    if not everything:  # one cohort of each method with rows, a few with sums
        cases = [case for case in cases if not case[0].endswith(", cohort 2")]
    chosen = [("rows", case) for case in [*cases, *only_rows()]]
    chosen += [("sums", case) for case in (cases if everything else cases[::6])]
    for collect, (name, *case) in chosen:
        if only and name not in only:
            continue
        number += 1
        if found := compare(*case, collect, rounds):
            wrong[f"{name}, {collect}"] = found
    for check in (moved, continued_from_a_file, divergence, parted, watched, memory):
        number += 1
        if found := check():
            wrong[check.__name__] = found
    seconds = time.monotonic() - began
    print(json.dumps({"cases": number, "wrong": wrong, "seconds": seconds}), flush=True)
    dist.destroy_process_group()
    return 0


def launch(ranks: int, *words: str, module: str = "tests.engines.on_ranks", timeout: float = 1800):
    """Run a module as so many ranks; what each of them prints."""
    with tempfile.TemporaryDirectory() as place:
        common = os.environ | {"WORLD_SIZE": str(ranks), "LOCAL_WORLD_SIZE": str(ranks)}
        common |= {RENDEZVOUS: str(Path(place) / "meet"), "GLOO_SOCKET_IFNAME": "lo"}
        processes = [
            subprocess.Popen(
                [sys.executable, "-m", module, *words],
                env=common | {"RANK": str(k), "LOCAL_RANK": str(k)},
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                encoding="utf-8",
            )
            for k in range(ranks)
        ]
        try:
            return [
                (*process.communicate(timeout=timeout), process.returncode) for process in processes
            ]
        finally:
            for process in processes:
                process.kill()
                process.wait()


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]), "all" in sys.argv[2:3], sys.argv[3:]))
