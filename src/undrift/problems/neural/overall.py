"""Metrics of all outputs at once, which are no means over samples: F1, AUC and the user's own."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Mapping

import torch
from torch import Tensor
from torch.nn import functional as F
from torch.utils._pytree import tree_leaves

from undrift.core.params import BadParameters
from undrift.data.files import brief
from undrift.problems.neural.data import Fields, Output, shown


@dataclasses.dataclass(frozen=True)
class Overall:
    """A metric that sees all outputs and targets at once, and gives one number.

    ``function`` is called as function(outputs, targets) with tensors on the CPU, once for every
    row. Where an output is not finite the number is NaN.
    """

    function: Callable[..., float]

    def of(self, name: str, outputs: Output, targets: Fields) -> float:
        """The number, under the name of the metric."""
        numbers = [v for v in tree_leaves(outputs) if isinstance(v, Tensor)]
        if not all(bool(v.isfinite().all()) for v in numbers):
            return math.nan
        try:
            return float(self.function(outputs, targets))
        except Exception as error:  # a user's function may fail in any way
            text = (
                f"the metric {name} is called once as metric(outputs, targets) and gives no number "
                f"for {shown(outputs)} and {shown(targets)}: {brief(error)}"
            )
            raise BadParameters("Neural", {"metrics": text}) from error


Answers = tuple[Tensor, Tensor, Tensor]
"""Scores, what was said and what is true, ``[n, K]``: for every class, or several questions."""


def answers(outputs: Output, targets: Fields, limit: float, ignored: int | None) -> Answers:
    """What a network answers. Of two classes the second one is yes."""
    if not isinstance(outputs, Tensor) or not isinstance(targets, Tensor):
        raise ValueError("it takes one tensor of outputs and one of targets")
    whole = bool(((targets == 0) | (targets == 1)).all())
    if targets.is_floating_point() and outputs.shape == targets.shape and whole:
        scores = outputs.double().reshape(len(outputs), -1)
        return scores, scores > limit, targets.reshape(scores.shape) > 0.5
    if targets.is_floating_point() or targets.dim() != 1 or outputs.dim() != 2:
        raise ValueError(
            "it takes targets that are classes [n] with outputs [n, classes], or answers of 0 and "
            "1 in the shape of the outputs"
        )
    kept = torch.ones_like(targets, dtype=torch.bool) if ignored is None else targets != ignored
    logits, labels = outputs[kept].double(), targets[kept]
    if logits.shape[1] == 2:
        # Not by probabilities: those of 1 and of 1 - 1e-20 are the same number.
        scores = logits[:, 1:] - logits[:, :1]
        return scores, scores > 0, labels.unsqueeze(1) == 1
    classes = torch.arange(logits.shape[1])
    said, true = (v.unsqueeze(1) == classes for v in (logits.argmax(1), labels))
    return F.log_softmax(logits, 1), said, true


def f1(outputs: Output, targets: Fields, limit: float = 0.0, ignored: int | None = None) -> float:
    """The harmonic mean of precision and recall: of the second of two classes, else the mean over
    the classes, but for those that neither occur nor are answered.
    """
    _, said, true = answers(outputs, targets, limit, ignored)
    both = 2 * (said & true).sum(0).double()
    return float((both / (said.sum(0) + true.sum(0))).nanmean())


def balanced_accuracy(
    outputs: Output, targets: Fields, limit: float = 0.0, ignored: int | None = None
) -> float:
    """The mean over the classes that occur of the share of each that is answered right."""
    _, said, true = answers(outputs, targets, limit, ignored)
    rates = [(said & true).sum(0).double() / true.sum(0)]
    if getattr(targets, "ndim", 1) > 1 or true.shape[1] == 1:  # questions: two classes are one
        rates.append((~said & ~true).sum(0).double() / (~true).sum(0))
    return float(torch.stack(rates).nanmean())


def auc(outputs: Output, targets: Fields, limit: float = 0.0, ignored: int | None = None) -> float:
    """The area under the ROC curve: of the second of two classes, else the mean over the classes
    that occur, each against the rest.
    """
    scores, _, true = answers(outputs, targets, limit, ignored)
    return float(torch.stack([_area(*pair) for pair in zip(scores.T, true.T)]).nanmean())  # noqa: B905


def _area(scores: Tensor, true: Tensor) -> Tensor:
    """How often a yes has a larger score than a no, by ranks; equal ones count half."""
    which, sizes = torch.unique(scores, return_inverse=True, return_counts=True)[1:]
    ranks: Tensor = sizes.cumsum(0) - (sizes.double() - 1) / 2
    yes = true.sum().double()
    return (ranks[which][true].sum() - yes * (yes + 1) / 2) / (yes * (~true).sum())


OVERALL: Mapping[str, Overall] = {
    "f1": Overall(f1),
    "auc": Overall(auc),
    "balanced_accuracy": Overall(balanced_accuracy),
}
