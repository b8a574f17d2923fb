"""The state dict of a module that is elsewhere, from its weights as one vector."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

import torch
from torch import Tensor, nn

from undrift.models.layout import Layout, flatten, unflatten


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
