"""What a network is refused for: tables of (when, field, text), read by :func:`refuse` alone.

Each says one rule for all inputs that break it. Refused is what torch would not refuse itself when
the first samples pass through: what would train on other numbers than the user means.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, TypeVar

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.parameter import is_lazy
from torch.utils._pytree import tree_leaves
from torch.utils.data import BatchSampler, DataLoader, RandomSampler, SequentialSampler
from torch.utils.data import default_collate as collate

from undrift.core.params import BadParameters
from undrift.models.batch_norm import refuse_batch_statistics
from undrift.models.net import Net, where
from undrift.objectives.base import Objective
from undrift.problems.neural.loss import PROBABILITIES, adds_up, called, comparing, settings_of
from undrift.problems.neural.samples import Fields, Output, SampleRows, count, leaves, shown

Result = TypeVar("Result")


class Mistake(NamedTuple):
    """A mistake: when it is made, in which argument, and what to do about it."""

    when: Callable[[Any], object]
    field: str
    """The argument; empty where rules are for several, which the caller names."""
    text: str
    """May name the words that :func:`refuse` is given, in braces."""


def refuse(rules: Sequence[Mistake], given: object, **words: object) -> None:
    """Raise for the first mistake that was made: :class:`BadParameters`, or ``ValueError``."""
    for rule in rules:
        if rule.when(given):
            text = rule.text.format(**words)
            raise BadParameters("Neural", {rule.field: text}) if rule.field else ValueError(text)


# -- data


def _chooses(loader: DataLoader[object]) -> bool:
    """Whether a loader gives other samples than its Dataset has, or not all of them."""
    batches: object = loader.batch_sampler
    sampler = loader.sampler if type(batches) in (BatchSampler, type(None)) else batches
    if isinstance(sampler, RandomSampler):
        return sampler.replacement or sampler.num_samples != len(sampler.data_source)
    return loader.collate_fn is not collate or not isinstance(sampler, SequentialSampler)


LOADER = (
    Mistake(
        lambda loader: hasattr(loader.dataset, "__len__") and _chooses(loader),
        "",
        "a DataLoader whose sampler or collate_fn is not torch's own gives other samples than its "
        "Dataset has; give a Dataset of the samples that you mean",
    ),
)
CLIENT = (
    Mistake(
        lambda parts: not all(map(len, parts)),
        "train",
        "a client in the list has no samples; leave it out",
    ),
)
TEST = (
    Mistake(
        lambda parts: np.bincount(np.concatenate(parts)).max() > 1,
        "test",
        "some samples are held twice, so that a share held out would be trained on too; give test "
        "data of its own",
    ),
)
BYTES = (
    Mistake(
        lambda inputs: any(v.dtype == torch.uint8 and v.dim() < 3 for v in tree_leaves(inputs)),
        "train",
        "uint8 inputs are images, which are scaled to [0, 1], and these are none; give .float() of "
        "numbers, .long() of tokens, .bool() of a mask",
    ),
)
PIPELINE = (
    Mistake(
        lambda pair: not all(hasattr(pair[0], name) for name in ("normalise", "augmentation")),
        "pipeline",
        "pipeline must be an undrift.data.augment.Pipeline",
    ),
    Mistake(
        lambda pair: getattr(pair[1], "dtype", None) != torch.uint8,
        "pipeline",
        "a pipeline normalises uint8 images; leave it out: other inputs reach the network as they "
        "are",
    ),
)

# -- networks


def _wrapped(module: object) -> bool:
    kinds = nn.DataParallel, nn.parallel.DistributedDataParallel, torch.jit.ScriptModule
    return isinstance(module, kinds) or hasattr(module, "_orig_mod")


def _unusual_embedding(layer: nn.Module) -> bool:
    if not isinstance(layer, nn.Embedding | nn.EmbeddingBag):
        return False
    return layer.max_norm is not None or layer.scale_grad_by_freq or layer.sparse


NETWORK = (
    Mistake(
        lambda module: not isinstance(module, nn.Module),
        "module",
        "the network, the first argument, must be a torch.nn.Module, as nn.Linear(4, 1) is",
    ),
    Mistake(
        _wrapped,
        "module",
        "the network was wrapped or compiled; give the module that was, before DataParallel, "
        "torch.jit or torch.compile",
    ),
)
LAYER = (
    Mistake(
        lambda layer: "forward" in vars(layer),
        "module",
        "the {layer} had its forward replaced on the object, which the copies that train would not "
        "follow; write a subclass with that forward",
    ),
    Mistake(
        _unusual_embedding,
        "module",
        "the {layer} has max_norm, scale_grad_by_freq or sparse, with which its gradient is that "
        "of no loss; leave them out",
    ),
)
WEIGHT = (
    Mistake(
        is_lazy,
        "module",
        "the parameter {name!r} has no shape before its layer has seen a sample; run the module on "
        "one first",
    ),
    Mistake(
        lambda weight: weight._backward_hooks or weight._post_accumulate_grad_hooks,
        "module",
        "the parameter {name!r} has a hook on its gradient, which nothing here would call; mask or "
        "scale in forward instead",
    ),
    Mistake(
        lambda weight: weight.is_meta or weight.is_complex() or not weight.isfinite().all(),
        "module",
        "the parameter {name!r} must hold finite real numbers, from which training can start",
    ),
)


def refuse_network(module: nn.Module) -> None:
    """Refuse what cannot be trained here at all."""
    refuse(NETWORK, module)
    refuse_batch_statistics(module)
    for name, layer in module.named_modules():
        refuse(LAYER, layer, layer=where(name, layer))
    for name, weight in module.named_parameters():
        refuse(WEIGHT, weight, name=name)


def refuse_memory(before: nn.Module, after: nn.Module) -> None:
    """Refuse a network whose buffers a pass in training mode changes."""
    for (name, buffer), kept in zip(after.named_buffers(), before.buffers(), strict=True):
        if not torch.equal(buffer, kept):
            raise ValueError(
                f"the network changes its buffer {name!r} in training, which clients do not share; "
                "leave out the layer that does so"
            )


# -- what a network makes of its first samples


class FirstPass(NamedTuple):
    """Two samples, what the network makes of them, and the loss that it is to be trained with."""

    net: nn.Module
    loss: object
    objective: object
    rows: SampleRows
    outputs: Output
    """In evaluation mode."""
    single: Output
    """Of the first sample alone."""
    known: list[Fields]
    """All targets of training and of test data that are known without reading samples."""
    names: tuple[str, ...] | None = None
    """Those of the classes, where the data have them."""

    @property
    def classes(self) -> tuple[str, ...]:
        """The names of the classes; empty unless targets and outputs are those of classes."""
        y, outputs = self.rows.y, self.outputs
        if not isinstance(y, Tensor) or y.dim() != 1 or y.dtype != torch.int64:
            return ()
        if not isinstance(outputs, Tensor) or outputs.dim() != 2:
            return ()
        return self.names or tuple(map(str, range(outputs.shape[1])))

    def in_range(self, ignored: int | None = None) -> bool:
        """Whether all known targets that are not ``ignored`` are numbers of outputs."""
        whole = [y for y in self.known if isinstance(y, Tensor) and not y.is_floating_point()]
        kept = [y if ignored is None else y[y != ignored] for y in whole]
        ends = [(int(y.min()), int(y.max())) for y in kept if y.numel()]
        return all(low >= 0 and high < self.outputs.shape[1] for low, high in ends)


def _is_tensor(*values: object) -> bool:
    return all(isinstance(value, Tensor) for value in values)


def _takes_logarithms(first: FirstPass) -> bool:
    """Whether a loss of logarithms of probabilities is given numbers above 0."""
    logarithms = first.loss is F.nll_loss or isinstance(first.loss, nn.NLLLoss)
    return logarithms and _is_tensor(first.outputs) and bool((first.outputs > 0).any())


def _compares_others(first: FirstPass) -> bool:
    """Whether a loss that compares number with number would broadcast, or fail."""
    if comparing(first.loss) is None:
        return False
    alike = _is_tensor(first.outputs, first.rows.y) and first.outputs.shape == first.rows.y.shape  # type: ignore[union-attr]
    return not alike


def _improbable(first: FirstPass) -> bool:
    """Whether targets of a loss of probabilities are none."""
    if comparing(first.loss) not in PROBABILITIES:
        return False
    return any(bool((y < 0).any() or (y > 1).any()) for known in first.known for y in leaves(known))


def _misses_classes(first: FirstPass) -> bool:
    """Whether labels are numbers of classes for which the network has no output."""
    settings = settings_of(first.loss)
    if first.loss is not None and settings is None:
        return False
    if not _is_tensor(first.outputs) or first.outputs.dim() < 2:
        return False
    return not first.in_range(None if settings is None else settings.ignore_index)


def _looks_inside(first: FirstPass) -> bool:
    """Whether an objective needs parts that the network has not."""
    needs = set(getattr(first.objective, "needs", ()))
    inside = isinstance(first.net, Net)
    if "blocks" in needs and isinstance(first.net, Net):
        inside = len(first.net.trunk) > 0
    return bool(needs & {"features", "blocks"}) and not inside


CLASSES = (
    "is for targets that are classes, whole numbers [n], with outputs [n, classes]; these are "
    "{targets} with {outputs}"
)
LOSS = (
    Mistake(
        lambda first: first.loss is not None and first.objective is not None,
        "loss",
        "loss and objective are both losses; give one",
    ),
    Mistake(
        lambda first: (
            isinstance(first.loss, type | Objective)
            or not (first.loss is None or callable(first.loss))
        ),
        "loss",
        "loss must be a function of outputs and targets, as torch.nn.functional.mse_loss and "
        "nn.MSELoss() are; one of undrift.objectives is given as objective=",
    ),
    Mistake(
        lambda first: not isinstance(first.objective, Objective | None),
        "objective",
        "objective must be one of undrift.objectives, such as CrossEntropy()",
    ),
    Mistake(
        lambda first: (
            isinstance(first.loss, nn.Module) and any(True for _ in first.loss.parameters())
        ),
        "loss",
        "{loss} has parameters, which nobody would train; put them into the network",
    ),
    Mistake(
        lambda first: adds_up(first.loss),
        "loss",
        "{loss} adds up over the samples, so that larger batches make larger steps; give "
        'reduction="mean"',
    ),
    Mistake(
        lambda first: (
            isinstance(first.single, Tensor)
            and isinstance(first.outputs, Tensor)
            and first.single.dim() != first.outputs.dim()
        ),
        "module",
        "the network loses the axis of samples when it is given one alone; keep it, as by "
        ".squeeze(1) in the place of .squeeze()",
    ),
    Mistake(
        lambda first: (
            first.names is not None
            and getattr(first.outputs, "shape", None) != (count(first.rows.x), len(first.names))
        ),
        "module",
        "the network must return one tensor with an output for each class of the data; got "
        "{outputs}",
    ),
    Mistake(
        lambda first: first.loss is None and first.objective is None and not first.classes,
        "loss",
        f"give loss=, such as torch.nn.functional.mse_loss: left out, it is the cross-entropy, "
        f"which {CLASSES}",
    ),
    Mistake(
        lambda first: first.objective is not None and not first.classes,
        "objective",
        f"objective {CLASSES}; give loss= for others",
    ),
    Mistake(
        _misses_classes,
        "loss",
        "some targets are no numbers of outputs; number classes from 0, and give the network an "
        "output for each",
    ),
    Mistake(
        _takes_logarithms,
        "loss",
        "{loss} takes logarithms of probabilities, but some outputs are above 0; give "
        "loss=torch.nn.functional.cross_entropy",
    ),
    Mistake(
        _compares_others,
        "loss",
        "{loss} compares outputs with targets number by number, not {outputs} with {targets}; give "
        "them the same shape",
    ),
    Mistake(
        _improbable,
        "loss",
        "{loss} compares with probabilities, but some targets are not from 0 to 1; scale them, or "
        "give a loss of measured numbers",
    ),
    Mistake(
        _looks_inside,
        "objective",
        "the objective looks inside the network; make it an undrift.models.Net with several "
        "blocks, or use another objective",
    ),
)
"""In this order: later ones take for granted what earlier ones refuse."""


def refuse_first(first: FirstPass) -> None:
    """Refuse a loss that does not go with the network and its data."""
    words = {"targets": shown(first.rows.y), "outputs": shown(first.outputs)}
    refuse(LOSS, first, loss=called(first.loss), **words)


# -- random numbers


class Drawn(NamedTuple):
    """Whose generators were drawn from."""

    torch: bool
    others: bool
    """Of Python or NumPy."""


def watched(work: Callable[[], Result]) -> tuple[Result, Drawn]:
    """What ``work`` gives, and from what it draws; the generators are left as they were."""
    own, numpys = random.getstate(), np.random.get_state()
    with torch.random.fork_rng(devices=[]):
        torchs, others = torch.get_rng_state(), _generators()
        try:
            found = work()
            drawn = not torch.equal(torch.get_rng_state(), torchs)
            return found, Drawn(drawn, _generators() != others)
        finally:
            random.setstate(own)
            np.random.set_state(numpys)


def _generators() -> tuple[object, ...]:
    state = np.random.get_state(legacy=False)["state"]
    return random.getstate(), {name: np.asarray(part).tolist() for name, part in state.items()}


def repeatable(who: str, work: Callable[[], Result], draws: bool = False) -> tuple[Result, bool]:
    """What ``work`` gives, and whether it draws from torch's generator; refused unless it ``draws``
    from nothing else.
    """
    found, drawn = watched(work)
    if drawn.others or (drawn.torch and not draws):
        raise ValueError(
            f"{who} draws random numbers, so that no run could be repeated; only a network may, by "
            "torch and in training mode, as F.dropout(x, p, self.training) does"
        )
    return found, drawn.torch
