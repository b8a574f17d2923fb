"""What a network is made from, checked once: what is wrong is refused with the remedy."""

from __future__ import annotations

from collections.abc import Callable, Sequence, Sized
from typing import TYPE_CHECKING, TypeGuard

import torch
from numpy.typing import ArrayLike
from torch import Tensor, nn

from undrift.core.params import BadParameters, about
from undrift.models.batch_norm import refuse_batch_statistics
from undrift.models.net import Net, refuse_lazy, where
from undrift.objectives.base import Objective
from undrift.problems.neural.drawing import Result, watched
from undrift.problems.neural.federation import Federation, refuse_unfinite
from undrift.problems.neural.table import Fields, Held, Rows, shown
from undrift.problems.ragged import positions

if TYPE_CHECKING:
    from undrift.data.images import ImageSet

FIELDS = ("images", "labels", "test_images", "test_labels", "classes")


def is_image_set(given: object) -> TypeGuard[ImageSet]:
    return all(hasattr(given, name) for name in FIELDS)


def images(data: ImageSet, parts: Sequence[ArrayLike] | None, test: object) -> Federation:
    """The samples of an image set, unchanged, and whose they are."""
    if test is not None:
        text = "an ImageSet has test images of its own: leave out test"
        raise BadParameters("Neural", {"test": text})
    if parts is None:
        text = (
            "parts must say which images each client holds, as "
            "parts=undrift.data.iid(data.labels, clients=10)"
        )
        raise BadParameters("Neural", {"parts": text})
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
                f"there are {len(inputs)} {kind}images, but {len(labels)} {kind}labels; give one "
                "label for each"
            )
    if not len(test_y):
        raise ValueError(
            "there are no test images, on which a model is judged; give some, or a pair "
            "(images, labels) without a test set"
        )
    if x.dtype != test_x.dtype:
        raise ValueError(
            f"images are {x.dtype}, but test_images are {test_x.dtype}; give both in one dtype"
        )
    train, tested = Held(Rows(x, y)), Held(Rows(test_x, test_y))
    with about("Neural", "parts"):
        held = positions(parts, len(y))
    refuse_unfinite("train", train, held)
    refuse_unfinite("test", tested, None)
    return Federation(train, held, tested, None)


def refuse_pipeline(pipeline: object, x: Fields) -> None:
    """Refuse to normalise what are no images."""
    if not all(hasattr(pipeline, name) for name in ("normalise", "augmentation")):
        name = type(pipeline).__name__
        raise TypeError(f"pipeline must be an undrift.data.augment.Pipeline; got a {name}")
    kind = x.dtype if isinstance(x, Tensor) else f"a {type(x).__name__}"
    if kind != torch.uint8:
        raise ValueError(
            f"a pipeline normalises uint8 images, but these are {kind}; give the uint8 images, "
            "or leave pipeline out: other inputs reach the network as they are"
        )


def refuse_bytes(rows: Rows) -> None:
    """Refuse uint8 that are no images, which alone are scaled."""
    for name, v in rows.tensors():
        if name.startswith("inputs") and v.dtype == torch.uint8 and v.dim() < 3:
            raise ValueError(
                f"{name} are {shown(v)}: uint8 are images, which would be scaled to [0, 1], and "
                "these are none; give .float() of them if they are numbers, .float() / 255 if "
                "they are pixels, .long() if they are tokens, .bool() if they are a mask"
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
    if isinstance(module, type) and issubclass(module, nn.Module):
        name = module.__name__
        raise TypeError(f"the network must be a torch.nn.Module; got a class: give {name}(...)")
    if not isinstance(module, nn.Module):
        kind = type(module).__name__
        raise TypeError(f"the network, the first argument, must be a torch.nn.Module; got a {kind}")
    for kinds, remedy in WRAPPED.items():
        if isinstance(module, kinds):
            raise TypeError(f"the network is a {type(module).__name__}; give {remedy}")
    if hasattr(module, "_orig_mod"):
        raise TypeError("the network was compiled; give the module before torch.compile")
    refuse_batch_statistics(module)
    refuse_lazy(module)
    for name, layer in module.named_modules():
        for unfit, text in LAYERS:
            if unfit(layer):
                raise ValueError(f"the {where(name, layer)} {text}")
    for name, weight in module.named_parameters():
        for wrong, text in WEIGHTS:
            if wrong(weight):
                raise ValueError(f"the network's parameter {name!r} has {text}")


def _embeds(layer: nn.Module, option: str) -> object:
    """What this option of an embedding is; ``None`` for other layers."""
    return getattr(layer, option) if isinstance(layer, nn.Embedding | nn.EmbeddingBag) else None


LAYERS: tuple[tuple[Callable[[nn.Module], object], str], ...] = (
    (
        lambda layer: "forward" in vars(layer),
        "had its forward replaced on the object, which the copies that train would not follow; "
        "write a subclass with that forward",
    ),
    (
        lambda layer: _embeds(layer, "max_norm") is not None,
        "has a max_norm, by which every pass writes to its weights; leave it out, and shorten the "
        "vectors that the layer gives, as by torch.renorm",
    ),
    (
        lambda layer: _embeds(layer, "scale_grad_by_freq"),
        "divides gradients by how often a token occurs in a batch, so that they are those of no "
        "loss; leave out scale_grad_by_freq",
    ),
    (lambda layer: _embeds(layer, "sparse"), "has sparse gradients; leave out sparse"),
)
"""What a layer must not be, and why."""
WEIGHTS: tuple[tuple[Callable[[nn.Parameter], object], str], ...] = (
    (
        lambda weight: weight._backward_hooks or weight._post_accumulate_grad_hooks,
        "a hook on its gradient, which nothing here would call; mask or scale it in forward "
        "instead",
    ),
    (lambda weight: weight.is_meta, "no values: it is on the meta device; load the weights first"),
    (torch.is_complex, "complex numbers; give real and imaginary parts as two parameters"),
    (
        lambda weight: weight.is_floating_point() and not bool(weight.detach().isfinite().all()),
        "numbers that are not finite, from which nothing could be trained; reset them",
    ),
)
"""What a parameter must not have, and why."""
WRAPPED = {
    (nn.DataParallel, nn.parallel.DistributedDataParallel): "its .module",
    (torch.jit.ScriptModule,): "the module from which it was made",
}
"""Modules around a module, and what to give instead."""


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
        raise ValueError(
            f"the network has {outputs} outputs, but there are {classes} classes; give it "
            f"{classes} outputs"
        )


def refuse_memory(before: nn.Module, after: nn.Module) -> None:
    """Refuse a network whose buffers a pass in training mode changes."""
    for (name, buffer), kept in zip(after.named_buffers(), before.buffers(), strict=True):
        if not torch.equal(buffer, kept):
            raise ValueError(
                f"the network changes its buffer {name!r} in training, which clients do not share; "
                "leave out the layer that does so"
            )


def drawing(who: str, work: Callable[[], Result]) -> tuple[Result, bool]:
    """What ``work`` gives, and whether it draws from torch's generator, whose state is restored.

    Refused if it draws from the generators of Python or NumPy.
    """
    found, drawn = watched(work)
    if drawn.others:
        raise ValueError(
            f"{who} draws random numbers by Python or NumPy, so that no run could be "
            "repeated; draw them by torch"
        )
    return found, drawn.torch


def repeatable(who: str, work: Callable[[], Result], remedy: str) -> Result:
    """What ``work`` gives; refused if it draws random numbers."""
    found, draws = drawing(who, work)
    if draws:
        raise ValueError(f"{who} draws random numbers, so that no model could be judged; {remedy}")
    return found


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
                f"a label is {int(label)}, but classes are numbered 0 to {classes - 1}; number "
                "labels from 0, and name every class"
            )
    return labels
