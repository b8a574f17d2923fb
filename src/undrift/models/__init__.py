"""Networks by name. Importing it costs nothing: torch is loaded when a network is built."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from undrift.core.params import unknown

if TYPE_CHECKING:
    from undrift.models.layout import Spec, flatten, unflatten
    from undrift.models.net import Net, refuse_batch_statistics, with_projection

registry: dict[str, tuple[str, str, dict[str, Any]]] = {
    "linear": ("linear", "linear", {}),
    "mlp": ("mlp", "mlp", {}),
    "cnn": ("cnn", "cnn", {}),
    "cnn-paper": ("cnn", "cnn_paper", {}),
    "cnn-small": ("cnn", "cnn_small", {}),
    "resnet18": ("resnet", "resnet18", {"stem": "7x7"}),
    "resnet18-3x3": ("resnet", "resnet18", {"stem": "3x3"}),
}
"""Name: the module and the function that makes it, and its options."""

_HOMES = {
    "Net": "net",
    "Spec": "layout",
    "flatten": "layout",
    "refuse_batch_statistics": "net",
    "unflatten": "layout",
    "with_projection": "net",
}

__all__ = [
    "Net",
    "Spec",
    "build",
    "flatten",
    "refuse_batch_statistics",
    "registry",
    "unflatten",
    "with_projection",
]


def build(
    name: str, channels: int, size: int, classes: int, *, seed: int = 0, **options: Any
) -> Net:
    """The network ``name`` for ``channels`` x ``size`` x ``size`` images; its weights depend on
    ``seed`` alone.

    >>> import torch
    >>> build("cnn", channels=3, size=32, classes=10)(torch.zeros(2, 3, 32, 32)).shape
    torch.Size([2, 10])
    """
    if name not in registry:
        raise ValueError(unknown("network", name, registry))
    home, function, fixed = registry[name]
    make = getattr(importlib.import_module(f"{__name__}.{home}"), function)
    from undrift.models.net import seeded

    with seeded(seed):
        return make(channels, size, classes, **{**fixed, **options})


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_HOMES[name]}"), name)
