"""A run that diverges is stopped at most two rounds late, and theory's number works.

    python -m tests.faults.divergence

FedAvg with a step that is too long on five problems, with a row after every round, every 7 and
every 1000 rounds; the first says when the gradient or the loss passes its limit. Then methods
on quadratics, least squares, logistic and softmax regression: with what theory suggests the loss
must fall over 20 rounds.
"""

from __future__ import annotations

import dataclasses
import sys
from itertools import product

import torch

import undrift as ud
from tests.faults.tally import Tally, arguments
from tests.runs.test_advice import BUILT, PROBLEMS, task
from tests.runs.test_divergence import CASES, ended
from undrift.runs.advice import prescribed
from undrift.runs.trial import Trial

LATE = 2
METHODS = {
    "FedAvg": lambda step: ud.FedAvg(lr=step),
    "Scaffold": lambda step: ud.Scaffold(lr=step),
    "FedLin": lambda step: ud.FedLin(lr=step),
    "FedRed": lambda step: ud.FedRed(eta=1 / step, lam=0.1 / step, p=0.2),
}
"""Methods whose step theory prescribes."""


def seen(names: list[str]) -> tuple[Tally, int]:
    """Every problem and interval, and by how many rounds the latest was late."""
    torch.set_num_threads(1)
    tally, most = Tally("divergence", f"seen at most {LATE} rounds late, a number that works"), 0
    for name in names:
        _, first = ended(name, 1)
        for every in (1, 7, 1000):
            status, round = ended(name, every)
            late = round - first
            most = max(most, late)
            problem = None
            if status != "diverged":
                problem = f"it ended as {status}"
            elif not 0 <= late <= LATE:
                problem = f"{late} rounds late"
            tally.add(f"{name}, every = {every}", problem)
    return tally, most


def tamed(tally: Tally, problems: list[str], methods: list[str]) -> None:
    """Every problem and method with a step too long, and again with what is suggested."""
    for name, method in product(problems, methods):
        bad, problem = METHODS[method](PROBLEMS[name][1]), BUILT[name]
        outcome = Trial(task(bad, problem), 0, 0).run().outcome
        text, suggested = None, prescribed(task(bad, problem))
        if not suggested:
            text = f"it ended as {outcome.status}, and suggests nothing"
        else:
            run = ud.run(dataclasses.replace(bad, **suggested), problem, rounds=20, steps=5)
            losses = run.history["loss"]
            if run.status != "done" or not losses[-1] < losses[0]:
                text = f"with {suggested} it ended as {run.status}"
        tally.add(f"{name}, {method}", text)


def main() -> int:
    arguments(__doc__)
    tally, most = seen([*CASES])
    print(f"  the latest was {most} rounds late")
    tamed(tally, [name for name in PROBLEMS if name != "images"], [*METHODS])
    return tally.report()


if __name__ == "__main__":
    sys.exit(main())
