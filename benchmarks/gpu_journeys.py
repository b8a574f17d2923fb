"""Networks as users write them on one GPU, each against a plain PyTorch loop.

    python benchmarks/gpu_journeys.py [NAME ...] [--precision bf16 f32] [--json FILE]

An MLP, a CNN, a ResNet, an LSTM, a GPT and a network with a loss of its own, with three methods in
bf16 and float32. The loop is written by hand: one client after another, module, autograd, vectors.
It takes the same mini-batches, so after each of three rounds its training loss is that of undrift,
up to rounding: steps are small, since large ones magnify it. How much they do is measured where the
two are further apart: the loop is run again with the rows of each mini-batch in reverse order,
which changes nothing but rounding. Four processes share the networks and precisions; ``gpt-27m`` is
run after them, alone, and timed beside the loop. Ends with 1 if a loss is another one.
"""

from __future__ import annotations

import argparse
import itertools
import json
import math
import os
import subprocess
import sys
import tempfile
import time
import warnings
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from pydoc_data.topics import topics
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.utils import parameters_to_vector, vector_to_parameters

import undrift as ud
from undrift.core.streams import Streams
from undrift.engines.batches import Batches
from undrift.methods import FedAvg, FedSpeed, Method, Scaffold
from undrift.models import build
from undrift.problems.neural.problem import Neural
from undrift.runs.api import prepare

ROUNDS = 3
TOLERANCE = {"bf16": 1e-2, "f32": 1e-4}
ROUNDING = 3.0
"""Times what rounding alone does to the loop, where that is more than the tolerance."""
METHODS: list[type[Method]] = [FedAvg, Scaffold, FedSpeed]
TIMED = ("gpt-27m",)
FAST = 0.55
"""Seconds of a round of 27 million weights that are asked for on an H200, in bf16."""


class Block(nn.Module):
    def __init__(self, width: int, heads: int):
        super().__init__()
        self.heads = heads
        self.before, self.between = nn.LayerNorm(width), nn.LayerNorm(width)
        self.look, self.mix = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.think = nn.Sequential(
            nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width)
        )

    def forward(self, x: Tensor) -> Tensor:
        n, t, width = x.shape
        parts = self.look(self.before(x)).view(n, t, 3, self.heads, width // self.heads)
        q, k, v = parts.permute(2, 0, 3, 1, 4)
        seen = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.mix(seen.transpose(1, 2).reshape(n, t, width))
        return x + self.think(self.between(x))


class GPT(nn.Module):
    def __init__(self, words: int, width: int, layers: int, heads: int, length: int = 256):
        super().__init__()
        self.word, self.place = nn.Embedding(words, width), nn.Embedding(length, width)
        self.blocks = nn.Sequential(*(Block(width, heads) for _ in range(layers)))
        self.last, self.write = nn.LayerNorm(width), nn.Linear(width, words)

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.word(tokens) + self.place(torch.arange(tokens.shape[1], device=tokens.device))
        return self.write(self.last(self.blocks(x))).transpose(1, 2)


class LSTM(nn.Module):
    def __init__(self, words: int):
        super().__init__()
        self.read, self.think = nn.Embedding(words, 64), nn.LSTM(64, 128, batch_first=True)
        self.write = nn.Linear(128, words)

    def forward(self, tokens: Tensor) -> Tensor:
        return self.write(self.think(self.read(tokens))[0]).transpose(1, 2)


class Case(NamedTuple):
    net: Callable[[], nn.Module]
    data: Callable[[], list[tuple[Tensor, Tensor]]]
    """Inputs and targets of each client."""
    loss: Callable[[Tensor, Tensor], Tensor] = F.cross_entropy
    lr: float = 0.05
    batch: int = 16
    steps: int = 5
    methods: int = len(METHODS)
    precisions: tuple[str, ...] = ("bf16", "f32")


WORDS = 1000


def text(length: int, rows: int, clients: int = 8) -> list[tuple[Tensor, Tensor]]:
    """Python's own manual, word by word."""
    words = " ".join(topics.values()).split()
    number = {word: k for k, (word, _) in enumerate(Counter(words).most_common(WORDS - 1), 1)}
    tokens = torch.tensor([number.get(word, 0) for word in words])
    starts = torch.linspace(0, len(tokens) - length - 1, clients * rows).long()
    lines = tokens[starts.unsqueeze(1) + torch.arange(length + 1)]
    return [(own[:, :-1], own[:, 1:]) for own in lines.split(rows)]


def images(*shape: int, rows: int = 64, clients: int = 8) -> list[tuple[Tensor, Tensor]]:
    """Ten blurred patterns, and other ones of them at each client."""
    draw = torch.Generator().manual_seed(0)
    patterns, found = torch.randn(10, *shape, generator=draw), []
    for client in range(clients):
        labels = (torch.randint(0, 4, (rows,), generator=draw) + client) % 10
        found.append((patterns[labels] + torch.randn(rows, *shape, generator=draw), labels))
    return found


def numbers() -> list[tuple[Tensor, Tensor]]:
    return [(x, x[:, :3].sin() + 0.1 * labels.unsqueeze(1)) for x, labels in images(20)]


def mlp() -> nn.Module:
    return nn.Sequential(nn.Flatten(), nn.Linear(784, 200), nn.ReLU(), nn.Linear(200, 10))


def tanh() -> nn.Module:
    return nn.Sequential(nn.Linear(20, 64), nn.Tanh(), nn.Linear(64, 3))


def log_cosh(outputs: Tensor, targets: Tensor) -> Tensor:
    return (outputs - targets).cosh().log().mean()


CASES = {
    "mlp": Case(mlp, lambda: images(1, 28, 28)),
    "cnn": Case(lambda: build("cnn-small", 3, 32, 10), lambda: images(3, 32, 32)),
    "resnet": Case(lambda: build("resnet18", 3, 32, 10), lambda: images(3, 32, 32), lr=0.0005),
    "lstm": Case(lambda: LSTM(WORDS), lambda: text(64, 64), lr=0.5),
    "gpt": Case(lambda: GPT(WORDS, 256, 4, 4), lambda: text(256, 64), lr=0.02),
    "own-loss": Case(tanh, numbers, log_cosh),
    "gpt-27m": Case(
        lambda: GPT(WORDS, 512, 8, 8), lambda: text(256, 64), lr=0.02, steps=20, methods=1,
        precisions=("bf16",),
    ),
}  # fmt: skip


def settings(method: type[Method], lr: float) -> Method:
    return FedSpeed(lr=lr, lam=1.0, rho=0.05) if method is FedSpeed else method(lr=lr)


def ours(case: Case, problem: Neural, method: Method) -> dict[str, Any]:
    engine = prepare(method, problem, device="cuda", steps=case.steps, batch=case.batch)
    losses, times = [], []
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("default")
        for _ in range(ROUNDS):
            started = time.perf_counter()
            engine.run_round()
            torch.cuda.synchronize()
            times.append(time.perf_counter() - started)
            losses.append(engine.metrics()["loss"])
    engine.problem.release()
    told = [str(warning.message) for warning in caught]
    return {"losses": losses, "warm_up": times[0], "seconds": times[-1], "warnings": told}


def plain(case: Case, problem: Neural, method: Method, backwards: bool = False) -> dict[str, Any]:
    """The same run as one would write it by hand, on the mini-batches of ``problem``."""
    net, precision = problem.module(problem.start()).train().cuda(), problem.precision
    data = [(x.cuda(), y.cuda()) for x, y in case.data()]
    batches = Batches(Streams(0), problem, case.batch)
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = precision != "f32"
    x = parameters_to_vector(net.parameters()).detach().clone()
    clients, k, lr = len(data), case.steps, case.lr
    c, server_c = x.new_zeros(clients, len(x)), torch.zeros_like(x)
    losses, times = [], []

    def gradient(y: Tensor, i: int, rows: Tensor) -> Tensor:
        vector_to_parameters(y, net.parameters())
        inputs, targets = data[i]
        with torch.autocast("cuda", torch.bfloat16, enabled=precision == "bf16"):
            loss = case.loss(net(inputs[rows]), targets[rows])
        found = torch.autograd.grad(loss, list(net.parameters()))
        return parameters_to_vector(found).detach()

    for round in range(ROUNDS):
        torch.cuda.synchronize()
        started, ends, old = time.perf_counter(), [], c.clone()
        for i in range(clients):
            y = x.clone()
            for step in range(k):
                (rows,) = (drawn[0].cuda() for drawn in batches.draw([i], round, step))
                rows = rows.flip(0) if backwards else rows
                g = gradient(y, i, rows)
                if isinstance(method, Scaffold):
                    y = y - lr * (g - old[i] + server_c)
                elif isinstance(method, FedSpeed):
                    up = y + method.rho / (g.norm() + 1e-7) * g
                    g = gradient(up, i, rows) - old[i]
                    y = y - lr * (g + (y - x) / method.lam)
                else:
                    y = y - lr * g
            if isinstance(method, Scaffold):
                c[i] = old[i] - server_c + (x - y) / (k * lr)
            elif isinstance(method, FedSpeed):
                c[i] = old[i] - (y - x) / method.lam
                y = y - method.lam * c[i]
            ends.append(y)
        x = torch.stack(ends).mean(0)
        server_c = server_c + (c - old).mean(0)
        torch.cuda.synchronize()
        times.append(time.perf_counter() - started)
        with torch.no_grad():
            vector_to_parameters(x, net.parameters())
            each = [case.loss(net(inputs), targets) for inputs, targets in data]
            losses.append(float(torch.stack(each).mean()))
    return {"losses": losses, "seconds": times[-1]}


def distance(ours: dict[str, Any], theirs: dict[str, Any]) -> float:
    """Relative, of the losses that are furthest apart."""
    pairs = zip(ours["losses"], theirs["losses"], strict=True)
    return max(abs(a - b) / max(abs(b), 1e-9) for a, b in pairs)


def journey(name: str, case: Case, precision: str) -> list[dict[str, Any]]:
    torch.manual_seed(0)
    net, found = case.net(), []
    weights = sum(p.numel() for p in net.parameters())
    problem = Neural(net, case.data(), loss=case.loss, precision=precision)
    for kind in METHODS[: case.methods]:
        method = settings(kind, case.lr)
        started = time.perf_counter()
        mine = ours(case, problem, method)
        between = time.perf_counter()
        theirs = plain(case, problem, method)
        apart, rounding = distance(mine, theirs), 0.0
        if TOLERANCE[precision] < apart < math.inf:
            rounding = distance(plain(case, problem, method, backwards=True), theirs)
        good = apart <= max(TOLERANCE[precision], ROUNDING * rounding)
        fast = name not in TIMED or mine["seconds"] <= FAST
        about = {"network": name, "weights": weights, "method": kind.__name__}
        about |= {"precision": precision, "apart": apart, "rounding": rounding}
        about |= {"good": good and fast}
        found.append(about | {"ours": mine, "plain": theirs})
        print(
            f"{name:9} {kind.__name__:9} {precision:5} {weights / 1e6:6.2f} M  "
            f"apart {apart:.1e}{f' (rounding {rounding:.1e})' if rounding else ''}  "
            f"losses {', '.join(f'{v:.4f}' for v in mine['losses'])}  "
            f"a round {mine['seconds']:.3f} s, plain {theirs['seconds']:.3f} s, "
            f"warm-up {mine['warm_up']:.1f} s, whole {between - started:.0f} and "
            f"{time.perf_counter() - between:.0f} s  {'good' if good and fast else 'WRONG'}",
            *(f"\n    {text}" for text in mine["warnings"]),
            flush=True,
        )
    return found


def side_by_side(names: list[str], precisions: list[str]) -> list[dict[str, Any]]:
    """The rows of two processes for each precision; mostly they compile, on all cores."""
    half = (len(names) + 1) // 2
    parts = [part for part in (names[:half], names[half:]) if part]
    threads = str(max(1, (os.cpu_count() or 1) // (len(parts) * len(precisions))))
    environment = os.environ | {"OMP_NUM_THREADS": threads}
    environment |= {"TORCHINDUCTOR_COMPILE_THREADS": threads}
    with tempfile.TemporaryDirectory() as place:
        files, processes = [], []
        for k, (precision, part) in enumerate(itertools.product(precisions, parts)):
            files.append(Path(place) / f"{k}.json")
            command = [sys.executable, __file__, *part, "--precision", precision]
            processes.append(subprocess.Popen([*command, "--json", files[-1]], env=environment))
        for process in processes:
            process.wait()
        return [row for file in files for row in json.loads(file.read_text(encoding="utf-8"))]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(CASES))
    parser.add_argument("--precision", nargs="+", choices=TOLERANCE, default=[*TOLERANCE])
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    started = time.perf_counter()
    names, found = args.names or [*CASES], []
    if len(args.precision) > 1:
        found = side_by_side([name for name in names if name not in TIMED], args.precision)
        names = [name for name in names if name in TIMED]
    print(f"undrift {ud.__version__}, torch {torch.__version__}, {torch.cuda.get_device_name()}")
    for name, precision in itertools.product(names, args.precision):
        if precision in CASES[name].precisions:
            found += journey(name, CASES[name], precision)
    bad = sum(not one["good"] for one in found)
    print(f"{len(found) - bad} of {len(found)} as the loop, {time.perf_counter() - started:.0f} s")
    if args.json:
        args.json.write_text(json.dumps(found, indent=1), encoding="utf-8")
    return min(bad, 1)


if __name__ == "__main__":
    sys.exit(main())
