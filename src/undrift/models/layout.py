"""Weights as one vector, and back: as views for ``functional_call``, or as a state dict."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping

import torch
from torch import Tensor, nn


@dataclasses.dataclass(frozen=True)
class Layout:
    """Names and shapes of a module's trainable parameters, in the order of the vector."""

    names: tuple[str, ...]
    shapes: tuple[tuple[int, ...], ...]

    @property
    def sizes(self) -> tuple[int, ...]:
        """How many numbers each parameter has."""
        return tuple(map(math.prod, self.shapes))

    @property
    def dim(self) -> int:
        """The length of the vector."""
        return sum(self.sizes)


def flatten(module: nn.Module) -> tuple[Tensor, Layout]:
    """A copy of the trainable parameters as one vector ``[d]``, and how to read it.

    >>> vector, layout = flatten(nn.Linear(3, 2))
    >>> {name: tuple(value.shape) for name, value in unflatten(vector, layout).items()}
    {'weight': (2, 3), 'bias': (2,)}
    """
    parameters = {name: p for name, p in module.named_parameters() if p.requires_grad}
    if not parameters:
        raise ValueError(
            "there is nothing to train in this module: it has no parameters, or all of them are "
            "frozen; set requires_grad of some"
        )
    layout = Layout(tuple(parameters), tuple(tuple(p.shape) for p in parameters.values()))
    return torch.cat([p.detach().reshape(-1) for p in parameters.values()]), layout


def unflatten(vector: Tensor, layout: Layout) -> dict[str, Tensor]:
    """Views of ``vector`` by name; ``[C, d]`` gives every parameter a leading axis ``C``."""
    if vector.shape[-1] != layout.dim:
        raise ValueError(
            f"these weights are {layout.dim} numbers; got a vector of {vector.shape[-1]}"
        )
    parts = vector.split_with_sizes(layout.sizes, dim=-1)
    return {
        name: part.view((*vector.shape[:-1], *shape))
        for name, part, shape in zip(layout.names, parts, layout.shapes, strict=True)
    }


@dataclasses.dataclass(frozen=True)
class StateDict:
    """What is known of a module: how its weights lie in a vector, and all its tensors."""

    layout: Layout
    tied: Mapping[str, str]
    """Every trainable name of the state dict -> the name of its values in the layout."""
    initial: Mapping[str, Tensor]
    """The state dict that a run begins with."""

    @classmethod
    def of(cls, module: nn.Module) -> StateDict:
        """Of a module that is here."""
        state = module.state_dict()
        initial = {name: v for name, v in state.items() if isinstance(v, Tensor)}
        tied = {name: first for name, first in _trainable(module).items() if name in initial}
        return cls(flatten(module)[1], tied, initial)

    @property
    def frozen(self) -> dict[str, Tensor]:
        """What is not trained: buffers, and parameters that are frozen."""
        return {name: v for name, v in self.initial.items() if name not in self.tied}

    def at(self, x: Tensor) -> dict[str, Tensor]:
        """The state dict with the weights ``x [d]``, every tensor in its own precision."""
        found = unflatten(x.detach().cpu(), self.layout)
        return {
            name: torch.empty(v.shape, dtype=v.dtype).copy_(found[self.tied[name]])
            if name in self.tied
            else v
            for name, v in self.initial.items()
        }


def _trainable(module: nn.Module) -> dict[str, str]:
    """Every trainable name of a state dict -> the first name of that parameter."""
    first: dict[nn.Parameter, str] = {}
    found = {}
    for name, weight in module.named_parameters(remove_duplicate=False):
        if weight.requires_grad:
            found[name] = first.setdefault(weight, name)
    return found
