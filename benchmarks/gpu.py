"""FedSpeed's and FedACG's settings on one GPU: CIFAR-10, Dirichlet 0.6, ResNet-18-GN, against a
plain PyTorch loop.

    UNDRIFT_DATA=FOLDER python benchmarks/gpu.py [CASE ...] [--rounds 100] [--json FILE] [--picture
    FILE]

FedSpeed, 7x7 stem: (a) 100 clients, 10 per round, 5 local epochs of batch 50; (b) 500 clients, 10
per round, 2 local epochs of batch 20. FedACG, 3x3 stem: (c) 100 clients, 5 per round, 5 local
epochs of batch 50; (d) 500 clients, 10 per round, 5 local epochs of batch 10.
Everything is included: augmentation, local steps, server step, evaluation every 10 rounds. The
warm-up (capture and compilation, in the first round) is reported beside it. The plain loop runs two
rounds of FedAvg in setting (a), one client after another: module, autograd, clipping, SGD.
"""

from __future__ import annotations

import argparse
import copy
import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import nn

from undrift.core.streams import Streams
from undrift.data import augment, paper_partitions
from undrift.data.images import ImageSet, load_images
from undrift.engines.batches import Batches
from undrift.methods import FedACG, FedAvg, FedSpeed, Method, Scaffold
from undrift.models import build
from undrift.problems.neural.problem import Neural
from undrift.runs.api import prepare

SETTINGS = {
    "a": {"clients": 100, "cohort": 10, "batch": 50, "epochs": 5},
    "b": {"clients": 500, "cohort": 10, "batch": 20, "epochs": 2},
    "c": {"clients": 100, "cohort": 5, "batch": 50, "epochs": 5},
    "d": {"clients": 500, "cohort": 10, "batch": 10, "epochs": 5},
}


class Case(NamedTuple):
    setting: str
    method: Method
    decay: float
    precision: str
    store: str = "auto"
    must: float | None = None
    """Seconds per round that are asked for."""


SPEED = FedSpeed(lr=0.1, lam=10.0, rho=0.1, alpha=1.0, server_dual="all")
CASES = {
    "fedavg-bf16": Case("a", FedAvg(lr=0.1), 0.998, "bf16", must=0.15),
    "fedspeed-bf16": Case("a", SPEED, 0.9995, "bf16", must=0.3),
    "fedavg-f32": Case("a", FedAvg(lr=0.1), 0.998, "f32", must=0.6),
    "fedavg-tf32": Case("a", FedAvg(lr=0.1), 0.998, "tf32", must=0.6),
    "scaffold-b": Case("b", Scaffold(lr=0.1), 0.998, "bf16", must=0.035),
    "scaffold-b-host": Case("b", Scaffold(lr=0.1), 0.998, "bf16", store="host"),
    "fedacg-c": Case("c", FedACG(lr=0.1, lam=0.85, beta=2e-3), 0.998, "bf16", must=0.22),
    "fedacg-d": Case("d", FedACG(lr=0.1, lam=0.85, beta=2e-3), 0.998, "bf16"),
}


def problem(setting: str, data: ImageSet, precision: str) -> Neural:
    acg = setting in "cd"
    partition = paper_partitions.fedacg if acg else paper_partitions.fedspeed
    pipeline = augment.fedacg if acg else augment.fedspeed
    parts = partition(data.labels.numpy(), SETTINGS[setting]["clients"], Streams(0).at("data"), 0.6)
    net = build("resnet18-3x3" if acg else "resnet18", 3, 32, 10)
    return Neural(net, data, parts, pipeline=pipeline("cifar10"), precision=precision)


def measure(case: Case, data: ImageSet, rounds: int) -> dict[str, Any]:
    setting = {key: value for key, value in SETTINGS[case.setting].items() if key != "clients"}
    torch.cuda.reset_peak_memory_stats()
    started = time.perf_counter()
    engine = prepare(
        case.method,
        problem(case.setting, data, case.precision),
        device="cuda",
        engine={"store": case.store},
        schedule=case.decay,
        **setting,
        training={"weight_decay": 1e-3, "clip": 10.0, "clip_scope": "reference"},
    )
    engine.run_round()
    torch.cuda.synchronize()
    warm_up, started = time.perf_counter() - started, time.perf_counter()
    rows = [{"round": engine.round, **engine.metrics()}]
    while engine.round <= rounds:
        engine.run_round()
        if engine.round % 10 == 0 or engine.round > rounds:
            rows.append({"round": engine.round, **engine.metrics()})
    torch.cuda.synchronize()
    spent = time.perf_counter() - started
    captured = next(iter(engine.problem.placed.captured.values()))  # type: ignore[attr-defined]
    engine.problem.release()
    return {
        "seconds": spent / rounds,
        "warm_up": warm_up,
        "accuracy": rows[-1]["accuracy"],
        "must": case.must,
        "way": captured.way,
        "gib": torch.cuda.max_memory_allocated() / 2**30,
        "precision": case.precision,
        "rounds": [row["round"] for row in rows],
        "accuracies": [row["accuracy"] for row in rows],
    }


def plain(data: ImageSet, precision: str, rounds: int = 2) -> float:
    """Seconds per round of FedAvg in setting (a) as one would write it by hand."""
    task = problem("a", data, precision).to(torch.float32, torch.device("cuda"))
    setting = SETTINGS["a"]
    batches = Batches(Streams(0), task, setting["batch"], epochs=True)
    server = build("resnet18", 3, 32, 10).cuda()

    def client(number: int, round: int) -> nn.Module:
        net = copy.deepcopy(server)
        rows = torch.from_numpy(task.parts[number]).cuda()
        optimizer = torch.optim.SGD(net.parameters(), lr=0.1, weight_decay=1e-3)
        for step in range(setting["epochs"] * -(-len(rows) // setting["batch"])):
            positions, draws = batches.draw([number], round, step)
            chosen = rows[positions[0][positions[0] >= 0]]
            with torch.autocast("cuda", torch.bfloat16, enabled=precision == "bf16"):
                loss = nn.functional.cross_entropy(
                    net(task.placed.prepare(task.placed.samples.train.x[chosen], draws)),
                    task.placed.samples.train.y[chosen],
                )
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(net.parameters(), 10.0)
            optimizer.step()
        return net

    def one_round(round: int) -> None:
        members = (
            Streams(0)
            .at("cohort", round)
            .choice(setting["clients"], setting["cohort"], replace=False)
        )
        nets = [dict(client(int(i), round).named_parameters()) for i in members]
        with torch.no_grad():
            for name, weight in server.named_parameters():
                weight.copy_(torch.stack([net[name] for net in nets]).mean(0))

    one_round(0)
    torch.cuda.synchronize()
    started = time.perf_counter()
    for round in range(1, 1 + rounds):
        one_round(round)
    torch.cuda.synchronize()
    return (time.perf_counter() - started) / rounds


def table(results: dict[str, dict[str, Any]], loops: dict[str, float]) -> Iterator[str]:
    head = "s per round | limit | times a plain loop | warm-up s | way | GPU GiB | accuracy"
    yield f"| case | {head} |"
    yield "|---|---|---|---|---|---|---|---|"
    for name, r in results.items():
        must = "" if r["must"] is None else f"<= {r['must']}"
        loop = loops.get(r["precision"]) if name.startswith("fedavg") else None
        ratio = "" if loop is None else f"{loop / r['seconds']:.0f} ({loop:.2f} s)"
        yield (
            f"| {name} | {r['seconds']:.3f} | {must} | {ratio} | {r['warm_up']:.0f} "
            f"| {r['way']} | {r['gib']:.1f} | {100 * r['accuracy']:.2f} % |"
        )


def draw(results: dict[str, dict[str, Any]], loops: dict[str, float], place: str) -> None:
    import matplotlib.pyplot as plt

    bars = {f"plain PyTorch loop, FedAvg (a), {p}": s for p, s in loops.items()}
    for name, r in results.items():
        case = CASES[name]
        where = ", states in host memory" * (case.store == "host")
        bars[f"{type(case.method).__name__} ({case.setting}), {case.precision}{where}"] = r[
            "seconds"
        ]
    figure, ax = plt.subplots(figsize=(7.5, 0.42 * len(bars) + 1), layout="constrained")
    shown = ax.barh(
        list(bars),
        list(bars.values()),
        color=["#9aa5b1" if "plain" in b else "#1f6feb" for b in bars],
    )
    ax.bar_label(shown, [f" {s:.3g} s" for s in bars.values()])
    ax.set(xscale="log", xlabel="seconds per round (one NVIDIA H200; everything included)")
    ax.invert_yaxis()
    ax.margins(x=0.15)
    ax.spines[["top", "right"]].set_visible(False)
    figure.savefig(place, dpi=150)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("cases", nargs="*", metavar="CASE", help=", ".join(CASES))
    parser.add_argument("--rounds", type=int, default=100)
    parser.add_argument("--no-loop", action="store_true", help="leave the plain loop out")
    parser.add_argument("--json")
    parser.add_argument("--picture")
    asked = parser.parse_args()
    data = load_images("cifar10")
    results: dict[str, dict[str, Any]] = {}
    for name in asked.cases or CASES:
        results[name] = measure(CASES[name], data, asked.rounds)
        print(
            name,
            {key: value for key, value in results[name].items() if key != "rounds"},
            flush=True,
        )
        torch.cuda.empty_cache()
    precisions = dict.fromkeys(r["precision"] for n, r in results.items() if n.startswith("fedavg"))
    loops = {} if asked.no_loop else {p: plain(data, p) for p in precisions}
    print(f"\ntorch {torch.__version__}, {torch.cuda.get_device_name()}, {asked.rounds} rounds; "
          f"data: {data.note or 'original'}\n")  # fmt: skip
    print("\n".join(table(results, loops)))
    if asked.json:
        Path(asked.json).write_text(json.dumps({"cases": results, "loops": loops}))
    if asked.picture:
        draw(results, loops, asked.picture)


if __name__ == "__main__":
    main()
