"""Whether the tensors of a saved run are those of a method on a problem."""

from __future__ import annotations

from collections.abc import Collection, Mapping

import torch

from undrift.core.method import Method
from undrift.core.problem import Facts, Problem

WRITTEN = "client_members"
"""The clients whose states are saved, in ascending order; all of them where it is left out."""


def check_saved(
    tensors: Mapping[str, torch.Tensor],
    method: Method,
    problem: Problem | Facts,
    dtype: torch.dtype,
    needed: Collection[str],
) -> None:
    """Raise ``ValueError`` unless tensors have the right names, shapes and type.

    ``needed`` are the names of those that are always there, besides the server's.
    """
    required = {f"server.{name}" for name in method.Server.vectors} | {*needed}
    optional = {WRITTEN, *(name for name in tensors if name.startswith("stale."))}
    missing, unknown = required - set(tensors), set(tensors) - required - optional
    if missing or unknown:
        words = f"missing {sorted(missing)}, unknown {sorted(unknown)}"
        raise ValueError(f"the saved state is not one of {type(method).__name__}: {words}")
    members = tensors.get(WRITTEN, torch.arange(problem.clients))
    bounded = torch.tensor([-1, *members.flatten().tolist(), problem.clients])
    if members.ndim != 1 or bool((bounded.diff() < 1).any()):
        raise ValueError(f"the saved {WRITTEN} are not clients from 0 to {problem.clients - 1}")
    one, rows = (problem.dim,), (len(members), problem.dim)
    shapes = {"server": one, "reduction": one, "client": rows, "client_previous": rows}
    for name, tensor in tensors.items():
        shape = shapes.get(name.split(".")[0])
        if shape is not None and (tuple(tensor.shape), tensor.dtype) != (shape, dtype):
            found = f"{tensor.dtype} {list(tensor.shape)}"
            raise ValueError(f"the saved {name} is {found}, not {dtype} {list(shape)}")
