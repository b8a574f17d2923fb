"""Any loss of outputs and targets as a local loss, tried on a few samples before it is used."""

from __future__ import annotations

import copy
import functools
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from undrift.core.params import BadParameters
from undrift.data.files import brief
from undrift.objectives.base import Batch, Need, Network, Objective, Others
from undrift.problems.neural.data import Fields, Output, count, mapped, shown

Loss = Callable[[Output, Fields], Tensor]
"""Of a network's outputs and the targets of a mini-batch: one number."""
COMPARING = (
    F.mse_loss,
    nn.MSELoss,
    F.l1_loss,
    nn.L1Loss,
    F.smooth_l1_loss,
    nn.SmoothL1Loss,
    F.huber_loss,
    nn.HuberLoss,
    F.binary_cross_entropy_with_logits,
    nn.BCEWithLogitsLoss,
    F.binary_cross_entropy,
    nn.BCELoss,
)
"""Losses that compare each output with a number: means of as many terms for every sample."""
ANSWERS = COMPARING[-4:]
"""Those of yes and no; the last two take probabilities, the others logits."""
OF_CLASSES = (F.cross_entropy, nn.CrossEntropyLoss, F.nll_loss, nn.NLLLoss)
"""Losses of classes, whose mean is by the weights of the targets that count."""
IGNORED = -100
"""A target that cross-entropy leaves out unless told otherwise."""


class TargetWeights(NamedTuple):
    """How much targets count in a mean of a loss of classes, under torch's names."""

    weight: Tensor | None = None
    ignore_index: int = IGNORED

    def counts(self, targets: Tensor) -> Tensor:
        """Of each sample: the weights of its targets that are not ignored."""
        kept = targets != self.ignore_index
        known = targets.where(kept, 0).long()
        each = kept if self.weight is None else self.weight[known] * kept
        return each.double().reshape(len(targets), -1).sum(1)


class Totals(NamedTuple):
    """For each sample a sum, and how much it is a sum of: a mean divides one total by the other."""

    sums: Tensor
    counts: Tensor


class OwnLoss:
    """``function(outputs, targets)`` of a mini-batch.

    Where it is known to be the mean of a number for each sample, ``each`` gives those numbers, and
    rows that are only padding have no weight. Otherwise it may compare samples with one another,
    and must be given a client's own rows ``alone``. Of a loss that leaves out targets or weighs
    classes, the mean over several mini-batches is by ``counted``.
    """

    needs: tuple[Need, ...] = ()

    def __init__(self, function: Loss, each: Loss | None, counted: TargetWeights | None = None):
        self.function, self.each, self.alone = function, each, each is None
        self.counted = counted

    def loss(self, local: Network, batch: Batch, others: Others) -> Tensor:
        if self.each is None:
            return self.function(local(batch.x), batch.labels)
        return (batch.weights * sample_means(self.each(local(batch.x), batch.labels))).sum()

    def slope(self, outputs: Tensor, targets: Fields, weights: Tensor) -> Tensor:
        """The derivative of each client's loss in its outputs ``[C, n, ...]``."""
        # Only the loss is differentiated here; the layers before it have their own formula, which
        # is what makes a plain MLP fast.
        with torch.enable_grad():
            leaf = outputs.detach().requires_grad_()
            if self.each is None:
                losses = [self._of_client(c, leaf, targets, weights) for c in range(len(leaf))]
                return torch.autograd.grad(losses, leaf)[0]
            joined = mapped(lambda v: v.flatten(0, 1), targets)
            means = sample_means(self.each(leaf.flatten(0, 1), joined))
            return torch.autograd.grad((weights.flatten() * means).sum(), leaf)[0]

    def _of_client(self, c: int, outputs: Tensor, targets: Fields, weights: Tensor) -> Tensor:
        """Without the samples that have no weight."""
        kept = weights[c] > 0
        return self.function(outputs[c][kept], mapped(lambda v: v[c][kept], targets))

    def values(self, outputs: Output, targets: Fields) -> Tensor | Totals:
        """A number for each sample; where there is only one for all of them, that one."""
        if self.counted is not None and isinstance(targets, Tensor):
            values = _each(self.function)(outputs, targets)
            sums = values.double().reshape(len(targets), -1).sum(1)
            return Totals(sums, self.counted.counts(targets))
        if self.each is None:
            with about_loss(self.function, outputs, targets):
                value = self.function(outputs, targets)
                refuse_value(called(self.function), value)
                return value.expand(count(targets))
        return sample_means(self.each(outputs, targets))

    def to(self, dtype: torch.dtype, device: torch.device) -> OwnLoss:
        """With tensors of a module or ``partial``, such as weights of classes, in that place."""
        function, each = (_placed(f, dtype, device) for f in (self.function, self.each))
        counted = None if self.counted is None else target_weights(function)
        return OwnLoss(function, each, counted)  # type: ignore[arg-type]


LocalLoss = Objective | OwnLoss
"""What gradients are of."""


def called(function: object) -> str:
    """The name of a function, or of a module's class."""
    plain = function.func if isinstance(function, functools.partial) else function
    return str(getattr(plain, "__name__", type(plain).__name__))


@contextmanager
def about_loss(function: object, outputs: Output, targets: Fields) -> Iterator[None]:
    """Whatever a user's loss of these fails with is wrong with ``loss``."""
    try:
        yield
    except torch.OutOfMemoryError:
        raise
    except Exception as error:
        text = (
            f"{called(function)} is called as loss(outputs, targets) and gives no number, or none "
            "that can be differentiated by the network's weights, for "
            f"{shown(outputs)} and {shown(targets)}: {brief(error)}"
        )
        raise BadParameters("Neural", {"loss": text}) from error


def own_loss(function: Loss, everything: Sequence[Fields]) -> OwnLoss:
    """A user's loss, after a look at the targets of all samples."""
    # By what torch's own losses are known to do: whether any other function is a mean of a number
    # for each sample cannot be found out by calling it.
    if comparing(function) is not None or alike(function, everything):
        return OwnLoss(function, _each(function))
    classes = isinstance(everything[0], Tensor) and not everything[0].is_floating_point()
    return OwnLoss(function, None, target_weights(function) if classes else None)


def settings_of(function: object) -> dict[str, Any]:
    """What was set of the arguments of a loss of torch's, under their names."""
    if isinstance(function, functools.partial):
        return function.keywords
    names = ("reduction", "weight", "ignore_index", "label_smoothing")
    return {name: getattr(function, name) for name in names if hasattr(function, name)}


def _kind(function: object) -> object:
    """The function or class of torch's that a mean is taken of; ``None`` if no mean is."""
    kind: object = type(function) if isinstance(function, nn.Module) else function
    if isinstance(function, functools.partial):
        kind = None if function.args else function.func
    return kind if settings_of(function).get("reduction", "mean") == "mean" else None


def refuse_value(name: str, value: object) -> None:
    """Refuse what a loss returns unless that is one number."""
    if not isinstance(value, Tensor) or value.dim() or value.is_complex():
        raise ValueError(
            f"{name} must return one real number as a tensor, the mean over the samples; got "
            f"{list(value.shape) if isinstance(value, Tensor) else type(value).__name__}"
        )


def comparing(function: object) -> object:
    """Which of the losses in ``COMPARING`` it is, every term counting alike; ``None`` if none."""
    alike = settings_of(function).get("weight") is None
    return kind if alike and (kind := _kind(function)) in COMPARING else None


def _each(function: Any) -> Loss:
    """The same loss of each sample, before their mean is taken."""
    if not isinstance(function, nn.Module):
        return functools.partial(function, reduction="none")
    twin: Any = copy.deepcopy(function)
    twin.reduction = "none"
    return twin  # type: ignore[no-any-return]


def sample_means(values: Tensor) -> Tensor:
    """One number for each sample."""
    return values.flatten(1).mean(1) if values.dim() > 1 else values


def target_weights(function: object) -> TargetWeights | None:
    """Those of torch's losses of classes."""
    if _kind(function) not in OF_CLASSES:
        return None
    settings = settings_of(function)
    return TargetWeights(settings.get("weight"), settings.get("ignore_index", IGNORED))


def alike(function: object, everything: Sequence[Fields]) -> bool:
    """Whether it is a mean of cross-entropies over as many positions of each of these samples."""
    counted = target_weights(function) if _kind(function) in OF_CLASSES[:2] else None
    if counted is None or counted.weight is not None:
        return False
    return all(
        isinstance(targets, Tensor)
        and (targets.is_floating_point() or not bool((targets == counted.ignore_index).any()))
        for targets in everything
    )


def _placed(function: object, dtype: torch.dtype, device: torch.device) -> object:
    if isinstance(function, nn.Module):
        return copy.deepcopy(function).to(device, dtype)
    if isinstance(function, functools.partial):
        moved = {
            name: v.to(device, dtype if v.is_floating_point() else v.dtype)
            for name, v in function.keywords.items()
            if isinstance(v, Tensor)
        }
        return functools.partial(function, **moved) if moved else function
    return function
