"""What each method needs to reach a target in five situations, with its step tuned.

    python -m benchmarks.choosing [--jobs 2] [--missing | --draw]

One number of every method is tuned, the length s of a local step, on the same grid for all. Where a
method has further parameters without a default, or a penalty that no default fits, they follow from
s and the number K of local steps (undrift/tuning/recipes.py). The step with the fewest rounds to
the target wins; where chance plays a part it is run again with seeds that it was not chosen by, and
the median counts. Writes benchmarks/choosing.json, the pictures in docs/pictures and the tables of
docs/choosing.md; --draw makes these from the file again, --missing goes on where a run was ended.
"""

from __future__ import annotations

import argparse
import dataclasses
import datetime
import functools
import itertools
import json
import math
import subprocess
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ProcessPoolExecutor, as_completed
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import torch
from tools import choosing as page
from torch import nn

import undrift as ud
from undrift.core import Method, Problem
from undrift.engines.judge import Diverged
from undrift.methods import registry
from undrift.models.net import seeded
from undrift.plots.curves import COLOURS
from undrift.theory import prescribe
from undrift.tuning.recipes import by_step

RESULTS = Path(__file__).with_suffix(".json")
PICTURES = Path(__file__).parents[1] / "docs/pictures"
STEPS = 10
"""Local steps in a round, K."""
SEEDS = (1, 2, 3)
"""Of the runs that count, where chance plays a part; steps are chosen with seed 0."""
GRID = (1 / 16, 1 / 8, 1 / 4, 1 / 2, 1.0, 2.0, 4.0, 8.0, 16.0, 32.0)
"""Steps that every method tries, in units of 1/L, or of 1/16 for the network. A bound, L is far
above the curvature of logistic regression near its minimum, so that steps beyond 2/L work.
"""
PATIENCE = 40
"""A run ends if so many rounds bring nothing better than before."""
FINE = tuple(2 ** (k / 2) for k in range(11))
"""Steps of the picture in docs/step-sizes.md."""


@dataclasses.dataclass(frozen=True)
class Situation:
    """A federation, and what is to be reached in it."""

    name: str
    title: str
    words: str
    target: float
    rounds: int
    cohort: int | None = None
    batch: int | None = None
    column: str = "gap"

    @property
    def random(self) -> bool:
        return self.cohort is not None or self.batch is not None

    def stalls(self, values: list[float]) -> bool:
        """Whether the last rounds brought nothing."""
        best = max if self.column == "accuracy" else min
        last, before = values[-PATIENCE:], values[:-PATIENCE]
        return bool(before) and best(best(before), best(last)) == best(before)

    def reached(self, value: float) -> bool:
        return value >= self.target if self.column == "accuracy" else value <= self.target


SITUATIONS = (
    Situation(
        "everyone",
        "Everyone takes part, exact gradients",
        "logistic regression (breast cancer, l2 = 0.02), 10 clients, Dirichlet 0.3; gap 1e-8",
        1e-8,
        200,
    ),
    Situation(
        "some",
        "5 of 20 clients in a round",
        "the same with 20 clients, Dirichlet 0.3, 5 drawn in each round; gap 1e-5",
        1e-5,
        200,
        cohort=5,
    ),
    Situation(
        "network",
        "A network, 5 of 20 clients, batches of 16",
        "64-32-10 perceptron on digits, 20 clients, Dirichlet 0.1, 5 in a round, batches of 16; "
        "test accuracy 90 %",
        0.9,
        60,
        cohort=5,
        batch=16,
        column="accuracy",
    ),
    Situation(
        "unlike",
        "Clients very unlike: one class each",
        "the same, samples sorted by label before they are cut; gap 1e-8",
        1e-8,
        200,
    ),
    Situation(
        "noise",
        "Everyone takes part, batches of 8",
        "as the first, mini-batches of 8 samples; gap 3e-4",
        3e-4,
        100,
        batch=8,
    ),
)
CONVEX = {"everyone": 10, "unlike": 10, "some": 20, "noise": 10}
"""Clients of the convex situations."""


@functools.cache
def problem(name: str) -> Problem:
    if name == "network":
        with seeded(0):
            net = nn.Sequential(nn.Flatten(), nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 10))
        digits = ud.data.load_images("digits")
        return ud.Neural(net, digits, ud.data.dirichlet(digits.labels, clients=20, beta=0.1))
    split: dict[str, Any] = {"partition": "by-label", "shards": 1}
    if name != "unlike":
        split = {"beta": 0.3}
    return ud.problems.build("logistic", clients=CONVEX[name], l2=0.02, seed=1, **split)


def refused(name: str, situation: Situation) -> str:
    """Why a method cannot run there, in a word or two."""
    kind = registry[name]
    if situation.name == "network" and kind.solves:
        return "no minimiser"
    if situation.cohort is not None and kind.participation == "full":
        return "needs all"
    return ""


@dataclasses.dataclass
class Trial:
    """One run: its curve, and if it reached the target what that took."""

    step: float
    lr: float
    curve: list[tuple[int, float]]
    reached: bool
    vectors: int
    gradients: int

    @property
    def rounds(self) -> float:
        return self.curve[-1][0] if self.reached else math.inf

    def rank(self, situation: Situation) -> tuple[float, float]:
        """Fewest rounds first; of those that did not reach the target, the closest."""
        last = self.curve[-1][1]
        worse = -last if situation.column == "accuracy" else last
        return self.rounds, worse if math.isfinite(last) else math.inf


def trial(
    name: str, situation: Situation, step: float, seed: int = 0, rounds: float = math.inf
) -> Trial:
    there, convex = problem(situation.name), situation.name in CONVEX
    lr = step / (there.constants.L if convex else 16)
    return attempt(by_step(name, lr, STEPS, there.dim, convex), situation, step, lr, seed, rounds)


def attempt(
    chosen: Method, situation: Situation, step: float, lr: float, seed: int, rounds: float
) -> Trial:
    """Runs until the target, or until it is clear that it is not reached."""
    there = problem(situation.name)
    engine = ud.Simulate(
        chosen, there, steps=STEPS, cohort=situation.cohort, batch=situation.batch, seed=seed
    )
    curve, reached = [(0, there.metrics(engine.x)[situation.column])], False
    while engine.round < min(situation.rounds, rounds) and not reached:
        try:
            engine.run_round()
        except Diverged:
            curve.append((engine.round + 1, math.nan))
            break
        value = there.metrics(engine.x)[situation.column]
        curve.append((engine.round, value))
        reached = situation.reached(value)
        if not math.isfinite(value) or situation.stalls([value for _, value in curve]):
            break
    spent = engine.ledger
    vectors = round(spent.vectors_up + spent.vectors_down)
    return Trial(step, lr, curve, reached, vectors, round(spent.gradients))


def climb(run: Callable[[float, float], Trial], situation: Situation) -> Trial:
    """The best step of the grid, from its middle on downhill until both neighbours are worse.

    A run need not be longer than the best so far.
    """
    tried: dict[int, Trial] = {}
    best = len(GRID) // 2
    while True:
        for k in (best, best + 1, best - 1):
            if 0 <= k < len(GRID) and k not in tried:
                most = min((t.rounds for t in tried.values()), default=math.inf)
                tried[k] = run(GRID[k], most)
        found = min(tried, key=lambda k: tried[k].rank(situation))
        if found == best:
            return tried[best]
        best = found


def tuned(name: str, place: int) -> dict[str, Any]:
    """The best of all steps for a method in a situation."""
    torch.set_num_threads(1)
    situation = SITUATIONS[place]
    about = {"method": name, "situation": situation.name}
    if why := refused(name, situation):
        return {**about, "refused": why}
    best = climb(lambda step, most: trial(name, situation, step, rounds=most), situation)
    if situation.random:
        runs = [trial(name, situation, best.step, seed) for seed in SEEDS]
        best = sorted(runs, key=lambda t: t.rank(situation))[len(runs) // 2]
    found = {**about, "step": best.step, "lr": best.lr, "last": best.curve[-1][1]}
    if best.reached:
        found |= {"round": best.rounds, "vectors": best.vectors, "gradients": best.gradients}
    return found | {"curve": thin(best.curve)}


def thin(curve: list[tuple[int, float]], most: int = 60) -> list[tuple[int, float]]:
    """Fewer points, with three digits."""
    every = max(1, len(curve) // most)
    kept = [*curve[:-1:every], curve[-1]]
    return [(k, float(f"{value:.3g}")) for k, value in kept if math.isfinite(value)]


def swept(name: str) -> dict[str, Any]:
    """Rounds to the target against the step, everyone taking part."""
    torch.set_num_threads(1)
    situation, there = dataclasses.replace(SITUATIONS[0], rounds=MOST), problem("everyone")
    found = [trial(name, situation, step) for step in FINE]
    theory = None
    if name in THEORY:
        given = registry[name](**dict.fromkeys(THEORY[name], "theory"))
        chosen = prescribe(given, there.constants, steps=STEPS)
        theory = chosen["lr"] * there.constants.L
    rounds = [(t.step, t.rounds if t.reached else None) for t in found]
    return {"method": name, "rounds": rounds, "theory": theory}


MOST = 1000
"""Rounds of the picture in docs/step-sizes.md."""
THEORY = {"FedRecu": ["lr"], "Scaffold": ["lr"]}
SWEPT = ("Scaffold", "FedRecu", "FedCET", "FedDyn", "Mime")
"""Methods in the picture of docs/step-sizes.md."""


def measure(jobs: int, missing: bool) -> None:
    """Writes what was found as it is found; with ``missing`` only what the file has not."""
    start = time.perf_counter()
    commit = subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=True
    ).stdout.strip()
    results: dict[str, Any] = {
        "date": datetime.date.today().isoformat(),
        "commit": commit,
        "seconds": 0,
        "grid": GRID,
        "steps": STEPS,
        "situations": {s.name: {"title": s.title, "words": s.words} for s in SITUATIONS},
        "found": [],
        "sweeps": [],
    }
    if missing:
        results = json.loads(RESULTS.read_text(encoding="utf-8"))
    known = {(one["method"], one["situation"]) for one in results["found"]}
    swept_before = {one["method"] for one in results["sweeps"]}
    spent = results["seconds"]
    with ProcessPoolExecutor(jobs, mp_context=get_context("spawn")) as pool:
        waiting = {}
        for place, situation in enumerate(SITUATIONS):
            for name in sorted(registry, key=str.casefold):
                if (name, situation.name) not in known:
                    waiting[pool.submit(tuned, name, place)] = "found"
        for name in SWEPT:
            if name not in swept_before:
                waiting[pool.submit(swept, name)] = "sweeps"
        for done in as_completed(waiting):
            results[waiting[done]].append(done.result())
            results["seconds"] = spent + round(time.perf_counter() - start)
            RESULTS.write_text(json.dumps(results), encoding="utf-8")


# -- pictures

SHOWN = {
    "everyone": ("FedAvg", "Scaffold", "FedRecu", "FedCET", "FedDyn", "GD", "DANE"),
    "unlike": ("FedAvg", "Scaffold", "FedCET", "FedDyn", "GD", "DANE"),
    "some": ("FedAvg", "Scaffold", "FedDyn", "FedADMM", "Mime", "FedAvgM"),
    "noise": ("FedAvg", "Scaffold", "FedCET", "FedAvgM", "Mime", "GD"),
    "network": ("FedAvg", "Scaffold", "FedACG", "FedCM", "FedAdam", "FedDyn", "Mime"),
}
"""Curves with a name; all others are grey."""
LOOKS = dict(
    zip(
        dict.fromkeys(itertools.chain(*SHOWN.values())),
        [(colour, dash) for dash in ("-", "--") for colour in COLOURS],
        strict=False,
    )
)


def draw(results: Mapping[str, Any]) -> None:
    import matplotlib.pyplot as plt

    by = {(one["situation"], one["method"]): one for one in results["found"]}
    shown = [s for s in SITUATIONS if s.name in results["situations"]]
    figure, grid = plt.subplots(
        (len(shown) + 1) // 2, 2, figsize=(10, 1.9 * len(shown)), layout="constrained"
    )
    for ax, situation in zip(grid.flat, shown, strict=False):
        panel(ax, situation, by)
    for ax in grid.flat[len(shown) :]:
        ax.axis("off")
    figure.savefig(PICTURES / "choosing.png", dpi=110)
    draw_steps(results["sweeps"])


def panel(ax: Any, situation: Situation, by: Mapping[tuple[str, str], Mapping[str, Any]]) -> None:
    curves = {
        name: one["curve"]
        for (s, name), one in by.items()
        if s == situation.name and "curve" in one
    }
    convex = situation.column == "gap"
    for name, curve in curves.items():
        if name not in SHOWN[situation.name]:
            ax.plot(*zip(*curve, strict=True), color="#cccccc", linewidth=0.8, zorder=1)
    ends = []
    for name in SHOWN[situation.name]:
        if name in curves:
            colour, dash = LOOKS[name]
            ax.plot(*zip(*curves[name], strict=True), color=colour, linestyle=dash, linewidth=1.8)
            ends.append((name, *curves[name][-1], colour))
    limit = max((x for _, x, _, _ in ends), default=1)
    ax.set_xlim(0, limit * 1.02)
    if convex:
        ax.set_yscale("log")
        ax.set_ylim(situation.target / 5, 2)
    else:
        ax.set_ylim(0, 1)
    ax.axhline(situation.target, color="black", linewidth=0.7, linestyle=":")
    ax.set_title(situation.title, fontsize=10)
    ax.set_xlabel("round")
    ax.set_ylabel("f(x) - f*" if convex else "test accuracy")
    for side in ("top", "right"):
        ax.spines[side].set_visible(False)
    label(ax, ends, convex)


def label(ax: Any, ends: list[tuple[str, float, float, str]], log: bool) -> None:
    """Names at the ends of curves, moved apart along the right edge where they would overlap."""
    scale = math.log10 if log else float
    low, high = map(scale, ax.get_ylim())
    gap = (high - low) / 17
    places: list[float] = []
    right = ax.get_xlim()[1]
    ordered = sorted(ends, key=lambda end: scale(max(end[2], 1e-300)))
    for _, _, y, _ in ordered:
        place = max(scale(max(y, 1e-300)), low + gap / 2)
        place = max(place, places[-1] + gap) if places else place
        places.append(place)
    over = max(0.0, places[-1] - high)
    for (name, x, y, colour), place in zip(ordered, places, strict=True):
        at = 10 ** (place - over) if log else place - over
        ax.annotate(
            name,
            (x, y),
            (right * 1.03, at),
            color=colour,
            fontsize=9,
            va="center",
            annotation_clip=False,
            arrowprops={"arrowstyle": "-", "color": colour, "linewidth": 0.5, "alpha": 0.6},
        )


def draw_steps(sweeps: list[Mapping[str, Any]]) -> None:
    import matplotlib.pyplot as plt

    figure, ax = plt.subplots(figsize=(7.5, 4.6), layout="constrained")
    for one, colour, mark in zip(sweeps, COLOURS, "osD^vP", strict=False):
        points = [(step, k) for step, k in one["rounds"] if k is not None]
        ax.plot(*zip(*points, strict=True), color=colour, marker=mark, markersize=3.5)
        best = min(points, key=lambda point: point[1])
        ax.annotate(one["method"], best, (4, -11), textcoords="offset points", color=colour)
        if one["theory"]:
            ax.axvline(one["theory"], color=colour, linestyle=":")
            words = f"theory for {one['method']}"
            ax.annotate(
                words, (one["theory"], 40), (4, 0), textcoords="offset points", color=colour
            )
    ax.set(xscale="log", yscale="log", xlabel="step size, in units of 1/L", ylabel="rounds to 1e-8")
    for side in ("top", "right"):
        ax.spines[side].set_visible(False)
    figure.savefig(PICTURES / "step-sizes.png", dpi=110)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--missing", action="store_true", help="only what the file has not")
    parser.add_argument("--draw", action="store_true", help="no runs: pictures and tables again")
    given = parser.parse_args()
    if not given.draw:
        measure(given.jobs, given.missing)
    draw(json.loads(RESULTS.read_text(encoding="utf-8")))
    page.PAGE.write_text(page.written(page.PAGE.read_text(encoding="utf-8")), encoding="utf-8")


if __name__ == "__main__":
    main()
