"""One client of a method in a ClientApp of a user's own."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path
from tempfile import gettempdir
from typing import Any

from flwr.app import Context, Message
from torch import nn

from undrift import __version__
from undrift._files import drawn_once, naming, write_whole
from undrift.core.method import Method
from undrift.engines.format import parse
from undrift.engines.generations import BadGeneration
from undrift.engines.node import Node, OneOf
from undrift.engines.packet import Packet
from undrift.flower.grid_carrier import packed, unpacked
from undrift.flower.reply import reply
from undrift.flower.user_module import Data, Loss, ModuleProblem
from undrift.methods import registry

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
    data: Data,
    loss: Loss | None = None,
    batch_loss: Loss | None = None,
    states: str | Path | None = None,
    client: int | None = None,
) -> Message:
    """Do what :func:`undrift.flower.strategy` asks of this node; return it from ``@app.train()``.

    ``model`` is the module in the place and precision it is to be trained in; what it holds is
    overwritten. ``data`` is this node's Dataset, or its DataLoader, whose batches must be as large
    as those of the strategy. ``loss(model(inputs), targets)`` is the mean loss of a batch that is a
    pair, ``batch_loss(model, batch)`` that of any other. ``states`` is a folder that outlives the
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
        problem = ModuleProblem(model, data, loss, batch_loss)
        _same_batches(problem, asked.table["setting"].get("batch"))
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


def _same_batches(problem: ModuleProblem, batch: int | None) -> None:
    (samples,) = problem.samples
    if problem.batch is None or min(problem.batch, samples) == min(batch or samples, samples):
        return
    size = "all samples" if batch is None else f"{batch}"
    raise ValueError(
        f"the loader has batches of {problem.batch}, and the strategy of {size}: "
        f"strategy(..., batch={problem.batch}), or give the dataset in the place of the loader"
    )
