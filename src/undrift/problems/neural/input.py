"""What a network is made of, checked once: what is wrong is refused with the remedy."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence, Sized
from contextlib import contextmanager
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy

from undrift.core.params import BadParameters
from undrift.models.net import Net, refuse_batch_statistics
from undrift.objectives.base import Objective

if TYPE_CHECKING:
    from undrift.data.augment import Pipeline
    from undrift.data.images import ImageSet

FIELDS = ("images", "labels", "test_images", "test_labels", "classes")
CHANCE = (
    "the network draws random numbers of its own, as F.dropout, nn.AlphaDropout and nn.RReLU do, "
    "and nn.LSTM and nn.MultiheadAttention with dropout: no run could be repeated; use nn.Dropout "
    "itself, not a subclass, or set that rate to 0"
)


class Samples(NamedTuple):
    """Inputs as they were given, and labels int64 ``[n]``."""

    x: Tensor
    y: Tensor
    test_x: Tensor
    test_y: Tensor

    def to(self, device: torch.device) -> Samples:
        return Samples(*(part.to(device) for part in self))


def samples(data: ImageSet, pipeline: Pipeline | None) -> Samples:
    """The samples of an image set, unchanged."""
    if not all(hasattr(data, name) for name in FIELDS):
        raise TypeError(
            f"data must be an undrift.data.images.ImageSet({', '.join(FIELDS)}, name); "
            f"got a {type(data).__name__}"
        )
    if not isinstance(data.classes, Sized):
        raise TypeError(
            f"classes are the names of the classes, such as ('cat', 'dog'); got {data.classes!r}"
        )
    x, test_x = (_tensor(name, getattr(data, name)) for name in ("images", "test_images"))
    names, classes = ("labels", "test_labels"), len(data.classes)
    y, test_y = (_labels(name, getattr(data, name), classes) for name in names)
    for kind, inputs, labels in (("", x, y), ("test ", test_x, test_y)):
        if len(inputs) != len(labels):
            raise ValueError(
                f"there are {len(inputs)} {kind}images, but {len(labels)} {kind}labels"
            )
    if not len(test_y):
        raise ValueError("there are no test images, on which a model is judged")
    if x.dtype != test_x.dtype:
        raise ValueError(
            f"images are {x.dtype}, but test_images are {test_x.dtype}; give both in one dtype"
        )
    if pipeline is not None and x.dtype != torch.uint8:
        raise ValueError(
            f"a pipeline normalises uint8 images, but these are {x.dtype}; give the uint8 images, "
            "or leave pipeline out: other inputs reach the network as they are"
        )
    return Samples(x, y, test_x, test_y)


def refuse_unfinite(samples: Samples, parts: Sequence[np.ndarray]) -> None:
    """Refuse inputs with NaN or infinite numbers."""
    for name, x in (("images", samples.x), ("test_images", samples.test_x)):
        if not x.is_floating_point() or not x.numel():
            continue
        low, high = x.aminmax()
        if bool(low.isfinite()) and bool(high.isfinite()):
            continue
        sample = next(k for k in range(len(x)) if not bool(x[k].isfinite().all()))
        holders = (c for c, part in enumerate(parts) if sample in part)
        client = next(holders, None) if x is samples.x else None
        held = "" if client is None else f", which client {client} holds,"
        raise ValueError(
            f"sample {sample} of {name}{held} has numbers that are not finite; "
            "remove it or replace them"
        )


def objective(given: object) -> Objective:
    """The local loss."""
    if isinstance(given, type) and issubclass(given, Objective):
        raise TypeError(f"objective is the class {given.__name__}; give {given.__name__}(...)")
    if not isinstance(given, Objective):
        name = type(given).__name__
        raise TypeError(
            f"objective must be one of undrift.objectives, such as CrossEntropy(); got {name}"
        )
    return given


def refuse_module(module: object) -> None:
    """Refuse what cannot be trained here at all."""
    if not isinstance(module, nn.Module):
        raise TypeError(f"the network must be a torch.nn.Module; got {module!r}")
    refuse_batch_statistics(module)
    for name, layer in module.named_modules():
        held = (*layer.parameters(recurse=False), *layer.buffers(recurse=False))
        if any(map(is_lazy, held)):
            where = f" at {name!r}" if name else ""
            raise ValueError(
                f"the {type(layer).__name__}{where} has no shape before it has seen a sample; "
                "run the module on one first"
            )


def refuse_inside(net: nn.Module, loss: Objective) -> None:
    """Refuse an objective that looks at parts which the network has not."""
    text, name = "", type(loss).__name__
    if {"features", "blocks"} & set(loss.needs) and not isinstance(net, Net):
        text = (
            f"{name} looks inside the network; make it an undrift.models.Net "
            "(trunk, pool and head), or use another objective"
        )
    elif "blocks" in loss.needs and isinstance(net, Net) and not len(net.trunk):
        text = f"{name} needs a network of several blocks; this one is a single layer"
    if text:
        raise BadParameters("Neural", {"objective": text})


def refuse_logits(logits: object, count: int, classes: int) -> None:
    """Refuse a network whose output for ``count`` samples is not ``[count, classes]``."""
    if not isinstance(logits, Tensor):
        raise ValueError(
            f"the network returns a {type(logits).__name__}; make it return one tensor, the logits"
        )
    if tuple(logits.shape) != (count, classes):
        outputs = " x ".join(map(str, logits.shape[1:]))
        raise ValueError(f"the network has {outputs} outputs, but there are {classes} classes")


def refuse_memory(before: nn.Module, after: nn.Module) -> None:
    """Refuse a network whose buffers a pass in training mode changes."""
    for (name, buffer), kept in zip(after.named_buffers(), before.buffers(), strict=True):
        if not torch.equal(buffer, kept):
            raise ValueError(
                f"the network changes its buffer {name!r} in training, which clients do not share; "
                "leave out the layer that does so"
            )


@contextmanager
def repeatable() -> Iterator[None]:
    """Refuse a network that draws from a generator of the process; their states are restored."""
    own, numpys = random.getstate(), np.random.get_state()
    with torch.random.fork_rng(devices=[]):
        before = _generators()
        try:
            yield
            if _generators() != before:
                raise ValueError(CHANCE)
        finally:
            random.setstate(own)
            np.random.set_state(numpys)


def _generators() -> tuple[object, ...]:
    state = np.random.get_state(legacy=False)["state"]
    numpys = {name: np.asarray(part).tolist() for name, part in state.items()}
    return torch.get_rng_state().tolist(), random.getstate(), numpys


def _tensor(name: str, given: object) -> Tensor:
    if not isinstance(given, Tensor) or not given.dim():
        raise TypeError(
            f"{name} must be a torch tensor of all samples; got a {type(given).__name__}"
        )
    return given


def _labels(name: str, given: object, classes: int) -> Tensor:
    labels = _tensor(name, given)
    if labels.dim() != 1:
        raise ValueError(
            f"{name} must be [n], one class for each sample, not {list(labels.shape)}; "
            "squeeze a column, and give the argmax(1) of one-hot rows"
        )
    if labels.is_floating_point() or labels.is_complex():
        raise ValueError(
            f"{name} are {labels.dtype}, but classes are whole numbers; "
            f"give {name}.long() if they are"
        )
    labels = labels.long()
    for label in (labels.min(), labels.max()) if len(labels) else ():
        if not 0 <= label < classes:
            raise ValueError(
                f"a label is {int(label)}, but classes are numbered 0 to {classes - 1}"
            )
    return labels
