"""What an item will take, told before it is started. Needs no torch."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence

from undrift.data.cards import CARDS
from undrift.methods._shared import RandomCommunication
from undrift.problems.named import Images
from undrift.reproduce import rates
from undrift.reproduce.cache import Want
from undrift.reproduce.items import Item, Panel
from undrift.reproduce.perform import Options, wants

SAMPLE = {
    "linear": (2e-6, 1e-7),
    "mlp": (1e-5, 2e-7),
    "cnn-small": (1e-4, 5e-7),
    "cnn": (3e-4, 1e-6),
    "cnn-paper": (5e-4, 2e-6),
    "resnet18": (4e-3, 1e-5),
    "resnet18-3x3": (3e-2, 4e-5),
}
"""Seconds per sample and gradient, on two cores and on an H200 in bf16."""
STEP = (1e-3, 1e-3)
"""Seconds per local step beside its samples, on both."""
PLAIN, RUN = 1e-4, 0.3
"""Seconds per local step of a convex problem, and per run."""
TABLES = {"a9a": 1.6e-3, "w8a": 6e-3, "mushrooms": 4e-4, "phishing": 3e-4}
"""Seconds per gradient on a table."""
EXTRA = {"FedMLB": 4.0, "MOON": 2.0, "FedNTD": 1.4}
"""Work of a local loss, in gradients of the plain one."""


@dataclasses.dataclass(frozen=True)
class Cost:
    """Runs, and seconds for all of them."""

    runs: int
    cpu: float
    gpu: float


def cost(item: Item, panels: Sequence[Panel], options: Options) -> Cost:
    """Of the panels of an item, nothing being there yet."""
    if not item.runs:
        return Cost(0, rates.SECONDS, 0.0) if item.study else Cost(0, 0.0, 0.0)
    wanted = {want.key: want for panel in panels for want in wants(item, panel, options)}
    both = [seconds(want) for want in wanted.values()]
    return Cost(len(both), sum(cpu for cpu, _ in both), sum(gpu for _, gpu in both))


def seconds(want: Want) -> tuple[float, float]:
    """Of one run, on two cores and on a GPU."""
    spec, entry, problem = want.spec, want.entry, want.spec.problem
    clients = getattr(problem, "clients", 10)
    taking_part = spec.cohort.size if spec.cohort else clients
    steps = entry.steps if isinstance(entry.steps, int) else max(entry.steps)
    if not isinstance(problem, Images):
        local = 1 / entry.method.p if isinstance(entry.method, RandomCommunication) else steps
        return (
            RUN + (PLAIN + TABLES.get(getattr(problem, "data", ""), 0.0)) * local * want.rounds,
        ) * 2
    card = CARDS.get(problem.data)
    train = problem.train or (sum(card.train) if card else 50_000)
    test = problem.test or (sum(card.test) if card else 10_000)
    batch = min(spec.batch or math.inf, train / clients)
    if entry.epochs:
        steps = entry.epochs * math.ceil(train / clients / batch)
    gradients = 1.0 + getattr(entry.method, "perturb", False) * 1.0
    gradients *= EXTRA.get(type(entry.objective).__name__, 1.0)
    size = math.prod(card.shape) / 3072 if card else 1.0
    rows = want.rounds / spec.every

    def together(step: float, sample: float) -> float:
        training = want.rounds * gradients * steps * (step + taking_part * batch * sample * size)
        return training + rows * test * sample * size / 3

    cpu, gpu = map(together, STEP, SAMPLE[problem.model])
    return cpu, gpu
