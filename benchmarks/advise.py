"""Is the method that ``undrift advise`` puts first among the best two of a whole comparison?

    python -m benchmarks.advise [NAME ...]

Four problems: similar clients, dissimilar ones, few of many in a round, a network. The comparison
tunes every method that can run over thirteen steps by factors of two around 1/L (network: 1/16),
all with all rounds of its budget, with other seeds than advise.
"""

from __future__ import annotations

import sys
import time
from functools import partial
from typing import Any

from undrift.spec.errors import Origin
from undrift.spec.reader import Reader
from undrift.spec.schema import Spec
from undrift.tuning import advise as advising
from undrift.tuning.recipes import by_step
from undrift.tuning.tune import contest_of

LOGISTIC = {"name": "logistic", "l2": 0.02, "seed": 1}
PROBLEMS: dict[str, dict[str, Any]] = {
    "similar clients": {
        "problem": {**LOGISTIC, "clients": 10, "partition": "iid"},
        "rounds": 200,
        "target": 1e-8,
    },
    "dissimilar clients": {
        "problem": {**LOGISTIC, "clients": 10, "partition": "by-label", "shards": 1},
        "rounds": 200,
        "target": 1e-8,
    },
    "5 of 20 clients in a round": {
        "problem": {**LOGISTIC, "clients": 20, "beta": 0.3},
        "rounds": 200,
        "cohort": 5,
        "target": 1e-5,
    },
    "a network": {
        "problem": {"name": "images", "data": "digits", "model": "mlp", "clients": 20, "beta": 0.1},
        "rounds": 60,
        "cohort": 5,
        "batch": 16,
        "target_accuracy": 0.9,
    },
}
STEPS = tuple(2.0**k for k in range(-6, 7))


def spec(name: str, seeds: list[int]) -> Spec:
    document = {
        "name": "benchmark",
        "steps": 10,
        "method": [{"name": "FedAvg", "lr": 0.1}],
        "tune": {"seed": seeds},
        **PROBLEMS[name],
    }
    return Reader(document, Origin(name), tune=True).spec()


def whole(name: str, able: list[str]) -> list[str]:
    """The methods from the best to the worst, each with all steps and its whole budget."""
    contest = contest_of(spec(name, [2_000_000, 2_000_001]))
    task = contest.tasks[0]
    smooth = task.problem.cheap_constants.L
    first = 1 / smooth if smooth else advising.FIRST
    found = {}
    for method in able:
        make = partial(_made, method, task.problem.dim, smooth is not None)
        steps = [first * factor for factor in STEPS]
        found[method] = advising.enter(make, steps, contest, 1.0, "vectors")
    return sorted(found, key=lambda method: found[method].badness("vectors"))


def _made(method: str, dim: int, convex: bool, step: float) -> Any:
    return by_step(method, step, 10, dim, convex)


def main() -> None:
    good = 0
    names = sys.argv[1:] or [*PROBLEMS]
    for name in names:
        began = time.perf_counter()
        advice = advising.advise(spec(name, [1_000_000]))
        raced = time.perf_counter() - began
        best = whole(name, [*advice.entrants])
        first = next(iter(advice.entrants))
        place = best.index(first) + 1
        good += place <= 2
        compared = time.perf_counter() - began - raced
        print(
            f"{name}: advised {first}, number {place} of {len(best)} ({', '.join(best[:4])}); "
            f"{raced:.0f} s against {compared:.0f} s",
            flush=True,
        )
    print(f"{good} of {len(names)}")


if __name__ == "__main__":
    main()
