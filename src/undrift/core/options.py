"""How local gradients and uploads are treated: declared once, for engines and for specs."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Literal

from undrift.core.cohort import Sampling
from undrift.core.faults import Fault, Judging
from undrift.core.method import Method
from undrift.core.optimisers import Optimiser
from undrift.core.params import (
    BadParameters,
    Count,
    NonNegative,
    Positive,
    Probability,
    Refusal,
)
from undrift.core.problem import Problem
from undrift.core.robust import Robust
from undrift.core.schedules import Schedule, twice
from undrift.core.struct import Vec

Scope = Literal["task", "whole", "reference"]
Weights = Literal["uniform", "samples"]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Treatment:
    """How local gradients are treated.

    Args:
        weight_decay: adds weight_decay * y to every local gradient.
        clip: largest norm of a gradient (over all its coordinates).
        clip_scope: task: the gradient of the loss is clipped, what a method adds to it is not;
            whole: all that a step of local SGD follows is clipped, but for weight decay, as in
            FedACG's code; reference: as whole, but of the proximal term w (y - x) of FedProx,
            FedDyn, FedSpeed and FedADMM the part -w x is clipped and w y is added after, as in
            their codes, so that a large w |x| pulls models to zero. Gradients outside such steps,
            and in methods that write their steps out, as FedRecu and FedRed do, are clipped as in
            task.
        decay: factor on lr after every round.
        schedule: what lr is multiplied by in each round, instead of decay: a table with a name and
            parameters.
        local: what takes the place of SGD in local steps: a name, or a table with its parameters;
            it begins anew in every round.
    """

    weight_decay: NonNegative = 0.0
    clip: Positive | None = None
    clip_scope: Scope = "task"
    decay: Probability = 1.0
    schedule: Schedule | None = dataclasses.field(default=None, repr=False)
    local: Optimiser | None = dataclasses.field(default=None, repr=False)

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
        scale: Vec = self.clip / v.norm(dim=-1, keepdim=True).clamp(min=self.clip)
        return scale


@dataclasses.dataclass(frozen=True, kw_only=True)
class LocalOptions(Treatment):
    """How gradients are treated (:class:`Treatment`) and uploads are weighed.

    Args:
        weights: uniform, or samples: clients count by their number of samples. The loss of
            a row does not follow: it is over test samples, or a mean in which clients count alike.
    """

    weights: Weights = "uniform"


@dataclasses.dataclass(frozen=True, kw_only=True)
class LocalWork(Treatment):
    """How much a client does in a round, and how its gradients are treated.

    Args:
        steps: local steps of a round: one number for all clients, or a list with one for each.
        epochs: passes over a client's samples, instead of steps.
    """

    steps: Count | list[Count] = 1
    epochs: Count | None = None


@dataclasses.dataclass(frozen=True, kw_only=True)
class RunOptions(LocalOptions, LocalWork):
    """How any method is run on any engine. Specs, engines and ``undrift.run`` share it.

    Args:
        cohort: clients that take part in a round: a number or a table; left out: all of them.
        batch: samples of a mini-batch; left out: all that a client has.
        accumulate: mini-batches that a local gradient is the mean of, one after another, so that
            memory is that of one; left out: 1.
        reduction: a robust one that takes the place of the mean of the uploads: a name, or a table
            with its parameters; left out: the mean.
        faults: what clients do wrong on purpose: tables, each with a kind.
        judge: whose work counts, and when a run gives up: a table.
    """

    cohort: Sampling | None = None
    batch: Count | None = None
    accumulate: Count | None = None
    reduction: Robust | None = None
    faults: list[Fault] | None = None
    judge: Judging | None = None

    @property
    def drawn(self) -> int | None:
        """Samples of a local gradient; ``None`` for all that a client has."""
        return together(self.batch, self.accumulate)


def together(batch: int | None, accumulate: int | None) -> int | None:
    """Samples of so many mini-batches; ``None`` for all that a client has."""
    return None if batch is None else batch * (accumulate or 1)


def fades(lr: object, options: Treatment, rounds: int, least: float) -> list[Refusal]:
    """Why lr cannot follow its decay or schedule for ``rounds`` rounds.

    ``least`` is the smallest number of full precision, which lr must not be below.
    """
    schedule, decay = options.schedule, options.decay
    field, cause, use = "decay", f"decay = {decay:g}", "a larger decay"
    try:
        factor = decay ** (rounds - 1) if schedule is None else schedule.least(rounds)
    except BadParameters as error:
        return [Refusal(*problem) for problem in error.problems.items()]
    if not isinstance(lr, (int, float)) or factor >= 1 or lr * factor >= least:
        return []
    if schedule is not None:
        field, cause, use = "schedule", f"the schedule {schedule.name}", "another"
    text = (
        f"{cause} takes lr = {lr:g} below {least:.3g}, the least number that is stored in full "
        f"precision, before round {rounds}: use {use} or fewer rounds"
    )
    return [Refusal(field, text)]


def refuse_training(method: Method, options: Treatment) -> list[Refusal]:
    """Why a method cannot train like that."""
    reasons = method.refuse_decay(options.decay) + method.refuse_schedule(options.schedule)
    reasons += twice(options.decay, options.schedule) + method.refuse_local(options.local)
    return reasons + ([] if options.local is None else options.local.refuse(options.weight_decay))


def refuse_samples(problem: Problem, weights: str, batch: int | None) -> list[Refusal]:
    """Why a run on ``problem`` cannot count by samples, or draw mini-batches of them."""
    reasons = []
    if weights == "samples" and problem.pooled:
        text = 'f is the mean over all samples already: leave out weights = "samples"'
        reasons.append(Refusal("weights", text))
    if batch is not None and not problem.sampled:
        text = f"this {type(problem).__name__} has no samples to draw mini-batches from: leave out "
        reasons.append(Refusal("batch", f"{text}batch and epochs, or give it noise"))
    return reasons


def unsplit(accumulate: object, batch: object) -> str | None:
    """What is wrong with gradients that ``accumulate`` over mini-batches of ``batch`` samples."""
    if accumulate is None or batch is not None:
        return None
    return "accumulate needs mini-batches, whose number it is: add batch, their size"


def pace(steps: bool, epochs: bool, batch: object) -> str | None:
    """What is wrong with local work counted in ``steps`` or ``epochs``, given or not."""
    if epochs and steps:
        return "give steps or epochs, not both"
    if epochs and batch is None:
        return "epochs need mini-batches: add batch, or give steps instead of epochs"
    return None


def local_steps(
    steps: int | Sequence[int], epochs: int | None, batch: int | None, samples: Sequence[int]
) -> list[int]:
    """Local steps of each client in a round; ``samples`` are their numbers of samples.

    >>> local_steps(1, 2, 16, [16, 17])
    [2, 4]
    """
    if epochs is not None and batch is not None:
        return [epochs * -(-count // batch) for count in samples]
    return [steps] * len(samples) if isinstance(steps, int) else list(steps)
