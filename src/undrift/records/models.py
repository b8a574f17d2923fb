"""The models a run keeps: the last, and the best that was measured, of every method and seed."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, runtime_checkable

from undrift.core.params import unknown
from undrift.core.problem import Unsupported
from undrift.records.folder import MODELS, Folder
from undrift.records.journal import BadFolder
from undrift.records.outcome import Outcome

if TYPE_CHECKING:
    from torch import Tensor, nn

    from undrift.core.problem import Problem
    from undrift.records.best import Best

MOST = 2**21
"""Bytes of a file's head: the names and places of some 15,000 tensors."""
AGAIN = "undrift run SPEC --overwrite makes it anew"


def load(
    folder: Folder | Path | str, label: str, seed: int | None = None, best: bool = False
) -> dict[str, Tensor]:
    """The tensors of a method's last or best model, by name: a network's ``state_dict``, or ``x``.

    ``seed`` may be left out where there is one.
    """
    place = folder if isinstance(folder, Folder) else Folder(Path(folder))
    return read(find(place, label, seed, best)[1])


def read(path: Path) -> dict[str, Tensor]:
    """The tensors of a model's file; :class:`BadFolder` if it is not what was written."""
    from undrift.engines.messages import format

    try:
        return format.read(path, MOST)[1]
    except format.BadFormat as error:
        raise BadFolder(f"{path}: {error}; {AGAIN}") from None


def find(
    folder: Folder, label: str, seed: int | None = None, best: bool = False
) -> tuple[Outcome, Path]:
    """How that method ended, and the file of its model. Raises :class:`BadFolder`."""
    outcomes = folder.record().outcomes
    tables = [table for table in folder.document().get("method", []) if isinstance(table, dict)]
    labels = [
        *dict.fromkeys([str(table.get("label")) for table in tables] + [o.label for o in outcomes])
    ]
    if label not in labels:
        raise BadFolder(f"{folder.path}: {unknown('method', label, labels)}")
    ended = {outcome.seed: outcome for outcome in outcomes if outcome.label == label}
    if not ended or (seed is not None and seed not in ended):
        planned = folder.document().get("seed", [0])
        if seed is not None and seed not in planned:
            raise BadFolder(f"{folder.path}: {unknown('seed', str(seed), map(str, planned))}")
        raise BadFolder(
            f"{folder.path}: {label} has not ended; continue with undrift resume {folder.path}"
        )
    run = [outcome for outcome in ended.values() if outcome.same_as is None]
    if seed is None and len(run) > 1:
        seeds = ", ".join(map(str, ended))
        raise BadFolder(f"{folder.path}: {label} was run with several seeds: {seeds}; choose one")
    outcome = run[0] if seed is None else ended[seed]
    which = "best" if best else "last"
    if which not in outcome.files:
        why = outcome.note or "none was kept"
        raise BadFolder(f"{folder.path}: no {which} model of {label}: {why}")
    path = folder.file(outcome.files[which])
    if not path.is_file() or path.parent != folder.file(MODELS):
        raise BadFolder(f"{path} does not exist: {AGAIN}")
    return outcome, path


def keep(
    folder: Folder,
    problem: Problem,
    stem: str,
    about: Mapping[str, object],
    x: Tensor,
    best: Best | None,
) -> dict[str, str]:
    """Write the last model and, if it is another, the best; returns their files in the folder."""
    last = f"{MODELS}/{stem}-last.safetensors"
    _write(folder.file(last), problem, x, {**about, "which": "last"})
    if best is None or best.x is None:
        return {"last": last}
    if best.round == about["round"]:
        return {"last": last, "best": last}
    file = f"{MODELS}/{stem}-best.safetensors"
    _write(folder.file(file), problem, best.x, {**about, **best.about, "which": "best"})
    return {"last": last, "best": file}


def stems(labels: Iterable[str]) -> dict[str, str]:
    """File name stems of labels, different even where case does not count.

    >>> stems(["FedAvg", "a/b", "a b", "A_B"])
    {'FedAvg': 'FedAvg', 'a/b': 'a_b', 'a b': 'a_b.2', 'A_B': 'A_B.3'}
    """
    found: dict[str, str] = {}
    for k, label in enumerate(labels):
        stem = re.sub(r"[^A-Za-z0-9+-]", "_", label)
        taken = {other.casefold() for other in found.values()}
        found[label] = stem if stem.casefold() not in taken else f"{stem}.{k}"
    return found


@runtime_checkable
class Network(Protocol):
    """A problem whose model is a network."""

    def module(self, x: Tensor) -> nn.Module: ...


def vector(problem: Problem, parts: dict[str, Tensor]) -> Tensor:
    """The flat model of tensors by name: the inverse of :meth:`Problem.tensors`."""
    import torch

    if not isinstance(problem, Network):
        return parts["x"]
    net = problem.module(problem.start())
    net.load_state_dict(parts)
    weights = [p.detach().reshape(-1) for p in net.parameters() if p.requires_grad]
    return torch.cat(weights).to(problem.dtype).to(problem.device)


def module(problem: Problem, x: Tensor) -> nn.Module:
    """The network of a problem with the weights ``x``. Raises :class:`Unsupported`."""
    if not isinstance(problem, Network):
        raise Unsupported(
            f"{type(problem).__name__} is not a network: its model is the vector x of the run"
        )
    return problem.module(x)


def _write(path: Path, problem: Problem, x: Tensor, about: Mapping[str, object]) -> None:
    from undrift.engines.messages import format

    format.write(path, problem.tensors(x), {key: str(value) for key, value in about.items()})
