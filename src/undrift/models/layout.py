"""Weights as one vector, and back as views for ``torch.func.functional_call``."""

from __future__ import annotations

import dataclasses
import math

import torch
from torch import Tensor, nn


@dataclasses.dataclass(frozen=True)
class Spec:
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


def flatten(module: nn.Module) -> tuple[Tensor, Spec]:
    """A copy of the parameters as one vector ``[d]``, and how to read it; frozen ones are not in
    it.

    >>> vector, spec = flatten(nn.Linear(3, 2))
    >>> {name: tuple(value.shape) for name, value in unflatten(vector, spec).items()}
    {'weight': (2, 3), 'bias': (2,)}
    """
    parameters = {name: p for name, p in module.named_parameters() if p.requires_grad}
    if not parameters:
        frozen = any(True for _ in module.parameters())
        remedy = (
            "all of its parameters are frozen; set requires_grad of some"
            if frozen
            else "it has no parameters"
        )
        raise ValueError(f"there is nothing to train in this module: {remedy}")
    spec = Spec(tuple(parameters), tuple(tuple(p.shape) for p in parameters.values()))
    return torch.cat([p.detach().reshape(-1) for p in parameters.values()]), spec


def unflatten(vector: Tensor, spec: Spec) -> dict[str, Tensor]:
    """Views of ``vector`` by name; ``[C, d]`` gives every parameter a leading axis ``C``."""
    if vector.shape[-1] != spec.dim:
        raise ValueError(
            f"these weights are {spec.dim} numbers; got a vector of {vector.shape[-1]}"
        )
    parts = vector.split(spec.sizes, dim=-1)
    return {
        name: part.view(*vector.shape[:-1], *shape)
        for name, part, shape in zip(spec.names, parts, spec.shapes, strict=True)
    }
