"""The network of nodes as a server knows it: names and shapes of tensors, and what is frozen."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from undrift.core.problem import Problem
from undrift.engines.messages.format import KINDS, TYPES, content, form
from undrift.flower.compat import NoFederation
from undrift.models.layout import Layout, StateDict, unflatten
from undrift.records.models import Network

FROZEN = "frozen."
"""What the names of frozen tensors begin with in a message, beside the first point ``x``."""

Description = Mapping[str, Any]
"""What a node says of its network, as JSON has it: ``names`` and ``shapes`` of what is trained,
the ``dtypes`` of all tensors of the state dict in the words of safetensors, the trained tensor that
a name is ``tied`` to, and ``frozen``, the digest of what is not trained.
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


def described(state: StateDict) -> dict[str, object]:
    """What a node says of its network."""
    return {
        "names": [*state.layout.names],
        "shapes": [[*shape] for shape in state.layout.shapes],
        "dtypes": {name: KINDS[v.dtype] for name, v in state.initial.items()},
        "tied": dict(state.tied),
        "frozen": digest(state.frozen),
    }


def agreed(tables: Sequence[Description], who: Callable[[int], str]) -> Description:
    """What all clients say of their network; ``who`` names one. Raises :class:`NoFederation`."""
    for client, table in enumerate(tables):
        if not _possible(table):
            raise NoFederation(f"{who(client)} describes what no network is: {str(table)[:200]}")
        if what := difference(table, tables[0]):
            raise NoFederation(
                f"the clients do not have the same network ({who(0)}, {who(client)}): {what}; put "
                "the same network, with the same weights, on every node"
            )
    return tables[0]


def difference(one: Description, other: Description) -> str:
    """Which parts of two descriptions are not the same; empty if all are."""
    return ", ".join(name for name in other if one[name] != other[name])


def layout(table: Description) -> Layout:
    return Layout(tuple(table["names"]), tuple(map(tuple, table["shapes"])))


def state_of(table: Description, tensors: Mapping[str, Tensor]) -> StateDict:
    """The network that was described, from the first point and what is frozen.

    Raises :class:`ValueError` where these are not what was described.
    """
    tied, dtypes = table["tied"], table["dtypes"]
    frozen = {n.removeprefix(FROZEN): v for n, v in tensors.items() if n.startswith(FROZEN)}
    if digest(frozen) != table["frozen"] or frozen.keys() != dtypes.keys() - tied.keys():
        raise ValueError("its frozen tensors are not those that it has described")
    weights = unflatten(tensors["x"], layout(table))
    initial = {
        name: weights[tied[name]].to(TYPES[kind]) if name in tied else frozen[name]
        for name, kind in dtypes.items()
    }
    return StateDict(layout(table), tied, initial)


def _possible(table: object) -> bool:
    """Whether a network can be like that: nodes may say anything."""
    match table:
        case {
            "names": [*names],
            "shapes": [*shapes],
            "dtypes": dict(dtypes),
            "tied": dict(tied),
            "frozen": str(),
        } if all(isinstance(shape, list) for shape in shapes):
            return (
                all(type(n) is int and n >= 0 for shape in shapes for n in shape)
                and all(isinstance(name, str) for name in names)
                and len({*names}) == len(names) == len(shapes)
                and {*tied.values()} == {*names}
                and tied.keys() <= dtypes.keys()
                and {*dtypes.values()} <= TYPES.keys()
            )
    return False


def digest(tensors: Mapping[str, Tensor]) -> str:
    """The SHA-256 of tensors by name."""
    found = hashlib.sha256()
    for name in sorted(tensors):
        tensor = tensors[name].detach().cpu().contiguous()
        found.update(form(name, tensor))
        found.update(content(tensor))
    return found.hexdigest()
