"""How local gradients and uploads are treated: declared once, for engines and for specs."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Literal

from undrift.core.aggregation import MEAN, Aggregation
from undrift.core.cohort import Sampling
from undrift.core.faults import Fault, Judging
from undrift.core.method import Method
from undrift.core.optimisers import Optimiser
from undrift.core.params import (
    BadParameters,
    Count,
    NonNegative,
    Positive,
    Record,
    Refusal,
    Rule,
)
from undrift.core.problem import Problem
from undrift.core.schedules import Schedule
from undrift.core.struct import Vec, length

Scope = Literal["task", "whole", "reference"]
OF_RUNS = ("steps", "batch", "cohort")
"""Numbers of a run that a method may be tried with several of, as of its hyper-parameters."""
StepsOfEach = Annotated[list[Count], Rule("list of whole number >= 1, one for each client", len)]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Training(Record):
    """How clients make their local gradients, and what they do with them.

    Args:
        optimiser: what takes the place of SGD in local steps: a name, or a table with its
            parameters; it begins anew in every round.
        weight_decay: adds weight_decay * y to every local gradient.
        clip: largest norm of a gradient (over all its coordinates).
        clip_scope: task: the gradient of the loss is clipped, what a method adds to it is not;
            whole: all that a step of local SGD follows is clipped, but for weight decay, as in
            FedACG's code; reference: as whole, but of the proximal term w (y - x) of FedProx,
            FedDyn, FedSpeed and FedADMM the part -w x is clipped and w y is added after, as in
            their codes, so that a large w |x| pulls models to zero. Gradients outside such steps,
            and in methods that write their steps out, as FedRecu and FedRed do, are clipped as in
            task. Except in task, FedCM and ScaffoldM mix gradient and momentum first and then add
            weight decay, which so counts 1/alpha and 1/beta times.
        accumulate: mini-batches that a local gradient is the mean of, one after another, so that
            memory is that of one.
    """

    owner = "training"

    optimiser: Optimiser | None = None
    weight_decay: NonNegative = 0.0
    clip: Positive | None = None
    clip_scope: Scope = "task"
    accumulate: Count = 1

    @property
    def plain(self) -> bool:
        """Whether gradients are used as they come."""
        return not self.weight_decay and self.clip is None

    def treated(self, y: Vec, g: Vec) -> Vec:
        """The gradient a method sees: clipped, then with weight decay."""
        if self.clip is None:
            return g.add(y, alpha=self.weight_decay) if self.weight_decay else g
        clipped = g * self.scale(g)
        return clipped.add_(y, alpha=self.weight_decay) if self.weight_decay else clipped

    def scale(self, v: Vec) -> Vec:
        """What clipping multiplies each row by."""
        if self.clip is None:
            raise ValueError("gradients are not clipped")
        scale: Vec = self.clip / length(v).clamp(min=self.clip)
        return scale


PLAIN = Training()
"""Gradients as they come."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class RunOptions:
    """How any method is run on any engine. Specs, engines and ``undrift.run`` share it.

    Args:
        steps: local steps of a round: one number for all clients, or a list with one for each.
        epochs: passes over a client's samples, instead of steps.
        cohort: clients that take part in a round: a number or a table; left out: all of them.
        batch: samples of a mini-batch; left out: all that a client has.
        schedule: what lr is multiplied by in each round: a number, by which it falls after every
            round, or a table with a name and parameters; left out: 1.
        training: how clients make their local gradients: a table.
        aggregation: what the server makes of the uploads: a name, or a table with its parameters;
            left out: their mean.
        faults: what clients do wrong on purpose: tables, each with a kind.
        judge: whose work counts, and when a run gives up: a table.
    """

    steps: Count | StepsOfEach = 1
    epochs: Count | None = None
    cohort: Sampling | None = None
    batch: Count | None = None
    schedule: Schedule | None = None
    training: Training = PLAIN
    aggregation: Aggregation = MEAN
    faults: list[Fault] | None = None
    judge: Judging | None = None

    @property
    def drawn(self) -> int | None:
        """Samples of a local gradient; ``None`` for all that a client has."""
        return None if self.batch is None else self.batch * self.training.accumulate

    def local_steps(self, samples: Sequence[int]) -> list[int]:
        """Local steps of each client in a round; ``samples`` are their numbers of samples.

        >>> RunOptions(epochs=2, batch=16).local_steps([16, 17])
        [2, 4]
        """
        if self.epochs is not None and self.drawn is not None:
            return [self.epochs * -(-count // self.drawn) for count in samples]
        steps = self.steps
        return [steps] * len(samples) if isinstance(steps, int) else list(steps)


def refuse(
    method: Method,
    options: RunOptions,
    clients: int | None,
    problem: Problem | None = None,
    rounds: int | None = None,
) -> Iterator[Refusal]:
    """Why a method cannot run with these options, as far as problem and rounds are known.

    Every way to a run asks this: the reader of specs with the number of clients at most, engines
    with a problem, experiments with all.
    """
    training = options.training
    if options.schedule is not None:
        yield from method.refuse_schedule(options.schedule)
    if training.optimiser is not None:
        yield from method.refuse_optimiser(training.optimiser)
        yield from training.optimiser.refuse(training.weight_decay)
    for name in ("weight_decay", "clip"):
        if method.minimising() and getattr(training, name):
            text = f"{type(method).__name__} minimises exactly, not by gradients: leave out {name}"
            yield Refusal(f"training.{name}", text)
    steps: int | list[int] = options.steps if options.epochs is None else 1
    if problem is not None:
        clients, steps = problem.clients, options.local_steps(problem.samples)
        if options.aggregation.by_samples and problem.pooled:
            text = "f is the mean over all samples already: leave out the aggregation's weights"
            yield Refusal("aggregation", text)
        if options.batch is not None and not problem.sampled:
            text = f"this {type(problem).__name__} has no samples to draw mini-batches from: leave "
            yield Refusal("batch", f"{text}out batch and epochs, or give it noise")
        if training.accumulate > 1 and options.batch is None:
            text = "accumulate counts mini-batches: add batch, their size"
            yield Refusal("training.accumulate", text)
    if options.schedule is not None and problem is not None and rounds is not None:
        yield from _fades(method, options.schedule, problem, rounds)
    if clients is not None:
        cohort = options.cohort or Sampling(clients)
        yield from method.refuse(clients, cohort, steps, options.aggregation)
        for i, fault in enumerate(options.faults or []):
            for field, text in fault.refuse(clients, labelled=problem is None or problem.labelled):
                yield Refusal(f"faults.{i}.{field}", text)


def conflicts(given: Mapping[str, object], batch: object) -> dict[str, str]:
    """Setting -> why it does not go with the others of a table; ``batch`` may be from another."""
    wrong = {}
    if given.get("epochs") is not None and given.get("steps", 1) != 1:
        wrong["epochs"] = "give steps or epochs, not both"
    elif given.get("epochs") is not None and batch is None:
        wrong["epochs"] = "epochs need mini-batches: add batch, or give steps instead of epochs"
    return wrong


def _fades(method: Method, schedule: Schedule, problem: Problem, rounds: int) -> list[Refusal]:
    """Why lr cannot follow its schedule: it must stay a number of full precision."""
    import torch

    lr, least = getattr(method, "lr", None), torch.finfo(problem.dtype).tiny
    try:
        factor = schedule.least(rounds)
    except BadParameters as error:
        return [Refusal(at, f"{why}: use another schedule") for at, why in error.problems.items()]
    if not isinstance(lr, (int, float)) or factor >= 1 or lr * factor >= least:
        return []
    text = (
        f"the schedule {schedule.name} takes lr = {lr:g} below {least:.3g}, the least number that "
        f"is stored in full precision, before round {rounds}: use another or fewer rounds"
    )
    return [Refusal("schedule", text)]
