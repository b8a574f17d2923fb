"""How good the steps of ``lr = "auto"`` are, and what finding them takes.

    OMP_NUM_THREADS=1 python -m benchmarks.auto [--share K/N] [--json FILE]
    python -m benchmarks.auto --table FILE ...  # what was kept
    python -m benchmarks.auto --again FILE ...  # short runs beside the grids that were kept

Every method with its step found by short runs, and by a fine grid: 25 steps by factors of sqrt(2),
15 of them below the best of a coarse one, each with all rounds. The target of a method on a problem
is the gap, or the loss of the network, that the best step of the grid has after half of the rounds,
or 1e-8 of the first gap if that is reached. Where chance plays a part losses are means of their
logarithms over the last six rounds. Other hyper-parameters are those of theory, where there is a
rule, their defaults, or 0.5; clients of FedRed and Scaffnew communicate after a step with
probability 0.2. The grid's runs and the run that follows have the same seed, which is
not that of the short runs. The rule of the short runs was chosen on other problems of these six
kinds, before any of these was looked at.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import math
import time
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

import undrift as ud
from undrift.core.method import Method
from undrift.core.options import RunOptions, refuse
from undrift.core.params import AUTO, BadParameters, fits, hints, numeric, read
from undrift.core.problem import Problem, Unsupported
from undrift.methods import registry
from undrift.methods._shared import RandomCommunication
from undrift.models.net import seeded
from undrift.problems.named import build
from undrift.runs.prepare import Setup, resolve, resolved
from undrift.sweeps import auto
from undrift.sweeps.sweep import Sweep
from undrift.theory import has_rule

BELOW, ABOVE = 15, 9
"""Steps of the fine grid on both sides of the coarse one's best."""
EVERY = 4
"""Rounds from one look to the next."""
BAD = 10.0
"""A run of the grid ends when its loss is so many times the first."""
CLOSE = 1e-8
"""Of the first gap: a target that is close enough for anybody."""
WITHIN = 1.5
SEED = 1


def network() -> Problem:
    with seeded(0):
        net = nn.Sequential(nn.Flatten(), nn.Linear(64, 20), nn.ReLU(), nn.Linear(20, 10))
    digits = ud.data.load_images("digits")
    train = digits.images[960:1400], digits.labels[960:1400]
    return ud.Neural(net, train, ud.data.dirichlet(train[1], clients=9, beta=0.4))


def logistic() -> Problem:
    return build("logistic", clients=8, beta=0.5, l2=0.02)


@dataclasses.dataclass(frozen=True)
class Case:
    """A problem, and how methods are run on it."""

    words: str
    make: Callable[[], Problem]
    rounds: int
    options: dict[str, Any]
    noisy: bool = False


CASES = {
    "similar": Case(
        "quadratic, 12 clients, d = 5, L = 40, similar Hessians",
        lambda: build("quadratic", clients=12, dim=5, L=40.0, heterogeneity=0.15, seed=11),
        70,
        {"steps": 6},
    ),
    "dissimilar": Case(
        "quadratic, 7 clients, d = 7, L = 25, independent Hessians",
        lambda: build("quadratic", clients=7, dim=7, L=25.0, seed=13),
        90,
        {"steps": 5},
    ),
    "logistic": Case("breast cancer, 8 clients by Dirichlet(0.5)", logistic, 100, {"steps": 5}),
    "batches": Case("the same, batches of 10", logistic, 80, {"steps": 5, "batch": 10}, True),
    "some": Case(
        "softmax regression, 5 of 15 clients in a round",
        lambda: build(
            "softmax-synthetic", clients=15, features=7, classes=4, samples=14, l2=0.02, seed=9
        ),
        90,
        {"steps": 5, "cohort": 5},
        True,
    ),
    "network": Case(
        "64-20-10 perceptron on digits, 9 clients, batches of 12",
        network,
        60,
        {"steps": 5, "batch": 12},
        True,
    ),
}


def given(cls: type[Method], known: bool) -> dict[str, Any]:
    """A method's hyper-parameters, with the step left to short runs."""
    values: dict[str, Any] = {}
    for field in dataclasses.fields(cls):
        if field.name == cls.step_field:
            values[field.name] = AUTO
        elif field.name == "p" and issubclass(cls, RandomCommunication):
            values["p"] = 0.2  # theory's falls with the step, to a million local steps in a round
        elif known and has_rule(cls, field.name):
            values[field.name] = "theory"
        elif field.default is not dataclasses.MISSING:
            values[field.name] = field.default
        elif numeric(hint := hints(cls)[field.name]):
            values[field.name] = 0.5 if fits(0.5, hint) else 5
    return values


class Trial:
    """One method on one problem."""

    def __init__(self, name: str, cls: type[Method]):
        self.case = CASES[name]
        self.problem = self.case.make()
        self.method = cls(**given(cls, self.problem.constants.L is not None))
        self.setup = Setup(**read(RunOptions, self.case.options)[0])
        self.first = self.loss(self.problem.start())

    def refused(self) -> bool:
        reasons = refuse(self.method, self.setup, None, self.problem)
        return bool(reasons + self.method.refuse_problem(self.problem))

    def loss(self, x: torch.Tensor) -> float:
        row = self.problem.metrics(x.to(self.problem.dtype))
        return max(row.get("gap", row["loss"]), 1e-300)

    def at(self, step: float) -> Method | None:
        try:
            return resolve(auto.at(self.method, step), self.problem, self.setup)
        except BadParameters:
            return None

    def race(self, steps: list[float], rounds: int) -> tuple[np.ndarray, int]:
        """Logarithms of losses ``[T, rounds + 1]``, infinite where a run diverged; gradients."""
        methods = [(step, self.at(step)) for step in steps]
        usable = [t for t, (_, method) in enumerate(methods) if method is not None]
        found = np.full((len(steps), rounds + 1), math.inf)
        sweep = Sweep([methods[t][1] for t in usable], self.problem, seed=SEED, **self.case.options)
        found[usable, 0], alive = math.log(self.first), list(range(len(usable)))
        looks = [k for k in range(1, rounds + 1) if k % EVERY == 0 or k in (1, rounds)]
        before = 0
        for done in range(1, rounds + 1):
            sweep.run_round()
            alive = [t for t in alive if t not in sweep.failed]
            if done not in looks:
                continue
            for t in alive:
                value = self.loss(sweep.x(t))
                row = found[usable[t]]
                row[done] = math.log(value) if 0 < value < BAD * self.first else math.inf
                if math.isfinite(row[done]):
                    ends = [before, done]
                    row[before : done + 1] = np.interp(range(before, done + 1), ends, row[ends])
            kept = [t for t in alive if math.isfinite(found[usable[t], done])]
            if kept != alive:
                sweep.keep(alive := kept)
            before = done
        return found, sum(sweep.ledger(t).gradients for t in range(len(usable)))

    def smoothed(self, curves: np.ndarray) -> np.ndarray:
        if not self.case.noisy:
            return curves
        return np.stack(
            [curves[:, max(0, k - 5) : k + 1].mean(1) for k in range(curves.shape[1])], 1
        )


def grid(name: str, cls: type[Method]) -> dict[str, Any] | None:
    """What a fine grid finds; ``None`` where the method does not run."""
    trial = Trial(name, cls)
    if trial.refused():
        return None
    rounds, half = trial.case.rounds, trial.case.rounds // 2
    coarse = [2.0**k for k in range(-20, 21, 2)]
    curves, _ = trial.race(coarse, 4)
    sound = [k for k in range(len(coarse)) if curves[k, 4] < curves[k, 0] + 1]
    centre = coarse[max(sound, default=0)]
    while True:
        fine = [centre * 2 ** (k / 2) for k in range(-BELOW, ABOVE + 1)]
        curves, spent = trial.race(fine, rounds)
        curves = trial.smoothed(curves)
        best = int(curves[:, half].argmin())
        if best >= BELOW // 3 or not sound or centre <= coarse[0]:
            break
        centre = fine[best]
    target = max(curves[best, half], curves[0, 0] + math.log(CLOSE)) + 1e-9
    needed = [first(row, target) for row in curves]
    return {
        "problem": name,
        "method": cls.__name__,
        "target": target,
        "best": fine[int(np.argmin(needed))],
        "needed": max(min(needed), 1),
        "spent": spent,
        "left out": bool(target >= curves[best, 0] - 0.02),
    }


def first(curve: np.ndarray, target: float) -> float:
    """The round in which a target is reached."""
    hit = curve <= target
    return int(hit.argmax()) if hit.any() else math.inf


def short_runs(found: dict[str, Any]) -> dict[str, Any]:
    """What short runs find, beside what the grid has found."""
    if found["left out"]:
        return found
    cls = registry[found["method"]]
    trial = Trial(found["problem"], cls)
    rounds, options = trial.case.rounds, trial.case.options
    began = time.perf_counter()
    try:
        task = resolved(cls.__name__, trial.method, trial.problem, trial.setup, rounds, 1).settled
    except Unsupported:
        return found | {"ratio": math.inf, "status": "no step found"}
    seconds = time.perf_counter() - began
    run = ud.run(task.method, trial.problem, rounds=rounds, every=rounds, seed=SEED, **options)
    step = getattr(task.method, cls.step_field)
    step = step if cls.step_field in cls.step_sizes else 1 / step
    curves, _ = trial.race([step], rounds)
    return found | {
        "step": step,
        "ratio": first(trial.smoothed(curves)[0], found["target"]) / found["needed"],
        "gradients": task.spent / found["spent"],
        "runs": task.spent / run.history["gradients"][-1],
        "status": run.status,
        "seconds": seconds,
    }


def table(rows: list[dict[str, Any]], refused: int) -> Iterator[str]:
    """In Markdown: ratios by method and problem, then what all of them come to."""
    yield "| method | " + " | ".join(CASES) + " |\n|---" + "|---" * len(CASES) + "|"
    for name in sorted({row["method"] for row in rows}, key=str.casefold):
        mine = {row["problem"]: row for row in rows if row["method"] == name}
        ratios = [mine[case].get("ratio", math.nan) if case in mine else None for case in CASES]
        words = {"nan": "left out", "inf": "not reached"}
        cells = ["" if ratio is None else f"{ratio:.2f}" for ratio in ratios]
        yield f"| {name} | " + " | ".join(words.get(cell, cell) for cell in cells) + " |"
    tried = [row for row in rows if "ratio" in row]
    good = sum(row["ratio"] <= WITHIN for row in tried)
    shares = [row["gradients"] for row in tried if "gradients" in row]
    yield (
        f"\nwithin {WITHIN} times: {good} of {len(tried)} ({good / len(tried):.1%}); left out "
        f"{len(rows) - len(tried)}, refused {refused}; gradients of the grid's: mean "
        f"{np.mean(shares):.1%}, largest {max(shares):.1%}; of the run's: mean "
        f"{np.mean([row['runs'] for row in tried if 'runs' in row]):.2f}; "
        f"{dict(Counter(row['status'] for row in tried))}; short runs took "
        f"{sum(row.get('seconds', 0) for row in tried):.0f} s"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", nargs="*", default=sorted(registry), help="methods")
    parser.add_argument("--cases", nargs="*", default=[*CASES], help="problems")
    parser.add_argument("--share", default="1/1", help="the K-th of N parts of the work")
    parser.add_argument("--json", type=Path, help="where to keep what was found")
    parser.add_argument("--again", nargs="+", type=Path, help="short runs beside kept grids")
    parser.add_argument("--table", nargs="+", type=Path, help="show what was kept")
    args = parser.parse_args()
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    found: list[Any] = []
    for file in args.table or args.again or ():
        found += json.loads(file.read_text())
    if not args.table:
        part, parts = map(int, args.share.split("/"))
        work = found or [(case, name) for case in args.cases for name in args.only]
        found = []
        for one in work[part - 1 :: parts]:
            row = grid(one[0], registry[one[1]]) if isinstance(one, tuple) else one
            found.append(row and short_runs(row))
            print(json.dumps(found[-1]), flush=True)
            if args.json:
                args.json.write_text(json.dumps(found))
    rows = [row for row in found if row is not None]
    print(*table(rows, len(found) - len(rows)), sep="\n")


if __name__ == "__main__":
    main()
