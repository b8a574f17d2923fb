"""A user's module as the server knows it: what all clients and the first weights agree on."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from flwr.app import Array, ArrayRecord
from torch import Tensor

from undrift.flower.exchange import NoFederation
from undrift.flower.user_module import digest
from undrift.models.layout import Layout
from undrift.models.state_dict import StateDict


class Model(StateDict):
    """The user's module as a server knows it."""

    @classmethod
    def agreed(
        cls,
        said: Sequence[Mapping[str, Any]],
        arrays: ArrayRecord,
        who: Callable[[int], str],
    ) -> Model:
        """What all clients and the server have in common; ``who`` names a client.

        Raises :class:`NoFederation`.
        """
        first, initial = said[0], dict(arrays.to_torch_state_dict())
        for field in ("names", "shapes", "dtype", "tied"):
            other = [k for k, about in enumerate(said) if about[field] != first[field]]
            if other:
                raise NoFederation(
                    f"{who(other[0])} has another model than {who(0)} ({field}): put the same "
                    "network on every node"
                )
        layout = Layout(tuple(first["names"]), tuple(map(tuple, first["shapes"])))
        dtype = getattr(torch, first["dtype"])
        for name, shape in zip(layout.names, layout.shapes, strict=True):
            if name not in initial:
                raise NoFederation(f"initial_arrays have no {name!r}, which the clients train")
            if tuple(initial[name].shape) != shape or initial[name].dtype != dtype:
                here = f"{initial[name].dtype} {list(initial[name].shape)}"
                there = f"{dtype} {list(shape)}"
                raise NoFederation(f"{name!r} is {here} in initial_arrays, {there} at the clients")
        frozen = digest({name: v for name, v in initial.items() if name not in first["tied"]})
        for client, about in enumerate(said):
            if about["frozen"] != frozen:
                raise NoFederation(
                    f"what is not trained (frozen parameters and buffers) is not the same at "
                    f"{who(client)} as in initial_arrays: load the same weights on every node"
                )
        return cls(layout, first["tied"], initial)

    def vector(self) -> Tensor:
        """Where a run begins."""
        return torch.cat([self.initial[name].reshape(-1) for name in self.layout.names])

    def record(self, x: Tensor) -> ArrayRecord:
        """A point as the arrays of a state dict."""
        return ArrayRecord({name: Array(v.numpy()) for name, v in self.at(x).items()})
