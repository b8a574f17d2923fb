"""The network of nodes as a server knows it: names and shapes of tensors, and what is frozen."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from itertools import zip_longest
from typing import NamedTuple

import torch
from torch import Tensor

from undrift.core.problem import Problem
from undrift.engines.format import KINDS, TYPES, content, form
from undrift.flower.compat import NoFederation
from undrift.models.layout import Layout, StateDict, unflatten
from undrift.records.models import Network

FROZEN = "frozen."
"""What the names of frozen tensors begin with in a message, beside the first point ``x``."""


def known(problem: Problem) -> StateDict | None:
    """The tensors of a problem's network by name; ``None`` where they do not make its model."""
    if not isinstance(problem, Network):
        return None
    state = StateDict.of(problem.module(problem.start()))
    if state.layout.dim != problem.dim or not {v.dtype for v in state.initial.values()} <= {*KINDS}:
        return None
    x = torch.arange(problem.dim, dtype=problem.dtype, device=problem.device)
    found, wanted = state.at(x), problem.tensors(x)
    if found.keys() != wanted.keys() or not all(torch.equal(found[n], wanted[n]) for n in found):
        return None  # a problem may order its weights otherwise, and a module its state_dict
    return state


def agreed(tables: Sequence[object], who: Callable[[int], str]) -> Described:
    """What all clients say of their network; ``who`` names one. Raises :class:`NoFederation`."""
    told: list[Described] = []
    for client, table in enumerate(tables):
        try:
            told.append(Described.read(table))
        except ValueError as error:
            text = f"{who(client)} describes its network in a way that cannot be read ({error})"
            raise NoFederation(text) from None
    others = {client: one.difference(told[0]) for client, one in enumerate(told)}
    if listed := [f"{who(client)}: {what}" for client, what in others.items() if what]:
        raise NoFederation(
            f"the clients do not have the same network; different from {who(0)} are "
            f"{', '.join(listed)}: put the same network, with the same weights, on every node"
        )
    return told[0]


class Described(NamedTuple):
    """What a node says of its network."""

    layout: Layout
    dtypes: Mapping[str, str]
    """Of every tensor of the state dict, in the words of safetensors."""
    tied: Mapping[str, str]
    frozen: str
    """The digest of what is not trained."""

    @classmethod
    def of(cls, state: StateDict) -> Described:
        dtypes = {name: KINDS[v.dtype] for name, v in state.initial.items()}
        return cls(state.layout, dtypes, state.tied, digest(state.frozen))

    def table(self) -> dict[str, object]:
        """For a message."""
        words = {"names": self.layout.names, "shapes": self.layout.shapes}
        return {**words, "dtypes": self.dtypes, "tied": self.tied, "frozen": self.frozen}

    @classmethod
    def read(cls, table: object) -> Described:
        """From a message. Raises :class:`ValueError` for what no network has."""
        match table:
            case {
                "names": [*names],
                "shapes": [*shapes],
                "dtypes": dict(dtypes),
                "tied": dict(tied),
                "frozen": str(frozen),
            } if all(isinstance(shape, list) for shape in shapes):
                layout = Layout(tuple(map(str, names)), tuple(map(tuple, shapes)))
                if (
                    all(type(n) is int and n >= 0 for shape in shapes for n in shape)
                    and len({*layout.names}) == len(names) == len(shapes)
                    and {*tied.values()} == {*layout.names}
                    and tied.keys() <= dtypes.keys()
                    and {*dtypes.values()} <= TYPES.keys()
                ):
                    return cls(layout, dtypes, tied, frozen)
        raise ValueError("no network has such tensors")

    def difference(self, first: Described) -> str:
        """What is not as on the first node; empty if nothing."""
        pairs = ([*zip(one.layout.names, one.layout.shapes, strict=True)] for one in (self, first))
        for here, there in zip_longest(*pairs, fillvalue=("nothing", ())):
            if here != there:
                texts = (f"{name!r} {[*shape]}" for name, shape in (here, there))
                return " in the place of ".join(texts)
        if self.dtypes != first.dtypes:
            return "the names or types of its tensors"
        if self.tied != first.tied:
            return "which of its tensors are tied"
        same = self.frozen == first.frozen
        return "" if same else "the values of what is not trained (frozen parameters and buffers)"

    def state(self, tensors: Mapping[str, Tensor]) -> StateDict:
        """The network that was described, from the first point and what is frozen.

        Raises :class:`ValueError` where these are not what was described.
        """
        frozen = {n.removeprefix(FROZEN): v for n, v in tensors.items() if n.startswith(FROZEN)}
        if digest(frozen) != self.frozen or frozen.keys() != self.dtypes.keys() - self.tied.keys():
            raise ValueError("its frozen tensors are not those that it has described")
        weights = unflatten(tensors["x"], self.layout)
        initial = {
            name: weights[self.tied[name]].to(TYPES[kind]) if name in self.tied else frozen[name]
            for name, kind in self.dtypes.items()
        }
        return StateDict(self.layout, self.tied, initial)


def digest(tensors: Mapping[str, Tensor]) -> str:
    """The SHA-256 of tensors by name."""
    found = hashlib.sha256()
    for name in sorted(tensors):
        tensor = tensors[name].detach().cpu().contiguous()
        found.update(form(name, tensor))
        found.update(content(tensor))
    return found.hexdigest()
