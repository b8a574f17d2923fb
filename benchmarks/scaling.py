"""Time per round and peak memory against the number of clients, the size of the cohort and the size
of the model.

    python benchmarks/scaling.py [--device cuda] [--json FILE] [--picture FILE]

Softmax regression on FedProx's synthetic clients with 10 samples each, and multilayer perceptrons
on digits for the
model's size; 10 local steps, float32. Times are medians, on a CPU processor time of one thread.
Memory is the peak in
rounds, data of all clients included, less what was held after a warm-up (on a GPU: by torch there).
"""

from __future__ import annotations

import argparse
import ctypes
import gc
import json
import math
import platform
import statistics
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch

from undrift.core import Method, Problem
from undrift.data.images import load_images
from undrift.engines import Simulate
from undrift.methods import FedAvg, Scaffold
from undrift.models import build
from undrift.problems import Neural
from undrift.problems import build as named

METHODS = {"FedAvg": FedAvg(lr=0.01), "SCAFFOLD": Scaffold(lr=0.01)}
AXES = {
    "clients": "clients (10 of them in a round)",
    "cohort": "clients in a round (of 1,000)",
    "d": "parameters",
}
"""What grows, by the name of its column."""


class Meter:
    """Seconds and bytes on one device."""

    def __init__(self, device: torch.device):
        self.device, self.floor = device, 0

    def now(self) -> float:
        """Processor seconds, or on a GPU those of the clock once it has finished."""
        if self.device.type != "cuda":
            return time.process_time()
        torch.cuda.synchronize()
        return time.perf_counter()

    def restart(self) -> None:
        gc.collect()
        if self.device.type == "cuda":
            torch.cuda.reset_peak_memory_stats()
        else:
            ctypes.CDLL(None).malloc_trim(0)  # what was freed goes back to the system
            Path("/proc/self/clear_refs").write_text(
                "5"
            )  # the peak starts again from what there is

    def peak(self) -> int:
        if self.device.type == "cuda":
            return torch.cuda.max_memory_allocated() - self.floor
        lines = Path("/proc/self/status").read_text().splitlines()
        return (
            next(int(line.split()[1]) for line in lines if line.startswith("VmHWM:")) * 1024
            - self.floor
        )


def measure(
    meter: Meter, method: Method, problem: Problem, cohort: int, batch: int | None = None
) -> dict[str, Any]:
    """Rounds for about a second, at least 5 and at most 100."""
    meter.restart()
    engine = Simulate(method, problem, steps=10, cohort=cohort, batch=batch)
    seconds: list[float] = []
    for _ in range(2):
        engine.run_round()
    while len(seconds) < 5 or (sum(seconds) < 1 and len(seconds) < 100):
        began = meter.now()
        engine.run_round()
        seconds.append(meter.now() - began)
    row = {"clients": problem.clients, "cohort": cohort, "d": problem.dim}
    return {**row, "seconds": statistics.median(seconds), "megabytes": meter.peak() / 1e6}


def perceptron(width: int) -> Neural:
    data = load_images("digits")
    net = build("mlp", 1, 8, 10, hidden=(width, width))
    return Neural(net, data, np.array_split(np.arange(len(data.labels)), 100), compiled=False)


def batches(meter: Meter) -> Iterator[dict[str, Any]]:
    """What mini-batches of 5 of 10 samples cost in large cohorts, beside all samples."""
    for (features, classes), dtype in (((2, 4), torch.float32), ((19, 10), torch.float64)):
        sizes = {"clients": 20_000, "samples": 10, "features": features, "classes": classes}
        problem = named("softmax-synthetic", **sizes).to(dtype, meter.device)
        for cohort in (1000, 10_000):
            whole, some = (
                measure(meter, METHODS["SCAFFOLD"], problem, cohort, b) for b in (None, 5)
            )
            times = f"x{some['seconds'] / whole['seconds']:.1f}"
            yield {"axis": "batch", "what": "all", **whole}
            yield {"axis": "batch", "what": f"5 {times}", **some}


def rows(meter: Meter) -> Iterator[dict[str, Any]]:
    def ready(problem: Problem) -> Problem:
        return problem.to(torch.float32, meter.device)

    for problem in (
        named("softmax-synthetic", clients=10, samples=10),
        perceptron(16),
    ):  # libraries load and warm up
        measure(meter, METHODS["SCAFFOLD"], ready(problem), 10, batch=10)
    meter.restart()
    meter.floor = meter.peak()
    for features in (10, 100, 1000, 10_000):
        problem = ready(named("softmax-synthetic", clients=100, samples=10, features=features))
        yield {"axis": "d", "what": "softmax", **measure(meter, METHODS["FedAvg"], problem, 10)}
    for clients in (10, 100, 1000, 10_000, 100_000):
        problem = ready(named("softmax-synthetic", clients=clients, samples=10))
        for name, method in METHODS.items():
            yield {"axis": "clients", "what": name, **measure(meter, method, problem, 10)}
            for cohort in (1, 3, 10, 30, 100) if clients == 1000 else ():
                yield {"axis": "cohort", "what": name, **measure(meter, method, problem, cohort)}
        del problem
    yield from batches(meter)
    for width in (16, 64, 256, 1024):
        problem = ready(perceptron(width))
        yield {
            "axis": "d",
            "what": "perceptron",
            **measure(meter, METHODS["FedAvg"], problem, 10, batch=10),
        }


def draw(found: list[dict[str, Any]], title: str, file: str) -> None:
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot as plt

    figure, grid = plt.subplots(
        2, 3, figsize=(11, 6), sharex="col", sharey="row", layout="constrained"
    )
    for column, (axis, label) in zip(grid.T, AXES.items(), strict=True):
        lines = {row["what"]: None for row in found if row["axis"] == axis}
        for plot, value, factor in zip(column, ("seconds", "megabytes"), (1e3, 1), strict=True):
            for what, marker in zip(lines, "os", strict=False):
                points = sorted(
                    (r[axis], factor * r[value])
                    for r in found
                    if (r["axis"], r["what"]) == (axis, what)
                )
                plot.loglog(*zip(*points, strict=True), marker=marker, label=what)
            plot.grid(alpha=0.3)
            plot.xaxis.set_major_formatter("{x:,.0f}")
            plot.yaxis.set_major_formatter("{x:g}")
            plot.yaxis.set_minor_formatter("")
        column[0].legend(frameon=False)
        column[1].set_xlabel(label)
    low, high = (math.log10(1e3 * pick(r["seconds"] for r in found)) for pick in (min, max))
    grid[0, 0].set(
        ylabel="milliseconds per round", ylim=(10 ** math.floor(low), 10 ** math.ceil(high))
    )
    grid[1, 0].set_ylabel("peak megabytes")
    figure.suptitle(title)
    figure.savefig(file, dpi=150)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--device", default="cpu", choices=("cpu", "cuda"))
    parser.add_argument("--json", metavar="FILE")
    parser.add_argument("--picture", metavar="FILE")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    found = []
    sizes = f"{'clients':>8s} {'cohort':>7s} {'d':>9s}"
    print(f"{'grows':8s} {'what':10s} {sizes} {'ms/round':>9s} {'MB':>8s}")
    for row in rows(Meter(torch.device(arguments.device))):
        found.append(row)
        sizes = f"{row['clients']:8,d} {row['cohort']:7d} {row['d']:9,d}"
        spent = f"{1e3 * row['seconds']:9.2f} {row['megabytes']:8.1f}"
        print(f"{row['axis']:8s} {row['what']:10s} {sizes} {spent}", flush=True)
    where = torch.cuda.get_device_name() if arguments.device == "cuda" else "CPU, one thread"
    if arguments.json:
        about = {
            "device": where,
            "torch": torch.__version__,
            "python": platform.python_version(),
            "rows": found,
        }
        Path(arguments.json).write_text(json.dumps(about, indent=1) + "\n")
    if arguments.picture:
        draw(found, f"A round of 10 local steps, {where}", arguments.picture)


if __name__ == "__main__":
    main()
