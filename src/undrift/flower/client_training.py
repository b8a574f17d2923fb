"""One client of a method in a ClientApp of a user's own."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path
from tempfile import gettempdir
from typing import Any

from flwr.app import Context, Message

from undrift import __version__
from undrift._files import drawn_once
from undrift.core.method import Method
from undrift.engines.messages.format import parse
from undrift.engines.messages.packet import Packet
from undrift.engines.node import BadNodeStates, Node, OneOf
from undrift.flower.grid_carrier import packed, unpacked
from undrift.flower.network import described, known
from undrift.flower.reply import reply, told
from undrift.methods import registry
from undrift.problems.neural.problem import Neural

FIRST = "first"
"""The file of what a node is told once: the first point and everybody's samples. It is not called
as states are, which are removed when they are no longer needed.
"""
MOST = 2**16
RUN = re.compile(r"[0-9a-f]{32}")
STATES = "undrift-states-"
MADE = re.compile(STATES + r"\w+")


def train(
    msg: Message,
    context: Context,
    problem: Neural,
    *,
    states: str | Path | None = None,
) -> Message:
    """Do what :func:`undrift.flower.strategy` asks of this node; return it from ``@app.train()``.

    ``problem`` is :class:`undrift.Neural` with this node's data alone, in the place and precision
    it is to be trained in: ``Neural(Net(), [data], loss=loss)``. ``states`` is a folder that
    outlives the process, for what the client has to remember; left out, it is ``states`` of the
    node's config, or a temporary folder of the server's if that is on this machine, as in Flower's
    simulation. Which client it is, from 0, is ``partition-id`` of the node's config; left out, the
    server gives it a number.

    Whatever goes wrong is told to the server, which stops with the reason.
    """
    asked = unpacked(msg.content)

    def work() -> Packet:
        number = _numbered(context, int(asked.table["clients"]))
        here = _here(states, context, asked.table["states"], number)
        if asked.table["do"] == "hello":
            about = {"name": drawn_once(here / "name"), "version": __version__}
            part = {} if number is None else {"part": number}
            return Packet({**about, **part, **_about(problem)}, asked.content)
        return _worked(asked, problem, here)

    found, part = reply(work), context.node_config.get("partition-id", "not given")
    if "error" in found.table:
        where = f"{context.node_id} (partition-id {part})"
        found = Packet({**found.table, "node": where})
    return Message(packed(found), reply_to=msg)


def _about(problem: Neural) -> dict[str, Any]:
    """What a server may know of it."""
    state = known(problem)
    if state is None or problem.clients != 1:
        raise ValueError(
            "give train the data of this node alone, with a module whose state_dict is its "
            f"weights: undrift.Neural(module, [data], loss=loss), not {type(problem).__name__}"
        )
    return {
        "samples": problem.samples[0],
        "dtype": str(problem.dtype).removeprefix("torch."),
        "network": described(state),
    }


def _worked(asked: Packet, problem: Neural, folder: Path) -> Packet:
    """One phase."""
    table = asked.table
    if not RUN.fullmatch(run := str(table["run"])):
        raise ValueError(f"{run!r} is not the name of a run")
    client = int(table["client"])
    # Every message may be for a process of its own: what it was told once lies on the disk.
    asked, first = told(asked, folder / run / str(client) / FIRST)
    began = parse(first, MOST)
    one = OneOf(problem, client, began["samples"].tolist())
    setting = {**table["setting"], "x0": began["x"]}
    node = Node(_method(table), one, folder, setting, table["seed"])
    if node.run != run:
        raise BadNodeStates(
            f"this node makes another run ({node.run}) of what the server asks ({run}): it has "
            "another version of undrift or of the method"
        )
    return node.do(asked)


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


def _numbered(context: Context, clients: int) -> int | None:
    found = context.node_config.get("partition-id")
    if found is not None and (type(found) is not int or not 0 <= found < clients):
        raise ValueError(
            f"there is no client {found!r} among {clients}, numbered from 0: the server's clients, "
            "or this node's partition-id is wrong"
        )
    return found
