"""The three models that FedDC's own code measures, in FedACG's settings.

    UNDRIFT_DATA=FOLDER python benchmarks/feddc.py [--clients 500] [--rounds 1000] [--device cuda]
    [--precision bf16] [--model resnet18-3x3] [--json FILE]

FedACG's Tables B and C print FedDC's accuracies, but not which model they are of: the server's x
("server", as everywhere in undrift), the mean of the local models of the cohort ("cohort"), or the
mean of the models that all clients last ended with ("clients"). One run of FedDC measures all
three, on CIFAR-10 with Dirichlet 0.6, 5 of 100 clients or 10 of 500 in a round.
"""

from __future__ import annotations

import argparse
import json
import tomllib
from pathlib import Path

from undrift.methods import FedDC
from undrift.runs.api import prepare
from undrift_papers.reproduce.items import PAPERS


def main() -> None:
    asked = arguments()
    setting = tomllib.loads((PAPERS / f"fedacg/setting-{asked.clients}.toml").read_text("utf-8"))
    method = next(m for m in setting["method"] if m["name"] == "FedDC")
    engine = prepare(
        FedDC(lr=method["lr"], alpha=method["alpha"]),
        setting["problem"] | {"model": asked.model, "precision": asked.precision},
        device=asked.device,
        **{key: setting[key] for key in ("epochs", "batch", "cohort", "schedule", "training")},
    )
    latest = engine.x.repeat(asked.clients, 1)
    rows = []
    while engine.round < asked.rounds:
        engine.run_round()
        latest[engine.site.enders] = engine.ends
        if engine.round % setting["every"] == 0:
            found = {"server": engine.x, "cohort": engine.ends.mean(0), "clients": latest.mean(0)}
            row = {name: engine.problem.metrics(x)["accuracy"] for name, x in found.items()}
            rows.append({"round": engine.round, **row})
            print(f"{engine.round:>5}", *(f"{name} {v:.2%}" for name, v in row.items()), flush=True)
    if asked.json:
        Path(asked.json).write_text(json.dumps(rows, indent=1) + "\n", encoding="utf-8")


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--clients", type=int, choices=(100, 500), default=500)
    parser.add_argument("--rounds", type=int, default=1000)
    parser.add_argument("--model", default="resnet18-3x3")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--precision", default="bf16")
    parser.add_argument("--json", metavar="FILE")
    return parser.parse_args()


if __name__ == "__main__":
    main()
