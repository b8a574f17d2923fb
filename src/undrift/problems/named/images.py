"""Networks on images: those of undrift, and the user's own."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Collection, Mapping
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self

from undrift.core.params import BadParameters, Count, Natural, Positive
from undrift.problems.named.base import Named, Split, split

if TYPE_CHECKING:
    from torch import nn

    from undrift.data.images import ImageSet
    from undrift.objectives import Objective
    from undrift.problems.neural.problem import Neural

Model = Literal["linear", "mlp", "cnn", "cnn-paper", "cnn-small", "resnet18", "resnet18-3x3"]


class Images(Named):
    """Classification of images by a network.

    Args:
        data: digits, which is embedded, cifar10, cifar100, mnist, tiny-imagenet, or a sub-folder
            with images by class.
        folder: the folder of data sets; left out: $UNDRIFT_DATA.
        train: keeps so many training images.
        test: keeps so many test images.
        model: the network.
        hidden: width of the hidden layers of mlp and cnn-small.
        projection: adds MOON's projection head to the network: true, to 256 features, or how many.
        partition: how the images are split among the clients; a paper's name: as in its code.
        beta: concentration of the Dirichlet partitions: smaller is more uneven.
        shards: pieces per client of the images sorted by label, where they are split by-label.
        augment: crops and flips of training images, as in a paper's code.
        precision: of products in the gradients of mini-batches; tf32 is for GPUs. Weights and
            updates stay float32.
        train_metrics: measures loss and accuracy on the clients' images too.
        seed: decides the split and the first weights.
        split_seed: decides the split; left out: seed does.
        start_seed: decides the first weights; left out: seed does.
    """

    name = "images"
    title = "a neural network on images: digits, MNIST, CIFAR, Tiny-ImageNet or a folder"
    objectives = True
    judged: ClassVar[Literal["gap", "accuracy"] | None] = "accuracy"
    chance: ClassVar[Mapping[str, str]] = {"split": "split", "start": "first weights"}
    own_network: ClassVar[Callable[..., object] | None] = None
    """Makes a network of the user's from what it takes of the data: see ``_network``."""
    own_data: ClassVar[Callable[..., object] | None] = None
    """Makes data of the user's."""

    data: str = "digits"
    folder: str | None = None
    train: Count | None = None
    test: Count | None = None
    model: Model = "cnn-small"
    hidden: Count | None = None
    projection: bool | Count = False
    clients: Count = 20
    partition: Literal[Split, "fedspeed", "feddyn", "fedacg", "fedrecu"] = "dirichlet"
    beta: Positive = 0.6
    shards: Count = 2
    augment: Literal["none", "fedspeed", "fedacg", "fedrecu"] = "none"
    precision: Literal["f32", "tf32", "bf16"] = "f32"
    train_metrics: bool = False
    seed: Natural = 0
    split_seed: Natural | None = None
    start_seed: Natural | None = None

    def conditions(self) -> dict[str, str]:
        problems = {}
        if self.hidden is not None and self.model not in ("mlp", "cnn-small"):
            problems["hidden"] = (
                f"hidden = {self.hidden} is for mlp and cnn-small; leave it out for {self.model}"
            )
        if self.augment != "none" and self.data not in ("cifar10", "cifar100", "tiny-imagenet"):
            problems["augment"] = (
                f"augment = {self.augment!r} is made for cifar10, cifar100 and tiny-imagenet; "
                f"leave it out for {self.data}"
            )
        if self.own_network and self.projection:
            problems["projection"] = (
                f"projection is for the networks of undrift; leave it out for {self.model}"
            )
        for name in ("folder", "train", "test") if self.own_data else ():
            if getattr(self, name) is not None:
                problems[name] = f"{name} is for the data sets of undrift; leave it out"
        return problems

    def drawn(self, what: Collection[str], seed: int) -> Self:
        split = seed if "split" in what else self.split_seed
        start = seed if "start" in what else self.start_seed
        return dataclasses.replace(self, split_seed=split, start_seed=start)

    def build(self, objective: Objective | None = None) -> Neural:
        from undrift.data.augment import presets
        from undrift.problems.neural.problem import Neural

        images = self._images()
        seed = self.seed if self.split_seed is None else self.split_seed
        how = self.partition, self.beta, self.shards
        return Neural(
            self._network(images),
            images,
            split(images.labels.numpy(), self.clients, *how, seed),
            pipeline=None if self.augment == "none" else presets[self.augment](self.data),
            objective=objective,
            precision=self.precision,
            train_metrics=self.train_metrics,
        )

    def _network(self, images: ImageSet) -> nn.Module:
        from torch import nn

        from undrift.models import build, with_projection
        from undrift.models.net import own_net

        start = self.seed if self.start_seed is None else self.start_seed
        shape = tuple(images.images.shape[1:])
        if self.own_network:
            made = own_net(type(self).own_network, shape, len(images.classes), start)  # type: ignore[arg-type]
            if not isinstance(made, nn.Module):
                raise TypeError(f"{self.model} gives a {type(made).__name__}, not an nn.Module")
            return made
        if len(shape) != 3 or shape[1] != shape[2]:
            sizes = " x ".join(map(str, shape[-2:]))
            text = f"the networks here take square images; those of {self.data} are {sizes}"
            raise BadParameters(self.name, {"data": text})
        channels, height, width = shape
        options: dict[str, object] = {}
        if self.hidden:
            options["hidden"] = (self.hidden,) * 2 if self.model == "mlp" else self.hidden
        if self.model == "resnet18-3x3":
            options["init"] = "torch"  # FedACG's code leaves torch's own initialisation
        net = build(self.model, channels, height, len(images.classes), seed=start, **options)
        if self.projection:
            width = 256 if self.projection is True else self.projection
            net = with_projection(net, width, seed=start)
        return net

    def _images(self) -> ImageSet:
        from undrift.data.images import load_images

        if self.own_data:
            from undrift.models.net import seeded

            with seeded(0):
                return _as_images(type(self).own_data(), self.data)  # type: ignore[misc]
        return load_images(self.data, self.folder, (self.train, self.test))


def _as_images(found: Any, name: str) -> ImageSet:
    """Data of the user's: an image set, or the training and the test samples with their labels."""
    import torch

    from undrift.data.images import ImageSet

    if isinstance(found, ImageSet):
        return found
    try:
        (x, y), (test_x, test_y) = (map(torch.as_tensor, part) for part in found)
        most: Any = max(y.max().item(), test_y.max().item())  # no range ends at a float
        classes = tuple(map(str, range(1 + most)))
    except (TypeError, ValueError, RuntimeError):
        raise TypeError(
            f"{name} gives a {type(found).__name__}: an undrift.data.ImageSet, or (inputs, "
            "labels), (test inputs, test labels), labels being whole numbers from 0 on"
        ) from None
    return ImageSet(x, y.long(), test_x, test_y.long(), classes, name)
