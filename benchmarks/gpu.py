"""FedSpeed's setting (a) on one GPU: CIFAR-10, Dirichlet 0.6, 100 clients, 10 per round, ResNet-18-GN (7x7 stem).

    UNDRIFT_DATA=FOLDER python benchmarks/gpu.py --rounds 100 --precision bf16 [--json FILE]

Everything is included: augmentation, local steps, server step, evaluation every ``--every`` rounds.
"""

from __future__ import annotations

import argparse
import json
import time

import torch

from undrift.core.streams import Streams
from undrift.data.augment import fedspeed as pipeline
from undrift.data.images import load_images
from undrift.data.paper_partitions import fedspeed as partition
from undrift.methods import FedAvg, FedDyn, FedSpeed, Scaffold
from undrift.models import build
from undrift.problems.neural import Neural
from undrift.runs.runner import prepare, record

METHODS = {
    "FedAvg": (FedAvg(lr=0.1), 0.998),
    "FedSpeed": (FedSpeed(lr=0.1, lam=10.0, rho=0.1, alpha=1.0, server_dual="all"), 0.9995),
    "SCAFFOLD": (Scaffold(lr=0.1), 0.998),
    "FedDyn": (FedDyn(lr=0.1, alpha=0.1), 0.9995),
}
SETTINGS = {
    "a": {"clients": 100, "cohort": 10, "batch": 50, "epochs": 5},
    "b": {"clients": 500, "cohort": 10, "batch": 20, "epochs": 2},
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=100)
    parser.add_argument("--every", type=int, default=10)
    parser.add_argument("--precision", default="bf16", choices=("f32", "tf32", "bf16"))
    parser.add_argument("--setting", default="a", choices=SETTINGS)
    parser.add_argument("--methods", nargs="+", default=["FedAvg", "FedSpeed"], choices=METHODS)
    parser.add_argument("--eager", action="store_true", help="capture, but do not compile")
    parser.add_argument("--json")
    asked = parser.parse_args()
    setting = dict(SETTINGS[asked.setting])
    data = load_images("cifar10")
    parts = partition(data.labels.numpy(), setting.pop("clients"), Streams(0).at("data"), 0.6)
    net = build("resnet18", 3, 32, 10)
    results = {}
    for name in asked.methods:
        method, decay = METHODS[name]
        problem = Neural(
            net, data, parts, pipeline=pipeline("cifar10"), precision=asked.precision, compiled=not asked.eager
        )
        started = time.perf_counter()
        engine = prepare(
            method, problem, device="cuda", weight_decay=1e-3, clip=10.0, clip_scope="reference", decay=decay, **setting
        )
        engine.run_round()
        torch.cuda.synchronize()
        warm_up = time.perf_counter() - started
        rows = []
        started = time.perf_counter()

        def watch(row, rows=rows, name=name, started=started):
            rows.append({**row, "wall": time.perf_counter() - started})
            print(f"{name:9s} round {row['round']:5d}  accuracy {100 * row['accuracy']:6.2f}  loss {row['loss']:.4f}  "
                  f"drift {row['drift']:.3g}", flush=True)  # fmt: skip

        record(engine, asked.rounds, every=asked.every, watch=watch)
        torch.cuda.synchronize()
        wall = time.perf_counter() - started
        per_round = wall / (asked.rounds - 1)
        best = max(row["accuracy"] for row in rows)
        way = next(iter(engine.problem._captured.values()), None)
        results[name] = {
            "seconds_per_round": per_round, "warm_up": warm_up, "best": best, "last": rows[-1]["accuracy"],
            "way": getattr(way, "way", "step by step"), "gib": torch.cuda.max_memory_allocated() / 2**30, "rows": rows,
        }  # fmt: skip
        torch.cuda.reset_peak_memory_stats()
        del engine, problem
        torch.cuda.empty_cache()
    print(f"\nsetting ({asked.setting}), {asked.precision}, torch {torch.__version__}, {torch.cuda.get_device_name()}, "
          f"{asked.rounds} rounds, evaluation every {asked.every}; data: {data.note or 'original'}")  # fmt: skip
    print("method     s/round  warm-up s  way        GiB   last %   best %")
    for name, r in results.items():
        print(f"{name:9s} {r['seconds_per_round']:8.3f} {r['warm_up']:9.1f}  {r['way']:9s} {r['gib']:5.1f} "
              f"{100 * r['last']:8.2f} {100 * r['best']:8.2f}")  # fmt: skip
    if asked.json:
        with open(asked.json, "w") as file:
            json.dump(results, file)


if __name__ == "__main__":
    main()
