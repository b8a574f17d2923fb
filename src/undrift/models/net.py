"""What every network offers: features, a linear head, and an ordered list of blocks."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.modules.instancenorm import _InstanceNorm


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

    @property
    def blocks(self) -> list[nn.Module]:
        """The trunk's blocks, then pool, dropout and head as one: run one after another they are
        ``forward``.
        """
        return [*self.trunk, nn.Sequential(self.pool, self.dropout, self.head)]

    def features(self, x: Tensor) -> Tensor:
        """What the head sees, ``[n, head.in_features]``."""
        for block in self.trunk:
            x = block(x)
        return self.pool(x)

    def taps(self, x: Tensor) -> list[Tensor]:
        """The output of every trunk block."""
        outputs: list[Tensor] = []
        for block in self.trunk:
            outputs.append(x := block(x))
        return outputs

    def resume(self, tap: Tensor, level: int) -> Tensor:
        """Logits from the output of trunk block ``level``: the blocks ``level + 1``, ... run on it."""
        for block in list(self.trunk)[level + 1 :]:
            tap = block(tap)
        return self.classify(self.pool(tap))

    def classify(self, z: Tensor) -> Tensor:
        """Logits from features."""
        return self.head(self.dropout(z))

    def forward(self, x: Tensor, view: Callable[[Net, Tensor], Any] | None = None) -> Any:
        """Logits, or ``view(self, x)``: ``functional_call(net, weights, (x, Net.features))``
        reaches any method.
        """
        if view is not None:
            return view(self, x)
        return self.classify(self.features(x))


def with_projection(net: Net, out_dim: int = 256, *, seed: int = 0) -> Net:
    """A copy of ``net`` with MOON's projection (Linear d→d, ReLU, Linear d→``out_dim``) and a new
    head on top of it.

    ``features`` are then the projection's; the trunk keeps its weights.
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
    """Layers made inside take their weights from ``seed`` on the CPU; torch's own generators do not
    notice.
    """
    with torch.random.fork_rng(devices=[]), torch.device("cpu"):
        torch.default_generator.manual_seed(seed)
        yield


def refuse_batch_statistics(module: nn.Module) -> None:
    """Refuse layers whose output or state depends on the other samples of a batch."""
    for name, layer in module.named_modules():
        running = isinstance(layer, _InstanceNorm) and layer.track_running_stats
        if running or isinstance(layer, _BatchNorm):
            where = f" at {name!r}" if name else ""
            raise ValueError(
                f"the {type(layer).__name__}{where} keeps statistics of its batches, which clients with different data "
                "do not share; use GroupNorm instead"
            )
