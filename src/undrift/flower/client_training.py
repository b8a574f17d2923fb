"""One client of a method in a ClientApp of a user's own."""

from __future__ import annotations

import os
import random
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import gettempdir
from typing import Any, NoReturn

import numpy as np
import torch
from flwr.app import Context, Message
from torch import Tensor, nn
from torch.utils.data import Dataset, default_collate

from undrift import __version__
from undrift._files import drawn_once, naming, write_whole
from undrift.core.method import Method
from undrift.core.problem import Oracle, Problem
from undrift.engines.format import parse
from undrift.engines.generations import BadGeneration
from undrift.engines.node import Node, OneOf
from undrift.engines.packet import Packet
from undrift.flower.grid_carrier import packed, unpacked
from undrift.flower.network import described
from undrift.flower.reply import reply
from undrift.methods import registry
from undrift.models.batch_norm import refuse_batch_statistics
from undrift.models.layout import StateDict, flatten, unflatten

CHUNK = 256
"""Samples that a gradient on all of them takes at a time."""
FEW = 4
"""Samples that a module and a loss are tried on."""

Loss = Callable[[Any, Any], Tensor]
Collate = Callable[[list[Any]], Any]
FIRST = "first.safetensors"
"""The file of what a run began with, its point and everybody's samples, beside the states."""
MOST = 2**16
RUN = re.compile(r"[0-9a-f]{32}")
STATES = "undrift-states-"
MADE = re.compile(STATES + r"\w+")


def train(
    msg: Message,
    context: Context,
    *,
    model: nn.Module,
    data: Dataset[Any],
    loss: Loss | None = None,
    batch_loss: Loss | None = None,
    collate: Collate = default_collate,
    states: str | Path | None = None,
    client: int | None = None,
) -> Message:
    """Do what :func:`undrift.flower.strategy` asks of this node; return it from ``@app.train()``.

    ``model`` is the module in the place and precision it is to be trained in; what it holds is
    overwritten. ``data`` is this node's Dataset with a length, which ``collate`` makes batches of.
    ``loss(model(inputs), targets)`` is the mean loss of a batch that is a pair,
    ``batch_loss(model, batch)`` that of any other. ``states`` is a folder that outlives the
    process, for what the client has to remember; left out, it is ``states`` of the node's config,
    or a temporary folder of the server's if that is on this machine, as in Flower's simulation.
    ``client`` numbers the clients from 0; left out, it is ``partition-id`` of the node's config, or
    whatever number the server gives.

    Whatever goes wrong is told to the server, which stops with the reason.
    """
    try:
        asked = unpacked(msg.content)
    except ValueError as error:
        text = "undrift.flower.train answers the messages of undrift.flower.strategy alone"
        raise ValueError(f"{text}: {error}") from None

    def work() -> Packet:
        number = _numbered(client, context, int(asked.table["clients"]))
        here = _here(states, context, asked.table["states"], number)
        problem = ModuleProblem(model, data, loss, batch_loss, collate)
        if asked.table["do"] == "hello":
            problem.check()
            part = {} if number is None else {"part": number}
            about = {"name": drawn_once(here / "name"), "version": __version__}
            return Packet({**about, **part, **problem.about()}, asked.content)
        return _worked(asked, problem, here)

    return Message(packed(reply(work)), reply_to=msg)


def _worked(asked: Packet, problem: ModuleProblem, folder: Path) -> Packet:
    """One phase."""
    table = asked.table
    if not RUN.fullmatch(run := str(table["run"])):
        raise ValueError(f"{run!r} is not the name of a run")
    client, begun = int(table["client"]), table["before"] is not None
    place = folder / run / str(client) / FIRST
    size = len(asked.content) - (0 if begun else int(table["first"]))
    frame, first = asked.content[:size], asked.content[size:]
    if begun and not place.exists():
        raise BadGeneration(f"{place}: what this run began with is not on this node")
    known = parse(place.read_bytes() if begun else first, MOST)
    one = OneOf(problem, client, known["samples"].tolist())
    setting = {**table["setting"], "x0": known["x"]}
    node = Node(_method(table), one, folder, setting, table["seed"])
    if node.run != run:
        raise BadGeneration(
            f"this node makes another run ({node.run}) of what the server asks ({run}): it has "
            f"another version of undrift or of the method, or {place} is damaged"
        )
    if not begun:
        with naming(place):
            node.states.make_folder()
            write_whole(place, first)
    return node.do(Packet(table, frame))


def _method(table: Mapping[str, Any]) -> Method:
    kind = registry.get(str(table["method"]))
    if kind is None:
        raise ValueError(
            f"this node has no method {table['method']}: import the module that defines it"
        )
    return kind(**table["values"])


def _here(states: str | Path | None, context: Context, made: object, number: int | None) -> Path:
    """``made`` is the name of the server's folder for nodes of its own machine and user."""
    found = states if states is not None else context.node_config.get("states")
    if found is None and number is not None and MADE.fullmatch(str(made)):
        place = Path(gettempdir(), str(made))
        if place.is_dir() and place.stat().st_uid == getattr(os, "getuid", lambda: 0)():
            found = place / str(number)
    if not isinstance(found, str | Path) or not str(found):
        raise ValueError(
            "say where this node keeps what the method has to remember: train(..., states=FOLDER), "
            "or flower-supernode --node-config \"states='FOLDER'\""
        )
    return Path(found).expanduser()


def _numbered(client: int | None, context: Context, clients: int) -> int | None:
    found = client if client is not None else context.node_config.get("partition-id")
    if found is None:
        return None
    if not isinstance(found, int) or isinstance(found, bool) or not 0 <= found < clients:
        raise ValueError(f"there is no client {found!r} among {clients}: they are numbered from 0")
    return found


class ModuleProblem(Problem):
    """f is the mean loss of ``model`` on ``data``; a point is its trainable parameters.

    ``loss(model(inputs), targets)`` is the mean loss of a batch that is a pair; for any other batch
    ``batch_loss(model, batch)`` is. The engine draws the mini-batches. Before every gradient the
    generators of torch, NumPy and Python are set to what the engine has drawn, so that dropout and
    random transforms can be repeated.

    ``undrift.Neural`` cannot take its place: it evaluates whole tables of samples by a functional
    call with a loss per sample, where here a batch is whatever ``collate`` gives, made anew by the
    dataset's transforms, and its loss one number of a function that is the user's own.
    """

    clients = 1
    differentiates = True
    keyed = True

    def __init__(
        self,
        model: nn.Module,
        data: Any,
        loss: Loss | None,
        batch_loss: Loss | None = None,
        collate: Collate = default_collate,
    ):
        if not isinstance(model, nn.Module):
            raise TypeError(f"model must be a torch.nn.Module; got a {type(model).__name__}")
        if (loss is None) == (batch_loss is None):
            raise TypeError("give loss(outputs, targets), or batch_loss(model, batch)")
        refuse_batch_statistics(model)
        self.model, self.loss, self.batch_loss = model, loss, batch_loss
        self.first, self.layout = flatten(model)
        self.weights = [model.get_parameter(name) for name in self.layout.names]
        self.dim, self.dtype, self.device = self.layout.dim, self.first.dtype, self.first.device
        kinds = {weight.dtype for weight in self.weights}
        if not kinds <= {torch.float32} and not kinds <= {torch.float64}:
            listed = ", ".join(sorted(map(str, kinds)))
            raise ValueError(f"the trainable parameters are {listed}: use float32, or float64")
        if not hasattr(data, "__getitem__") or not hasattr(data, "__len__"):
            raise TypeError(
                f"data is a {type(data).__name__}: give a Dataset with a length, that of a loader "
                "as data=loader.dataset, collate=loader.collate_fn"
            )
        self.data, self.collate, self.samples = data, collate, [len(data)]
        if not self.samples[0]:
            raise ValueError("this client has no samples")

    def at(self, members: np.ndarray | None = None) -> ModuleOracle:
        return ModuleOracle(self)

    def to(self, dtype: torch.dtype, device: torch.device) -> NoReturn:
        raise RuntimeError("a module of a user's own stays where it is")

    def start(self) -> Tensor:
        return self.first.clone()

    def gradient(self, x: Tensor, samples: Sequence[int] | None, seed: int | None) -> Tensor:
        """At ``x [d]``, on some samples or all; without a seed nothing is dropped."""
        with torch.no_grad():
            values = unflatten(x, self.layout).values()
            for weight, value in zip(self.weights, values, strict=True):
                weight.copy_(value)
        self.model.train(seed is not None)
        parts = [samples] if samples is not None else _chunks(self.samples[0])
        total = torch.zeros_like(x)
        with _seeded(seed or 0, self.device), torch.enable_grad():
            for part in parts:
                share = 1.0 if samples is not None else len(part) / self.samples[0]
                loss = self.mean_loss(part)
                found = torch.autograd.grad(loss, self.weights, materialize_grads=True)
                total.add_(torch.cat([g.reshape(-1) for g in found]), alpha=share)
        return total

    def mean_loss(self, samples: Sequence[int]) -> Tensor:
        """Of the module as it is."""
        batch = _placed(self.collate([self.data[i] for i in samples]), self.device)
        if self.batch_loss is not None:
            return self.batch_loss(self.model, batch)
        assert self.loss is not None
        if not isinstance(batch, Sequence) or len(batch) != 2:
            raise ValueError(
                f"a batch is a {type(batch).__name__}, not a pair of inputs and targets: give "
                "batch_loss(model, batch) in the place of loss"
            )
        return self.loss(self.model(batch[0]), batch[1])

    def check(self) -> None:
        """Try module and loss on a few samples. Raises :class:`ValueError`."""
        some = [*range(min(FEW, self.samples[0]))]
        buffers = {name: buffer.clone() for name, buffer in self.model.named_buffers()}
        self.model.train(False)
        with torch.no_grad(), _seeded(0, self.device):
            together = self.mean_loss(some)
            if together.dim():
                text = f"the loss of a batch is {list(together.shape)} numbers, not one"
                raise ValueError(f"{text}: take its mean")
            alone = sum(float(self.mean_loss([i])) for i in some)
        if len(some) > 1 and abs(alone) > 1e-6 and abs(float(together) / alone - 1) < 1e-3:
            raise ValueError("the loss adds up the samples of a batch: take their mean")
        self.gradient(self.first, some, 0)
        for name, buffer in self.model.named_buffers():
            if not torch.equal(buffer, buffers[name]):
                raise ValueError(
                    f"the model changes its buffer {name!r} in training, which clients do not "
                    "share: leave out the layer that does so"
                )

    def about(self) -> dict[str, Any]:
        """What a server may know of it."""
        return {"samples": self.samples[0], "network": described(StateDict.of(self.model))}


class ModuleOracle(Oracle):
    """The gradient of a module, one row after another."""

    def __init__(self, problem: ModuleProblem):
        self.problem = problem

    def grad(
        self,
        y: Tensor,
        batch: Tensor | None = None,
        draws: object = None,
        keys: Tensor | None = None,
    ) -> Tensor:
        positions = None if batch is None else [at for at in batch[0].tolist() if at >= 0]
        seed = None if keys is None else int(keys[0])
        return self.problem.gradient(y[0], positions, seed).unsqueeze(0)


def _chunks(count: int) -> list[range]:
    return [range(at, min(at + CHUNK, count)) for at in range(0, count, CHUNK)]


def _placed(batch: Any, device: torch.device) -> Any:
    if isinstance(batch, Tensor):
        return batch.to(device)
    if isinstance(batch, Mapping):
        return {name: _placed(part, device) for name, part in batch.items()}
    if isinstance(batch, list):
        return [_placed(part, device) for part in batch]
    if type(batch) is tuple:
        return tuple(_placed(part, device) for part in batch)
    return batch


@contextmanager
def _seeded(seed: int, device: torch.device) -> Iterator[None]:
    """The generators of the process begin at ``seed``, and are afterwards as they were."""
    own, numpys = random.getstate(), np.random.get_state()
    with torch.random.fork_rng([device] if device.type == "cuda" else []):
        random.seed(seed)
        np.random.seed(seed % 2**32)
        torch.manual_seed(seed)
        try:
            yield
        finally:
            random.setstate(own)
            np.random.set_state(numpys)
