"""The models a run keeps: the last, and the best that was measured, of every method and seed."""

from __future__ import annotations

import dataclasses
import json
import math
import re
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, runtime_checkable

from undrift.core.problem import Unsupported
from undrift.core.stopping import USUALLY, Goal, of_some
from undrift.records.folder import MODELS, BadFolder, Folder
from undrift.records.rows import Outcome, Row, choose

if TYPE_CHECKING:
    from torch import Tensor, nn

    from undrift.core.problem import Problem

MOST = 2**21
"""Bytes of a file's head: the names and places of some 15,000 tensors."""
AGAIN = "undrift run SPEC --overwrite makes it anew"


def read(path: Path) -> dict[str, Tensor]:
    """The tensors of a model's file; :class:`BadFolder` if it is not what was written."""
    from undrift.engines.messages import format

    try:
        return format.read(path, MOST)[1]
    except (OSError, format.BadFormat) as error:
        raise BadFolder(f"{path}: {error}; {AGAIN}") from None


def find(
    folder: Folder, label: str, seed: int | None = None, best: bool = False
) -> tuple[Outcome, Path]:
    """How that method ended, and the file of its model. Raises :class:`BadFolder`."""
    ended = {outcome.key: outcome for outcome in folder.record().outcomes}
    # Without a seed, one that stands for others counts once; each of them can be asked for.
    run = [key for key, outcome in ended.items() if outcome.same_as is None]
    try:
        outcome = ended[choose(run if seed is None else ended, label, seed)]
    except KeyError as error:
        some = f"of those that have ended, {error.args[0]}" if ended else "no method has ended yet"
        raise BadFolder(f"{folder.path}: {some}") from None
    which = "best" if best else "last"
    if which not in outcome.files:
        why = outcome.note or "none was kept"
        raise BadFolder(f"{folder.path}: no {which} model of {label}: {why}")
    return outcome, folder.file(outcome.files[which])


def keep(
    folder: Folder,
    problem: Problem,
    stem: str,
    about: Mapping[str, object],
    x: Tensor,
    best: Best | None,
) -> dict[str, str]:
    """Write the last model and, if it is another, the best; returns their files in the folder."""
    from undrift.engines.messages import format

    files = {"last": f"{MODELS}/{stem}-last.safetensors"}
    wanted = [(x, {**about, "which": "last"})]
    if best is not None and best.x is not None:
        files["best"] = files["last"]
        if best.round != about["round"]:
            files["best"] = f"{MODELS}/{stem}-best.safetensors"
            wanted.append((best.x, {**about, **best.about, "which": "best"}))
    for model, facts in wanted:
        words = {key: str(value) for key, value in facts.items()}
        if problem.columns:
            words["columns"] = json.dumps(problem.columns)
        format.write(folder.file(files[words["which"]]), problem.tensors(model), words)
    return files


def stem(k: int, label: str, seed: int | None = None) -> str:
    """What the names of files of the k-th method begin with, whatever characters its label has.

    >>> stem(2, "a/b"), stem(2, "a/b", 0)
    ('2-a_b', '2-a_b-0')
    """
    name = f"{k}-{re.sub(r'[^A-Za-z0-9+-]', '_', label)}"
    return name if seed is None else f"{name}-{seed}"


@runtime_checkable
class Network(Protocol):
    """A problem whose model is a network."""

    def module(self, x: Tensor) -> nn.Module: ...


def vector(problem: Problem, parts: dict[str, Tensor]) -> Tensor:
    """The flat model of tensors by name: the inverse of :meth:`Problem.tensors`."""
    import torch

    if not isinstance(problem, Network):
        return parts["x"]
    # Through a module, not by names: tied weights stand under several, frozen ones in none of x.
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


@dataclasses.dataclass(repr=False)
class Best:
    """The best model that a run has measured so far."""

    problem: Problem
    goal: Goal = USUALLY
    metric: str = ""
    """What it is best in."""
    value: float = math.nan
    round: int = -1
    x: Tensor | None = None

    def see(self, row: Row, x: Tensor) -> None:
        """Compare with another one, if all clients measured it; of equals the first stays, unless
        it is the model before any training.
        """
        # A mean over the clients that answered may be best because the hard ones were away.
        if of_some(row):
            return
        metric = self.goal.column(row)
        value = row[metric]
        none = self.x is None or (self.round == 0 and value == self.value)
        if self.goal.better(metric, value, None if none else self.value):
            self.metric, self.value, self.round, self.x = metric, value, row["round"], x.clone()

    @property
    def about(self) -> dict[str, object]:
        return {"metric": self.metric, "value": self.value, "round": self.round}

    def module(self) -> nn.Module:
        """The network with this model, where the problem is one."""
        assert self.x is not None
        return module(self.problem, self.x)

    def __repr__(self) -> str:
        return f"Best({self.metric} = {self.value:.6g} in round {self.round})"
