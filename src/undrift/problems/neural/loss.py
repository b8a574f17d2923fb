"""Any loss of outputs and targets as a local loss, tried on a few samples before it is used."""

from __future__ import annotations

import copy
import functools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, NoReturn, Protocol

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from undrift.core.params import about
from undrift.data.files import brief
from undrift.objectives.base import Batch, Need, Network, Objective, Others
from undrift.problems.neural.table import Fields, Output, count, leaves, mapped, shown

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


class Settings(NamedTuple):
    """Of torch's cross-entropy, under its names."""

    weight: Tensor | None = None
    ignore_index: int = IGNORED
    label_smoothing: float = 0.0


class Totals(NamedTuple):
    """For each sample a sum, and how much it is a sum of: a mean divides one total by the other."""

    sums: Tensor
    counts: Tensor


class LocalLoss(Protocol):
    """What gradients are of: an objective, or a loss of the user's own."""

    @property
    def needs(self) -> tuple[Need, ...]: ...

    def loss(self, local: Network, batch: Batch, others: Others) -> Tensor: ...


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
        self.counted, self.settings = counted, _settings(function) if counted else None

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
                return _number(self.name, self.function(outputs, targets)).expand(count(targets))
        return _means(self.each(outputs, targets))

    def to(self, dtype: torch.dtype, device: torch.device) -> OwnLoss:
        """With tensors of a module or ``partial``, such as weights of classes, in that place."""
        function, each = (_placed(f, dtype, device) for f in (self.function, self.each))
        return OwnLoss(function, each, self.counted)  # type: ignore[arg-type]

    def counts(self, targets: Fields) -> bool:
        """Whether any of these targets is not left out."""
        if self.settings is None:
            return True
        return any(bool((y != self.settings.ignore_index).any()) for y in leaves(targets))

    @property
    def name(self) -> str:
        """What it is called in messages and digests."""
        return called(self.function)


def called(function: object) -> str:
    """The name of a function, or of a module's class."""
    plain = function.func if isinstance(function, functools.partial) else function
    return str(getattr(plain, "__name__", type(plain).__name__))


def own(
    function: object,
    outputs: object,
    targets: Fields,
    everything: Fields | None,
    judged: Sequence[Fields | None] = (),
) -> OwnLoss:
    """A user's loss, after a look at a few ``outputs`` and ``targets``, and at ``everything``.

    Targets that are only ``judged`` may leave out some too.
    """
    if isinstance(function, type):
        raise TypeError(f"loss is the class {function.__name__}; give {function.__name__}()")
    if isinstance(function, Objective):
        raise TypeError(f"{called(function)} is an objective; give objective={called(function)}()")
    if not callable(function):
        raise TypeError(
            "loss must be a function of outputs and targets, such as "
            f"torch.nn.functional.mse_loss; got {function!r}"
        )
    if isinstance(function, nn.Module) and any(True for _ in function.parameters()):
        raise ValueError(
            f"{called(function)} has parameters, which nobody would train; put them into the "
            "network, and let it return what the loss needs"
        )
    if _adds_up(function):
        raise ValueError(
            f"{called(function)} adds up over the samples, so that larger batches make larger "
            'steps; give reduction="mean"'
        )
    if (function is F.nll_loss or isinstance(function, nn.NLLLoss)) and _positive(outputs):
        raise ValueError(
            f"{called(function)} takes logarithms of probabilities, but the network's outputs are "
            "above 0; give loss=torch.nn.functional.cross_entropy"
        )
    kind = comparing(function)
    if kind is not None:
        _refuse_comparison(called(function), kind, outputs, targets, everything)
        return OwnLoss(function, _each(function))
    settings = _settings(function)
    if settings is None:
        return OwnLoss(function, None)
    _refuse_classes(settings.ignore_index, outputs, everything)
    if _alike(function, [everything, *judged]):
        return OwnLoss(function, _each(function))
    classes = isinstance(targets, Tensor) and not targets.is_floating_point()
    return OwnLoss(function, None, counted=classes)


def plain_cross_entropy(function: object, everything: Sequence[Fields | None]) -> bool:
    """Whether it is the cross-entropy of all samples alike, as undrift's own is."""
    smooth = getattr(function, "label_smoothing", 0.0)
    return not smooth and _alike(function, everything)


def _number(name: str, value: object) -> Tensor:
    """What a loss returns; refused unless that is one number."""
    if not isinstance(value, Tensor):
        raise TypeError(
            f"{name} returns a {type(value).__name__}; make it return a tensor, without .item()"
        )
    if value.is_complex():
        raise TypeError(f"{name} returns a complex number; make it return a real one")
    if value.dim():
        raise ValueError(
            f"{name} returns {list(value.shape)} numbers; make it return one, the mean over the "
            "samples"
        )
    return value


def refuse_value(name: str, found: object, counts: bool = True) -> None:
    """Refuse what cannot be minimised; where no target ``counts`` there is no number."""
    value = _number(name, found)
    if not value.requires_grad:
        raise ValueError(
            f"{name} does not depend on the network's weights: nothing to train; compute it from "
            "the outputs, without .detach(), .item() or comparisons"
        )
    if counts and bool(value.isnan()):
        raise ValueError(
            f"{name} is not a number for the first samples and the weights given; make it finite"
        )


def refuse_failed(
    name: str,
    error: Exception,
    outputs: object,
    targets: object,
    remedy: str = "it is called as loss(outputs, targets)",
) -> NoReturn:
    """A loss that cannot be computed, or not differentiated."""
    raise ValueError(
        f"{name} does not take outputs {shown(outputs)} and targets {shown(targets)}: "
        f"{brief(error)}; {remedy}"
    ) from error


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


def _adds_up(function: object) -> bool:
    """Whether it is told to add up, as a module or by ``partial``."""
    if not isinstance(function, functools.partial):
        return getattr(function, "reduction", "mean") == "sum"
    settings = function.keywords
    if settings.get("reduction") == "sum" or settings.get("size_average") is False:
        return True
    return "reduction" not in settings and _adds_up(function.func)


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


def _positive(outputs: object) -> bool:
    return isinstance(outputs, Tensor) and bool((outputs > 0).any())


def is_cross_entropy(function: object) -> bool:
    """Whether it is torch's, as a module, as a function, or with settings by ``partial``."""
    return _settings(function) is not None


def _settings(function: object) -> Settings | None:
    """Those of a loss that is torch's cross-entropy."""
    if isinstance(function, nn.CrossEntropyLoss) and type(function) is nn.CrossEntropyLoss:
        return Settings(function.weight, function.ignore_index, function.label_smoothing)
    if function is F.cross_entropy:
        return Settings()
    if not isinstance(function, functools.partial) or function.func is not F.cross_entropy:
        return None
    known = not function.args and function.keywords.keys() <= set(Settings._fields)
    return Settings(**function.keywords) if known else None


def _alike(function: object, everything: Sequence[Fields | None]) -> bool:
    """Whether it is a mean of cross-entropies over as many positions of each of these samples."""
    settings = _settings(function)
    if settings is None or isinstance(function, functools.partial):
        return False
    if getattr(function, "reduction", "mean") != "mean" or settings.weight is not None:
        return False
    return all(
        isinstance(targets, Tensor)
        and (targets.is_floating_point() or not bool((targets == settings.ignore_index).any()))
        for targets in everything
    )


def _totals(settings: Settings, outputs: Tensor, targets: Tensor) -> Totals:
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


def _refuse_classes(ignored: int, outputs: object, targets: Fields | None) -> None:
    """Refuse targets that are not numbers of classes."""
    if not isinstance(outputs, Tensor) or not isinstance(targets, Tensor) or outputs.dim() < 2:
        return
    one_for_each = outputs.dim() == 3 and targets.dim() == 2 and not targets.is_floating_point()
    if one_for_each and outputs.shape[1] == targets.shape[1] != outputs.shape[2]:
        raise ValueError(
            f"the network's outputs are {_like(outputs)} and targets {_like(targets)}, but scores "
            "of classes are along the second axis; let it return outputs.transpose(1, 2)"
        )
    classes = outputs.shape[1]
    kept = targets[targets != ignored]
    if targets.is_floating_point() or not len(kept):
        return
    low, high = int(kept.min()), int(kept.max())
    if low < 0 or high >= classes:
        raise ValueError(refused_classes(low, high, classes))


def refused_classes(low: int, high: int, outputs: int) -> str:
    """Why labels from ``low`` to ``high`` do not fit a network, and what to do."""
    remedy = f"give it {high + 1}" if low >= 0 else "number classes from 0"
    if low > 0 and high - low < outputs:
        remedy = f"give targets - {low}"
    return (
        f"targets are {low} to {high}, but the network has {outputs} outputs, whose classes are "
        f"numbered 0 to {outputs - 1}; {remedy}"
    )


def _refuse_comparison(
    name: str,
    kind: type[nn.Module],
    outputs: object,
    targets: object,
    everything: Fields | None,
) -> None:
    if not isinstance(outputs, Tensor) or not isinstance(targets, Tensor):
        raise ValueError(
            f"{name} compares one tensor of outputs with one of targets, not {shown(outputs)} "
            f"with {shown(targets)}; give a loss that takes yours"
        )
    if not targets.is_floating_point():
        raise ValueError(
            f"targets are {targets.dtype}, but {name} compares measured numbers; "
            "give targets.float()"
        )
    if outputs.shape != targets.shape:
        remedy = f"give the targets that shape, {_like(outputs)}"
        if outputs.numel() == targets.numel():
            remedy = f"give targets.reshape({', '.join(map(str, (-1, *outputs.shape[1:])))})"
        shapes = f"the network's outputs are {_like(outputs)}, but targets are {_like(targets)}"
        raise ValueError(f"{shapes}; {remedy}")
    if kind is nn.BCELoss and not bool(((outputs >= 0) & (outputs <= 1)).all()):
        raise ValueError(
            f"the network's outputs are not probabilities, which {name} takes; give "
            "loss=torch.nn.functional.binary_cross_entropy_with_logits"
        )
    if kind in PROBABILITIES and isinstance(everything, Tensor):
        low, high = (float(v) for v in everything.aminmax())
        if low < 0 or high > 1:
            raise ValueError(
                f"targets are from {low:g} to {high:g}, but {name} compares with probabilities "
                "from 0 to 1; scale them, or give a loss of measured numbers"
            )


def _like(v: Tensor) -> str:
    return f"[{', '.join(['n', *map(str, v.shape[1:])])}]"


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
