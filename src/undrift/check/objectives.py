"""The checks of a local loss. Each takes its class and raises :class:`Failure`."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from undrift.check.checks import (
    CPU,
    FINE,
    by_name,
    close,
    drawing_nothing,
    expect,
    expect_meanings,
    expect_slope,
    shape_of,
)
from undrift.data.images import ImageSet
from undrift.models import build
from undrift.objectives.base import Batch, Network, Objective, Others
from undrift.problems.neural.problem import Neural

CLASSES = 3
PARTS = [np.arange(0, 7), np.arange(7, 11), np.arange(11, 24)]
"""Clients of different sizes, so that batches are padded."""


def number(cls: type[Objective]) -> None:
    """It is one finite number for a mini-batch."""
    world = _World(cls)
    found = world.loss(world.points()[0])
    one = isinstance(found, Tensor) and found.shape == ()
    expect(one, f"it is {shape_of(found)}, not one number")
    expect(found.isfinite(), "it is not finite")


def gradient(cls: type[Objective]) -> None:
    """Its gradient in the local model is its slope, by finite differences."""
    world = _World(cls)
    y = world.points()[0]
    slope = world.slope(y)
    expect(slope.any(), "its gradient is zero: no loss of the local model, or one that is detached")
    expect_slope(lambda y: float(world.loss(y)), y, slope)


def padding(cls: type[Objective]) -> None:
    """Rows of weight zero, which only fill a batch up, do not change it."""
    world = _World(cls)
    y = world.points()[0]
    plain, padded = world.loss(y), world.loss(y, padded=True)
    expect(
        close(padded, plain),
        "rows of weight 0 change it: multiply by batch.weights and sum, take no mean over rows",
    )


def clients(cls: type[Objective]) -> None:
    """A client's gradient does not depend on who else is in the cohort."""
    world = _World(cls)
    y = world.points()
    whole = world.grads(y, np.arange(len(PARTS)))
    for k in range(len(PARTS)):
        alone = world.grads(y[k : k + 1], np.array([k]))
        expect(
            close(whole[k], alone[0]), f"client {k} has another gradient alone than beside others"
        )


def purity(cls: type[Objective]) -> None:
    """It changes none of its arguments and draws nothing."""
    world = _World(cls)
    with drawing_nothing():
        y, batch = world.points()[0], world.batch()
        kept = [part.clone() for part in batch]
        first = world.loss(y, batch=batch)
        same = all(torch.equal(a, b) for a, b in zip(batch, kept, strict=True))
        expect(same, "it changes the mini-batch")
        again = world.loss(y, batch=batch)
        expect(torch.equal(first, again), "it is another number the second time")


def documented(cls: type[Objective]) -> None:
    """A title, and a docstring that explains every parameter."""
    expect(cls.title, "a title must be given, which lists show")
    expect_meanings(cls)


CHECKS = by_name(number, gradient, padding, clients, purity, documented)


class _World:
    """A network on random images, with the loss that is checked."""

    def __init__(self, cls: type[Objective]):
        draw = torch.Generator().manual_seed(0)
        images = torch.randint(256, (24, 1, 4, 4), dtype=torch.uint8, generator=draw)
        labels = torch.arange(24) % CLASSES
        names = tuple("abc")
        data = ImageSet(images, labels, images[:6], labels[:6], names, "random")
        self.objective = cls()
        net = build("mlp", 1, 4, CLASSES, hidden=(6, 5))
        self.problem = Neural(net, data, PARTS, objective=self.objective).to(FINE, CPU)

    def points(self) -> Tensor:
        draw = torch.Generator().manual_seed(1)
        away = torch.randn(len(PARTS), self.problem.dim, dtype=FINE, generator=draw)
        return self.problem.start().to(FINE) + 0.1 * away

    def batch(self, padded: bool = False) -> Batch:
        """Five samples of the first client; ``padded``: and two rows that do not count."""
        placed = self.problem.placed
        rows = placed.prepared(placed.samples.train.take(torch.tensor([0, 1, 2, 3, 4, 5, 6])))
        assert isinstance(rows.x, Tensor) and isinstance(rows.y, Tensor)
        weights = torch.tensor([0.2] * 5 + [0.0] * 2, dtype=FINE)
        whole = Batch(rows.x, rows.y, weights)
        return whole if padded else Batch(*(part[:5] for part in whole))

    def loss(self, y: Tensor, padded: bool = False, batch: Batch | None = None) -> Tensor:
        needs, counts = self.objective.needs, self.problem.label_counts()
        others = Others(
            self._bound(self.points()[1]) if "global" in needs else None,
            self._bound(self.points()[2]) if "previous" in needs else None,
            counts[0] if counts is not None and "label_counts" in needs else None,
        )
        found = self.objective.loss(self._bound(y), batch or self.batch(padded), others)
        return found.detach() if not y.requires_grad else found

    def slope(self, y: Tensor) -> Tensor:
        y = y.clone().requires_grad_()
        found = self.loss(y)
        if not found.requires_grad:
            return torch.zeros_like(y)
        return torch.autograd.grad(found, y)[0]

    def grads(self, y: Tensor, members: np.ndarray) -> Tensor:
        f = self.problem.at(members)
        f.begin(self.points()[members], self.points()[members] + 0.1)
        batch = torch.tensor([[0, 1, -1]] * len(members))
        return f.grad(y, batch)

    def _bound(self, y: Tensor) -> Network:
        return self.problem.placed.network.bound(y)
