"""Networks by name; torch is loaded when one is built."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from undrift.core.params import unknown

if TYPE_CHECKING:
    from undrift.models.net import Net


registry: dict[str, tuple[str, Mapping[str, object]]] = {
    "linear": ("mlp", {"hidden": ()}),
    "mlp": ("mlp", {}),
    # FedRecu's network as its code has it, and as in its paper, which names no size of kernels.
    "cnn": ("cnn", {"kernel": 5, "hidden": 84}),
    "cnn-paper": ("cnn", {"kernel": 3, "hidden": 256, "dropout": 0.25}),
    "cnn-small": ("cnn_small", {}),
    "resnet18": ("resnet18", {"stem": "7x7"}),
    "resnet18-3x3": ("resnet18", {"stem": "3x3"}),
}
"""Every named network: the function of ``undrift.models.architectures`` that makes it, and its
options.
"""


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

    function, usual = registry[name]
    make: Callable[..., Net] = getattr(architectures, function)
    with seeded(seed):
        return make(channels, size, classes, **{**usual, **options})
