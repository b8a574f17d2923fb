"""Overhead and speed of the two engines on convex problems, as ratios in one run.

    python benchmarks/convex.py

simulate is timed against hand-written stacked NumPy transcriptions of the same methods, and against
wire.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable

import numpy as np
import torch
from threadpoolctl import threadpool_limits

from undrift.core import Problem
from undrift.engines import Simulate, Wire
from undrift.methods import FedAvg, FedLin, FedRecu, Scaffold
from undrift.problems import Quadratic, build


def quadratics(clients: int, dim: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    a = rng.normal(size=(clients, dim, dim)) / np.sqrt(dim)
    return a @ a.transpose(0, 2, 1) + np.eye(dim), rng.normal(size=(clients, dim))


def stacked_fedavg(H, q, lr, steps, rounds):
    x = np.zeros(q.shape[1])
    for _ in range(rounds):
        y = np.broadcast_to(x, q.shape)
        for _ in range(steps):
            y = y - lr * ((H @ y[..., None])[..., 0] - q)
        x = x + (y - x).mean(0)
    return x


def stacked_scaffold(H, q, lr, steps, rounds):
    x = np.zeros(q.shape[1])
    c, ci = np.zeros_like(x), np.zeros_like(q)
    for _ in range(rounds):
        y = np.broadcast_to(x, q.shape)
        for _ in range(steps):
            y = y - lr * ((H @ y[..., None])[..., 0] - q - ci + c)
        new = ci - c + (x - y) / (steps * lr)
        x, c, ci = x + (y - x).mean(0), c + (new - ci).mean(0), new
    return x


def stacked_fedlin(H, q, lr, steps, rounds):
    x = np.zeros(q.shape[1])
    for _ in range(rounds):
        gi = (H @ np.broadcast_to(x, q.shape)[..., None])[..., 0] - q
        g = gi.mean(0)
        y = np.broadcast_to(x, q.shape)
        for _ in range(steps):
            y = y - lr * ((H @ y[..., None])[..., 0] - q - gi + g)
        x = y.mean(0)
    return x


def stacked_fedrecu(H, q, lr, steps, rounds):
    x = np.zeros(q.shape[1])
    before, gb = np.broadcast_to(x, q.shape), np.zeros_like(q)
    for _ in range(rounds):
        g = (H @ np.broadcast_to(x, q.shape)[..., None])[..., 0] - q
        now = 2 * x - (before + lr * g - lr * gb).mean(0)
        before, gb, now = np.broadcast_to(x, q.shape), g, np.broadcast_to(now, q.shape)
        for _ in range(steps - 1):
            g = (H @ now[..., None])[..., 0] - q
            before, now, gb = now, 2 * now - before - lr * g + lr * gb, g
        x = now.mean(0)
    return x


METHODS = {
    "FedAvg": (FedAvg, stacked_fedavg),
    "SCAFFOLD": (Scaffold, stacked_scaffold),
    "FedLin": (FedLin, stacked_fedlin),
    "FedRecu": (FedRecu, stacked_fedrecu),
}


def interleaved(jobs: dict[str, Callable[[], object]], repeats: int) -> dict[str, float]:
    """The median processor seconds of each job (one thread), taken in turns so that a busy machine
    slows all alike.
    """
    times: dict[str, list[float]] = {name: [] for name in jobs}
    for job in jobs.values():
        job()
    for _ in range(repeats):
        for name, job in jobs.items():
            started = time.process_time()
            job()
            times[name].append(time.process_time() - started)
    return {name: float(np.median(t)) for name, t in times.items()}


def against_numpy(clients: int, dim: int, steps: int, rounds: int, repeats: int) -> list[dict]:
    H, q = quadratics(clients, dim)
    problem = Quadratic(H, q)
    lr = 0.02 / steps
    rows = []
    for name, (cls, transcription) in METHODS.items():
        engine = Simulate(cls(lr=lr), problem, steps=steps)

        def ours(engine=engine):
            for _ in range(rounds):
                engine.run_round()

        check = Simulate(cls(lr=lr), problem, steps=steps)
        for _ in range(rounds):
            check.run_round()
        assert np.allclose(check.x, transcription(H, q, lr, steps, rounds), atol=1e-9), name
        numpy = lambda t=transcription: t(H, q, lr, steps, rounds)  # noqa: E731
        seconds = interleaved({"simulate": ours, "numpy": numpy}, repeats)
        rows.append(
            {
                "what": f"simulate / NumPy, N={clients}, d={dim}",
                "method": name,
                "rounds": rounds,
                **seconds,
            }
        )
        rows[-1]["ratio"] = seconds["simulate"] / seconds["numpy"]
    return rows


def against_wire(problem: Problem, what: str, steps: int, rounds: int, repeats: int) -> list[dict]:
    rows = []
    for name, (cls, _) in METHODS.items():
        fast, slow = (kind(cls(lr=0.02 / steps), problem, steps=steps) for kind in (Simulate, Wire))
        jobs = {kind: (lambda e=e: [e.run_round() for _ in range(rounds)]) for kind, e in
                (("simulate", fast), ("wire", slow))}  # fmt: skip
        seconds = interleaved(jobs, repeats)
        rows.append(
            {"what": f"wire / simulate, {what}", "method": name, "rounds": rounds, **seconds}
        )
        rows[-1]["ratio"] = seconds["wire"] / seconds["simulate"]
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    threadpool_limits(1)
    rows = against_numpy(20, 10, steps=10, rounds=50, repeats=15)
    rows += against_numpy(100, 1000, steps=4, rounds=2, repeats=9)
    ten_rows = build("least-squares", clients=200, rows=10, dim=100)
    rows += against_wire(ten_rows, "N=200, d=100, 10 rows each", steps=10, rounds=1, repeats=5)
    rows += against_wire(
        Quadratic(*quadratics(200, 100)), "N=200, d=100, dense", steps=10, rounds=1, repeats=5
    )
    if arguments.json:
        print(json.dumps(rows, indent=1))
        return
    print(f"torch {torch.__version__}, numpy {np.__version__}, one thread each")
    for row in rows:
        other = "numpy" if "numpy" in row else "wire"
        per = {k: 1e3 * row[k] / row["rounds"] for k in ("simulate", other)}
        times = f"simulate {per['simulate']:8.3f}  {other} {per[other]:8.3f}"
        name = f"{row['what']:44s} {row['method']:9s}"
        print(f"{name} ratio {row['ratio']:6.2f}   ms per round: {times}")


if __name__ == "__main__":
    main()
