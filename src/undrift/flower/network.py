"""The network of nodes as a server knows it: names and shapes of tensors, and what is frozen."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any

import torch
from torch import Tensor

from undrift.core.problem import Problem
from undrift.engines.messages.format import KINDS, content, form
from undrift.flower.compat import NoFederation
from undrift.models.layout import Layout, StateDict
from undrift.records.models import Network

Description = Mapping[str, Any]
"""What a node says of its network, as JSON has it: the ``names`` of what is trained in their order,
the trained tensor that a name is ``tied`` to, and a ``digest`` of these, of all names, types and
shapes, and of what is frozen.
"""


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


def described(state: StateDict) -> dict[str, Any]:
    """What a node says of its network."""
    about = {"names": [*state.layout.names], "tied": dict(state.tied)}
    found = hashlib.sha256(json.dumps(about, sort_keys=True).encode())
    for name, tensor in sorted(state.initial.items()):
        found.update(form(name, tensor))
        if name not in state.tied:
            found.update(content(tensor.detach().cpu().contiguous()))
    return {**about, "digest": found.hexdigest()}


def agreed(tables: Sequence[Description], who: Callable[[int], str]) -> Description:
    """What all clients say of their network; ``who`` names one. Raises :class:`NoFederation`."""
    for client, table in enumerate(tables):
        if table != tables[0]:
            raise NoFederation(
                f"{who(0)} and {who(client)} do not have the same network: put the same one, with "
                "the same frozen weights, on every node"
            )
    return tables[0]


def state_of(table: Description, tensors: Mapping[str, Tensor]) -> StateDict:
    """The network that was described, from its state dict. Raises ``ValueError`` if it is not."""
    with suppress(KeyError, TypeError, ValueError):
        names = tuple(table["names"])
        shapes = tuple(tuple(tensors[name].shape) for name in names)
        found = StateDict(Layout(names, shapes), dict(table["tied"]), dict(tensors))
        # Each name stands for numbers of a vector: a description may name what is not there.
        whole = {*found.tied.values()} == {*names} and found.tied.keys() <= tensors.keys()
        if whole and described(found) == table:
            return found
    raise ValueError("names, shapes or frozen weights are not those of the nodes' network")


def start_of(state: StateDict, dtype: torch.dtype) -> Tensor:
    """The vector that a run begins with."""
    return torch.cat([state.initial[name].reshape(-1) for name in state.layout.names]).to(dtype)
