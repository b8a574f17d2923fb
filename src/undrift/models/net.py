"""What every network offers, and what is known of networks whose layers are known.

Those are nested :class:`Net` and ``nn.Sequential`` alone.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from itertools import pairwise

import torch
from torch import Tensor, nn


class Net(nn.Module):
    """``head(features(x))``, where ``features`` runs the trunk's blocks and then the pool.

    ``dropout`` is the rate at which the features that the head sees are dropped in training.
    """

    def __init__(
        self, trunk: Iterable[nn.Module], pool: nn.Module, head: nn.Linear, dropout: float = 0.0
    ):
        super().__init__()
        self.trunk = nn.ModuleList(trunk)
        self.pool = pool
        self.dropout = nn.Dropout(dropout) if dropout else nn.Identity()
        self.head = head

    def features(self, x: Tensor) -> Tensor:
        """What the head sees, ``[n, head.in_features]``."""
        for block in self.trunk:
            x = block(x)
        features: Tensor = self.pool(x)
        return features

    def taps(self, x: Tensor) -> list[Tensor]:
        """The output of every trunk block."""
        outputs: list[Tensor] = []
        for block in self.trunk:
            outputs.append(x := block(x))
        return outputs

    def resume(self, tap: Tensor, level: int) -> Tensor:
        """Logits from the output of trunk block ``level``, by running the blocks after it."""
        for block in list(self.trunk)[level + 1 :]:
            tap = block(tap)
        return self.classify(self.pool(tap))

    def classify(self, z: Tensor) -> Tensor:
        """Logits from features."""
        logits: Tensor = self.head(self.dropout(z))
        return logits

    def forward(self, x: Tensor, view: Callable[[Net, Tensor], object] | None = None) -> object:
        """Logits, or ``view(self, x)``.

        So ``functional_call(net, weights, (x, Net.features))`` reaches any method.
        """
        return self.classify(self.features(x)) if view is None else view(self, x)


def with_projection(net: Net, out_dim: int = 256, *, seed: int = 0) -> Net:
    """A copy of ``net`` with MOON's projection and a new head on top of it.

    The projection is Linear d→d, ReLU, Linear d→``out_dim``; ``features`` are then its outputs.
    The trunk keeps its weights.
    """
    d, classes = net.head.in_features, net.head.out_features
    body = copy.deepcopy(net)
    with seeded(seed):
        pool = nn.Sequential(body.pool, nn.Linear(d, d), nn.ReLU(), nn.Linear(d, out_dim))
        grown = Net(body.trunk, pool, nn.Linear(out_dim, classes))
    grown.dropout = body.dropout
    return grown


@contextmanager
def seeded(seed: int) -> Iterator[None]:
    """Layers made inside take their weights from ``seed``; torch's generators are left alone."""
    with torch.random.fork_rng(devices=[]), torch.device("cpu"):
        torch.default_generator.manual_seed(seed)
        yield


def own_net(make: Callable[..., object], shape: tuple[int, ...], classes: int, seed: int) -> object:
    """What a function of the user's makes of what it takes of the data: ``shape`` and ``classes``;
    of images also ``channels`` and ``size``.
    """
    about: dict[str, object] = {"shape": shape, "classes": classes}
    if len(shape) == 3:
        about |= {"channels": shape[0], "size": shape[1]}
    with seeded(seed):
        return make(**about)


def where(name: str, layer: nn.Module) -> str:
    """A layer in messages, with its name in the module."""
    return f"{type(layer).__name__} at {name!r}" if name else type(layer).__name__


def leaves(net: nn.Module, name: str = "") -> Iterator[tuple[str, nn.Module]]:
    """The layers in the order they run, each with the prefix of its parameters' names."""
    inside = _inside(net)
    if not inside:
        yield name, net
    for part, module in inside.items():
        yield from leaves(module, f"{name}{part}.")


def pool_first(net: nn.Module) -> nn.Module:
    """Move ReLU behind max-pooling in ``net``: the same numbers and gradients for less work."""
    inside = {} if hooked(net) else _inside(net)
    for module in inside.values():
        pool_first(module)
    if type(net) is nn.Sequential:
        for k, (one, next) in enumerate(pairwise(inside.values())):
            if type(one) is nn.ReLU and type(next) is nn.MaxPool2d and not next.return_indices:
                net[k], net[k + 1] = next, one
    return net


def channels_last(x: Tensor) -> Tensor:
    """Images with the channels of a pixel side by side, marked so even for a single channel."""
    _, channels, height, width = x.shape
    strides = (height * width * channels, 1, width * channels, channels)
    return x.contiguous(memory_format=torch.channels_last).as_strided(x.shape, strides)


def hooked(net: nn.Module) -> bool:
    """Whether calling it may do more than its layers do."""
    return any(
        m._forward_hooks or m._forward_pre_hooks or m._backward_hooks or m._backward_pre_hooks
        for m in net.modules()
    )


def _inside(net: nn.Module) -> dict[str, nn.Module]:
    if type(net) is Net:
        trunk = {f"trunk.{k}": block for k, block in enumerate(net.trunk)}
        return {**trunk, "pool": net.pool, "dropout": net.dropout, "head": net.head}
    return dict(net._modules) if type(net) is nn.Sequential else {}
