"""Networks by name; torch is loaded when one is built."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple

from undrift.core.params import unknown

if TYPE_CHECKING:
    from undrift.models.net import Net


class NetworkRecipe(NamedTuple):
    """The function of ``undrift.models.architectures`` that makes a network, and its options."""

    function: str
    options: Mapping[str, object] = MappingProxyType({})


registry: dict[str, NetworkRecipe] = {
    "linear": NetworkRecipe("mlp", {"hidden": ()}),
    "mlp": NetworkRecipe("mlp"),
    "cnn": NetworkRecipe("cnn"),
    "cnn-paper": NetworkRecipe("cnn_paper"),
    "cnn-small": NetworkRecipe("cnn_small"),
    "resnet18": NetworkRecipe("resnet18", {"stem": "7x7"}),
    "resnet18-3x3": NetworkRecipe("resnet18", {"stem": "3x3"}),
}
"""Every named network."""


def build(
    name: str, channels: int, size: int, classes: int, *, seed: int = 0, **options: object
) -> Net:
    """The network ``name`` for images of ``channels`` x ``size`` x ``size``.

    Its weights depend on ``seed`` alone.

    >>> import torch
    >>> build("cnn", channels=3, size=32, classes=10)(torch.zeros(2, 3, 32, 32)).shape
    torch.Size([2, 10])
    """
    if name not in registry:
        raise ValueError(unknown("network", name, registry))
    from undrift.models import architectures
    from undrift.models.net import seeded

    recipe = registry[name]
    make: Callable[..., Net] = getattr(architectures, recipe.function)
    with seeded(seed):
        return make(channels, size, classes, **{**recipe.options, **options})
