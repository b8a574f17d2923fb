"""Any loss of outputs and targets as a local loss, tried on a few samples before it is used."""

from __future__ import annotations

import copy
import functools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from undrift.core.params import about
from undrift.objectives.base import Batch, Need, Network, Objective, Others
from undrift.problems.neural.data import Fields, Output, count, mapped

Loss = Callable[[Output, Fields], Tensor]
"""Of a network's outputs and the targets of a mini-batch: one number."""
COMPARING = {
    F.mse_loss: nn.MSELoss,
    F.l1_loss: nn.L1Loss,
    F.smooth_l1_loss: nn.SmoothL1Loss,
    F.huber_loss: nn.HuberLoss,
    F.binary_cross_entropy_with_logits: nn.BCEWithLogitsLoss,
    F.binary_cross_entropy: nn.BCELoss,
}
"""Losses that compare each output with a number: means of as many terms for every sample."""
PROBABILITIES = (nn.BCEWithLogitsLoss, nn.BCELoss)
IGNORED = -100
"""A target that cross-entropy leaves out unless told otherwise."""


class CrossEntropySettings(NamedTuple):
    """Of torch's cross-entropy, under its names."""

    weight: Tensor | None = None
    ignore_index: int = IGNORED
    label_smoothing: float = 0.0


class Totals(NamedTuple):
    """For each sample a sum, and how much it is a sum of: a mean divides one total by the other."""

    sums: Tensor
    counts: Tensor


class OwnLoss:
    """``function(outputs, targets)`` of a mini-batch.

    Where it is known to be the mean of a number for each sample, ``each`` gives those numbers, and
    rows that are only padding have no weight. Otherwise it may compare samples with one another,
    and must be given a client's own rows ``alone``. Cross-entropy that leaves out targets or weighs
    classes is ``counted``: its mean over many samples is taken of sums and counts.
    """

    needs: tuple[Need, ...] = ()

    def __init__(self, function: Loss, each: Loss | None, counted: bool = False):
        self.function, self.each, self.alone = function, each, each is None
        self.counted, self.settings = counted, settings_of(function) if counted else None

    def loss(self, local: Network, batch: Batch, others: Others) -> Tensor:
        if self.each is None:
            return self.function(local(batch.x), batch.labels)
        return (batch.weights * _means(self.each(local(batch.x), batch.labels))).sum()

    def slope(self, outputs: Tensor, targets: Fields, weights: Tensor) -> Tensor:
        """The derivative of each client's loss in its outputs ``[C, n, ...]``."""
        with torch.enable_grad():
            leaf = outputs.detach().requires_grad_()
            if self.each is None:
                losses = [self._of_client(c, leaf, targets, weights) for c in range(len(leaf))]
                return torch.autograd.grad(losses, leaf)[0]
            joined = mapped(lambda v: v.flatten(0, 1), targets)
            means = _means(self.each(leaf.flatten(0, 1), joined))
            return torch.autograd.grad((weights.flatten() * means).sum(), leaf)[0]

    def _of_client(self, c: int, outputs: Tensor, targets: Fields, weights: Tensor) -> Tensor:
        """Without the samples that have no weight."""
        kept = weights[c] > 0
        return self.function(outputs[c][kept], mapped(lambda v: v[c][kept], targets))

    def values(self, outputs: Output, targets: Fields) -> Tensor | Totals:
        """A number for each sample; where there is only one for all of them, that one."""
        if self.settings is not None and isinstance(targets, Tensor):
            return _totals(self.settings, outputs, targets)
        if self.each is None:
            with about("Neural", "loss"):
                value = self.function(outputs, targets)
                refuse_value(self.name, value)
                return value.expand(count(targets))
        return _means(self.each(outputs, targets))

    def to(self, dtype: torch.dtype, device: torch.device) -> OwnLoss:
        """With tensors of a module or ``partial``, such as weights of classes, in that place."""
        function, each = (_placed(f, dtype, device) for f in (self.function, self.each))
        return OwnLoss(function, each, self.counted)  # type: ignore[arg-type]

    @property
    def name(self) -> str:
        """What it is called in messages and digests."""
        return called(self.function)


LocalLoss = Objective | OwnLoss
"""What gradients are of."""


def called(function: object) -> str:
    """The name of a function, or of a module's class."""
    plain = function.func if isinstance(function, functools.partial) else function
    return str(getattr(plain, "__name__", type(plain).__name__))


def own_loss(function: Loss, everything: Sequence[Fields]) -> OwnLoss:
    """A user's loss, after a look at the targets of all samples."""
    if comparing(function) is not None or _alike(function, everything):
        return OwnLoss(function, _each(function))
    classes = isinstance(everything[0], Tensor) and not everything[0].is_floating_point()
    return OwnLoss(function, None, classes and settings_of(function) is not None)


def plain_cross_entropy(function: object, everything: Sequence[Fields]) -> bool:
    """Whether it is the cross-entropy of all samples alike, as undrift's own is."""
    smooth = getattr(function, "label_smoothing", 0.0)
    return not smooth and _alike(function, everything)


def refuse_value(name: str, value: object) -> None:
    """Refuse what a loss returns unless that is one number."""
    if not isinstance(value, Tensor) or value.dim() or value.is_complex():
        raise ValueError(
            f"{name} must return one real number as a tensor, the mean over the samples; got "
            f"{list(value.shape) if isinstance(value, Tensor) else type(value).__name__}"
        )


def comparing(function: object) -> type[nn.Module] | None:
    """Which of the losses in ``COMPARING`` it is, with its own settings."""
    if isinstance(function, nn.Module):
        known = type(function) in COMPARING.values() and getattr(function, "weight", None) is None
        return type(function) if known and getattr(function, "reduction", "") == "mean" else None
    plain, keywords = function, {}
    if isinstance(function, functools.partial) and not function.args:
        plain, keywords = function.func, function.keywords
    other = {"reduction", "weight", "size_average", "reduce"} & set(keywords)
    known_kinds = (kind for known, kind in COMPARING.items() if known is plain and not other)
    return next(known_kinds, None)


def _each(function: Any) -> Loss:
    """The same loss of each sample, before their mean is taken."""
    if not isinstance(function, nn.Module):
        return functools.partial(function, reduction="none")
    twin: Any = copy.deepcopy(function)
    twin.reduction = "none"
    return twin  # type: ignore[no-any-return]


def _means(values: Tensor) -> Tensor:
    """One number for each sample."""
    return values.flatten(1).mean(1) if values.dim() > 1 else values


def settings_of(function: object) -> CrossEntropySettings | None:
    """Those of a loss that is torch's cross-entropy."""
    if isinstance(function, nn.CrossEntropyLoss) and type(function) is nn.CrossEntropyLoss:
        return CrossEntropySettings(
            function.weight, function.ignore_index, function.label_smoothing
        )
    if function is F.cross_entropy:
        return CrossEntropySettings()
    if not isinstance(function, functools.partial) or function.func is not F.cross_entropy:
        return None
    known = not function.args and function.keywords.keys() <= set(CrossEntropySettings._fields)
    return CrossEntropySettings(**function.keywords) if known else None


def _alike(function: object, everything: Sequence[Fields]) -> bool:
    """Whether it is a mean of cross-entropies over as many positions of each of these samples."""
    settings = settings_of(function)
    if settings is None or isinstance(function, functools.partial):
        return False
    if getattr(function, "reduction", "mean") != "mean" or settings.weight is not None:
        return False
    return all(
        isinstance(targets, Tensor)
        and (targets.is_floating_point() or not bool((targets == settings.ignore_index).any()))
        for targets in everything
    )


def _totals(settings: CrossEntropySettings, outputs: Tensor, targets: Tensor) -> Totals:
    """Cross-entropies, and the weights of the targets that count."""
    weight, ignored, smoothing = settings
    values = F.cross_entropy(
        outputs,
        targets,
        weight=weight,
        ignore_index=ignored,
        label_smoothing=smoothing,
        reduction="none",
    )
    kept = targets != ignored
    counts = kept if weight is None else weight[targets.where(kept, 0).long()] * kept
    return Totals(*(v.double().reshape(len(targets), -1).sum(1) for v in (values, counts)))


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
