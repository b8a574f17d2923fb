"""Networks on a user's own data, with a loss of the user's, against a plain PyTorch loop.

    python -m benchmarks.own [WORK ...] [--cores 1 2] [--device cuda] [--rounds 5] [--json FILE]

FedAvg, all ten clients, 20 local steps on 32 samples. ``table``: floats, three linear layers,
squared error. ``lstm``: the next character of a text. ``transformer``: the same with attention,
two layers on a CPU and four on a GPU, where products run in bf16 on both sides. The plain loop
trains one client after another as one would write it by hand. Medians of the rounds after the
first two; every measurement is a process of its own, bound to its cores.
"""

from __future__ import annotations

import argparse
import copy
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pydoc_data.topics import topics
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

import undrift as ud
from undrift.runs.api import prepare

CLIENTS, STEPS, BATCH, LR = 10, 20, 32, 0.05
WARM = 2
"""Rounds before those that are timed."""
LONG = {"cpu": 32, "cuda": 128}
"""Characters that a network sees."""
AGAINST = {"table": "floats", "lstm": "tokens", "transformer": "tokens"}


class Work(NamedTuple):
    """What is trained."""

    net: nn.Module
    clients: list[tuple[Tensor, Tensor]]
    loss: Callable[[Tensor, Tensor], Tensor]


class LSTM(nn.Module):
    def __init__(self, letters: int):
        super().__init__()
        self.read, self.think = nn.Embedding(letters, 32), nn.LSTM(32, 64, batch_first=True)
        self.write = nn.Linear(64, letters)

    def forward(self, tokens: Tensor) -> Tensor:
        return self.write(self.think(self.read(tokens))[0]).transpose(1, 2)


class Transformer(nn.Module):
    def __init__(self, letters: int, length: int, layers: int, width: int):
        super().__init__()
        self.read, self.place = nn.Embedding(letters, width), nn.Embedding(length, width)
        block = nn.TransformerEncoderLayer(
            width, width // 32, 4 * width, dropout=0.0, batch_first=True, norm_first=True
        )
        self.think = nn.TransformerEncoder(block, layers, enable_nested_tensor=False)
        self.write = nn.Linear(width, letters)
        ahead = torch.ones(length, length, dtype=torch.bool).triu(1)
        self.register_buffer("ahead", ahead)

    def forward(self, tokens: Tensor) -> Tensor:
        seen = self.read(tokens) + self.place.weight
        return self.write(self.think(seen, mask=self.ahead, is_causal=True)).transpose(1, 2)


def work(name: str, device: str) -> Work:
    torch.manual_seed(0)
    if name == "table":
        x = [torch.randn(640, 64) for _ in range(CLIENTS)]
        net = nn.Sequential(
            nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, 1)
        )
        return Work(net, [(own, own[:, :4].sum(1, keepdim=True).sin()) for own in x], F.mse_loss)
    text = "\n".join(topics.values())
    letters = sorted(set(text))
    numbers = {letter: k for k, letter in enumerate(letters)}
    tokens = torch.tensor([numbers[letter] for letter in text])
    length = LONG[device]
    starts = torch.arange(640 * CLIENTS) * ((len(tokens) - length - 1) // (640 * CLIENTS))
    rows = tokens[starts.unsqueeze(1) + torch.arange(length + 1)].view(CLIENTS, 640, -1)
    net = LSTM(len(letters))
    if name == "transformer":
        layers, width = (4, 256) if device == "cuda" else (2, 64)
        net = Transformer(len(letters), length, layers, width)
    return Work(net, [(own[:, :-1], own[:, 1:]) for own in rows], F.cross_entropy)


def ours(task: Work, device: str, rounds: int) -> tuple[list[float], float]:
    precision = "bf16" if device == "cuda" else "f32"
    problem = ud.Neural(task.net, task.clients, loss=task.loss, precision=precision)
    engine = prepare(ud.FedAvg(lr=LR), problem, steps=STEPS, batch=BATCH, device=device)
    return timed(lambda k: engine.run_round(), device, rounds), float(engine.metrics()["loss"])


def plain(task: Work, device: str, rounds: int) -> tuple[list[float], float]:
    server = task.net.to(device)
    clients = [(x.to(device), y.to(device)) for x, y in task.clients]
    half = device == "cuda"

    def local(x: Tensor, y: Tensor, drawn: torch.Generator) -> nn.Module:
        net = copy.deepcopy(server)
        optimizer = torch.optim.SGD(net.parameters(), lr=LR)
        order = torch.randperm(len(x), generator=drawn).to(device)
        for k in range(STEPS):
            chosen = order[k * BATCH : (k + 1) * BATCH]
            with torch.autocast("cuda", torch.bfloat16, enabled=half):
                loss = task.loss(net(x[chosen]), y[chosen])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        return net

    def one_round(number: int) -> None:
        drawn = torch.Generator().manual_seed(number)
        nets = [dict(local(x, y, drawn).named_parameters()) for x, y in clients]
        with torch.no_grad():
            for name, weight in server.named_parameters():
                weight.copy_(torch.stack([net[name] for net in nets]).mean(0))

    spent = timed(one_round, device, rounds)
    with torch.no_grad():
        loss = statistics.fmean(float(task.loss(server(x), y)) for x, y in clients)
    return spent, loss


def timed(one_round: Callable[[int], object], device: str, rounds: int) -> list[float]:
    """Seconds of each round; the first of them have the warm-up."""
    found = []
    for number in range(WARM + rounds):
        started = time.perf_counter()
        one_round(number)
        if device == "cuda":
            torch.cuda.synchronize()
        found.append(time.perf_counter() - started)
    return found


SIDES = {"ours": ours, "plain": plain}


def measured(side: str, name: str, device: str, cores: int, rounds: int) -> dict[str, object]:
    """In a process of its own, on as many cores."""
    command = [sys.executable, "-m", "benchmarks.own", name, "--device", device]
    command += ["--rounds", str(rounds), "--cores", str(cores), "--side", side]
    environment = {**os.environ, "OMP_NUM_THREADS": str(cores), "MKL_NUM_THREADS": str(cores)}
    if device == "cpu" and hasattr(os, "sched_setaffinity"):
        allowed = sorted(os.sched_getaffinity(0))[:cores]
        command = ["taskset", "-c", ",".join(map(str, allowed)), *command]
    given = subprocess.run(
        command, env=environment, stdout=subprocess.PIPE, text=True, check=True
    ).stdout
    found: dict[str, object] = json.loads(given.splitlines()[-1])
    return found


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("works", nargs="*", metavar="WORK", help=", ".join(AGAINST))
    parser.add_argument("--device", default="cpu", choices=LONG)
    parser.add_argument("--cores", nargs="+", type=int, default=[1, 2])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--repeats", type=int, default=1, help="processes of each, in turn")
    parser.add_argument("--side", choices=SIDES, help=argparse.SUPPRESS)
    parser.add_argument("--json")
    asked = parser.parse_args()
    if asked.side:
        torch.set_num_threads(asked.cores[0])
        task = work(asked.works[0], asked.device)
        seconds, loss = SIDES[asked.side](task, asked.device, asked.rounds)
        weights = sum(p.numel() for p in task.net.parameters())
        print(json.dumps({"seconds": seconds, "loss": loss, "weights": weights}))
        return
    rows = []
    print(f"torch {torch.__version__}, {asked.device}, medians of {asked.rounds} rounds\n")
    print("| work | weights | cores | plain loop s | undrift s | times as fast | first round s |")
    print("|---|---|---|---|---|---|---|")
    for name in asked.works or AGAINST:
        for cores in asked.cores if asked.device == "cpu" else [os.cpu_count() or 1]:
            row = compared(name, asked.device, cores, asked.rounds, asked.repeats)
            rows.append(row)
            print(
                f"| {name} | {row['weights']} | {cores} | {row['plain']:.4f} | {row['ours']:.4f} "
                f"| {row['plain'] / row['ours']:.2f} | {row['first']:.1f} |",
                flush=True,
            )
    if asked.json:
        with open(asked.json, "w", encoding="utf-8") as file:
            json.dump(rows, file)


def compared(name: str, device: str, cores: int, rounds: int, repeats: int) -> dict[str, float]:
    """The best median of each side, taken in turn."""
    best = dict.fromkeys(SIDES, float("inf"))
    losses, first, weights = {}, 0.0, 0
    for _ in range(repeats):
        for side in SIDES:
            found = measured(side, name, device, cores, rounds)
            seconds = found["seconds"]
            best[side] = min(best[side], statistics.median(seconds[WARM:]))  # type: ignore[index]
            losses[side], weights = found["loss"], found["weights"]
            if side == "ours":
                first = seconds[0]  # type: ignore[index]
    apart = abs(losses["ours"] - losses["plain"]) / losses["plain"]  # type: ignore[operator]
    if apart > 0.05:
        print(f"{name}: the losses {losses} are not of the same training", file=sys.stderr)
    return {"name": name, "cores": cores, "weights": weights, "first": first, **best}  # type: ignore[dict-item]


if __name__ == "__main__":
    main()
