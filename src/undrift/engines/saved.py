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
    missing, extra = required - set(tensors), set(tensors) - required - optional
    if missing or extra:
        words = [f"missing {', '.join(sorted(missing))}"] if missing else []
        words += [f"unknown {', '.join(sorted(extra))}"] if extra else []
        name = type(method).__name__
        raise ValueError(f"the saved state is not one of {name}: {'; '.join(words)}")
    members = tensors.get(WRITTEN, torch.arange(problem.clients))
    bounded = torch.nn.functional.pad(members, (1, 0), value=-1)
    bounded = torch.nn.functional.pad(bounded, (0, 1), value=problem.clients)
    if members.ndim != 1 or bool((bounded.diff() < 1).any()):
        raise ValueError(f"the saved {WRITTEN} are not clients from 0 to {problem.clients - 1}")
    one, all_clients = (problem.dim,), (len(members), problem.dim)
    shapes = {"server": one, "reduction": one, "client": all_clients}
    shapes["client_previous"] = all_clients
    for name, tensor in tensors.items():
        shape = shapes.get(name.split(".")[0])
        if shape is not None and tuple(tensor.shape) != shape:
            raise ValueError(f"the saved {name} has shape {tuple(tensor.shape)}, not {shape}")
        if shape is not None and tensor.dtype != dtype:
            raise ValueError(f"the saved {name} is {tensor.dtype}, not {dtype}")
