"""The three models that FedDC's own code measures, in FedACG's settings.

    UNDRIFT_DATA=FOLDER python benchmarks/feddc.py [--clients 500] [--rounds 1000] [--device cuda]
    [--precision bf16] [--model resnet18-3x3] [--json FILE]

FedACG's Tables B and C print FedDC's accuracies, but not which model they are of: the server's x
("server", as everywhere in undrift), the mean of the local models of the round ("round"), or the
mean of all clients' latest ones ("clients"). One run of FedDC measures all three, on CIFAR-10 with
Dirichlet 0.6, 5 of 100 clients or 10 of 500 in a round.
"""

from __future__ import annotations

import argparse
import json
import tomllib
from pathlib import Path

import undrift as ud
from undrift import Local, Moment, Vec
from undrift.core import Cohort, Grad
from undrift.methods import FedDC
from undrift_papers.reproduce.items import PAPERS


class FedDCOfAll(FedDC, register=False):
    """FedDC whose server also keeps the mean of the models that clients last ended with.

    lr     eta_l, the local step size
    alpha  the weight of the penalty on the drift
    """

    class Server(FedDC.Server):
        mean: Vec

    class Client(FedDC.Client):
        y: Vec

    class Up(FedDC.Up):
        change: Vec

    def server(self, x0: Vec) -> Server:
        return self.Server(x=x0, c=0 * x0, h=0 * x0, mean=x0)

    def client(self, x0: Vec) -> Client:
        return self.Client(h=0 * x0, c=0 * x0, y=x0)

    def work(self, me: Client, got: FedDC.Down, f: Local) -> tuple[Client, Up]:
        def direction(y: Vec, grad: Grad) -> Vec:
            return grad(y) + self.alpha * (y - got.x + me.h) + got.c - me.c

        y = f.sgd(got.x, self.lr, direction)
        dy = y - got.x
        dc = -got.c - dy / (f.steps * self.lr)
        return me.replace(h=me.h + dy, c=me.c + dc, y=y), self.Up(dy=dy, dc=dc, change=y - me.y)

    def merge(self, s: Server, up: Up, cohort: Cohort) -> Server:
        h, c = s.h + cohort.fraction * up.dy, s.c + cohort.fraction * up.dc
        return s.replace(x=s.x + up.dy + h, c=c, h=h, mean=s.mean + cohort.fraction * up.change)


def models(moment: Moment) -> dict[str, float]:
    """Accuracies of the two other models, for the row."""
    s, problem = moment.engine.server, moment.engine.problem
    found = {"round": s.x - s.h, "clients": s.mean}
    accuracies = {f"accuracy_{name}": problem.metrics(x)["accuracy"] for name, x in found.items()}
    if moment.round % 50 == 0:
        told = "  ".join(f"{name[9:]} {value:.2%}" for name, value in accuracies.items())
        print(f"{moment.round:>5}  server {moment.row['accuracy']:.2%}  {told}", flush=True)
    return accuracies


def main() -> None:
    asked = arguments()
    setting = tomllib.loads((PAPERS / f"fedacg/setting-{asked.clients}.toml").read_text("utf-8"))
    method = next(m for m in setting["method"] if m["name"] == "FedDC")
    run = ud.run(
        FedDCOfAll(lr=method["lr"], alpha=method["alpha"]),
        setting["problem"] | {"model": asked.model, "precision": asked.precision},
        rounds=asked.rounds,
        **{k: setting[k] for k in ("epochs", "batch", "every", "cohort", "schedule", "training")},
        callbacks=models,
        progress=False,
        device=asked.device,
    )
    rows = [
        {k: row[k] for k in ("round", "accuracy", "accuracy_round", "accuracy_clients")}
        for row in run.history.rows
    ]
    if asked.json:
        Path(asked.json).write_text(json.dumps(rows, indent=1) + "\n", encoding="utf-8")


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--clients", type=int, choices=(100, 500), default=500)
    parser.add_argument("--rounds", type=int, default=1000)
    parser.add_argument("--model", default="resnet18-3x3")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--precision", default="bf16")
    parser.add_argument("--json", metavar="FILE")
    return parser.parse_args()


if __name__ == "__main__":
    main()
