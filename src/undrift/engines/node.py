"""One client of a federation on its own machine: it works on orders, and keeps its states.

States are files, one for every work that may still count. A file is whole and on disk before the
reply to that work leaves, and is called after the work. An order says after which work it
continues: so work that did not count, or is asked for again, is done again from where it began. A
file that should be there and is not is an error, never a fresh start.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from undrift.core.method import Method, WrongForm
from undrift.core.problem import Oracle, Problem
from undrift.engines.engine import Engine
from undrift.engines.judge import Sound
from undrift.engines.messages.format import BadFormat, read, write
from undrift.engines.messages.frames import Address, decode, pack
from undrift.engines.messages.packet import Packet, Tag
from undrift.engines.order import Order, Share
from undrift.engines.site import Kept, Site, quiet
from undrift.engines.work import Work

STATE, SCRATCH = "state.", "scratch."
MOST = 2**20
"""Bytes of the head of a file of states."""


class BadNodeStates(RuntimeError):
    """The states that an order continues from are not there, or are not those of this run."""


class NodeStates:
    """The states of one client in one run, in ``folder``."""

    def __init__(self, folder: Path, run: str, client: int):
        self.folder, self.run, self.client = folder, run, client

    def load(self, tag: Tag) -> dict[str, Tensor]:
        """The states after a work."""
        path, expected = self._path(tag), self._about(tag)
        # Starting afresh would go on with a run that nobody could repeat.
        if not path.exists():
            raise BadNodeStates(
                f"{path}: the states that the order continues from are not on this node; put the "
                "folder back, or begin the run afresh"
            )
        try:
            header, tensors = read(path, MOST)
        except BadFormat as error:
            raise BadNodeStates(f"{path}: {error}") from error
        if header != expected:
            raise BadNodeStates(f"{path}: of another run or client ({header}, not {expected})")
        return tensors

    def store(self, tag: Tag, tensors: Mapping[str, Tensor]) -> None:
        """Write the states after a work; they are on disk when this returns."""
        # For this user alone: states can reveal about the data what gradients reveal.
        self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        write(self._path(tag), tensors, self._about(tag))

    def keep(self, tags: Collection[Tag]) -> None:
        """Remove the states after all other works."""
        kept = {self._path(tag) for tag in tags}
        for path in {*self.folder.glob("*.safetensors")} - kept:
            path.unlink(missing_ok=True)

    def _about(self, tag: Tag) -> dict[str, str]:
        return {"client": str(self.client), "run": self.run, "work": json.dumps(tag)}

    def _path(self, tag: Tag) -> Path:
        return self.folder / f"{tag.round}-{tag.place}-{tag.attempt}.safetensors"


class OneOf(Problem):
    """The problem of one client as the one with this number among several.

    ``held`` has that client alone, or all of them where everybody can build the whole problem. Of
    the others the ``samples`` are known, and nothing else.
    """

    def __init__(self, held: Problem, client: int, samples: Sequence[int]):
        self.held, self.client = held, client
        self.clients, self.samples = len(samples), [*samples]
        self.dim, self.dtype, self.device = held.dim, held.dtype, held.device
        self.augmentation, self.keyed, self.together = held.augmentation, held.keyed, held.together
        self.remembers, self.differentiates = held.remembers, held.differentiates
        self.labelled, self.pooled, self.sampled = held.labelled, held.pooled, held.sampled
        self._at = np.array([0 if held.clients == 1 else client])

    def at(self, members: np.ndarray | None = None) -> Oracle:
        # Data of others are on other machines: asking for them is a mistake of the engine.
        if members is None or members.tolist() != [self.client]:
            raise ValueError(f"this machine has client {self.client} alone, not {members}")
        return self.held.at(self._at)

    def to(self, dtype: torch.dtype, device: torch.device) -> OneOf:
        return OneOf(self.held.to(dtype, device), self.client, self.samples)

    def start(self) -> Tensor:
        return self.held.start()

    def with_label_noise(self, noise: Mapping[int, np.ndarray]) -> OneOf:
        mine = {int(self._at[0]): own for client, own in noise.items() if client == self.client}
        held = self.held.with_label_noise(mine) if mine else self.held
        return OneOf(held, self.client, self.samples)


class Away(Engine):
    """What an engine works out from its arguments, where one client is: orders, rules, the name of
    the run.
    """

    remote = True


class Node(Site):
    """A site with one client, whose states are files in ``folder``."""

    def __init__(
        self,
        method: Method,
        problem: OneOf,
        folder: Path,
        setting: Mapping[str, Any],
        seed: int,
    ):
        self.engine = Away(method, problem, seed=seed, **setting)
        self.alone = np.array([problem.client])
        super().__init__(self.engine.common, self.alone)
        self.client, self.run = problem.client, self.engine.identity
        self.states = NodeStates(folder / self.run / str(self.client), self.run, self.client)
        self._sound = Sound(problem.dtype)
        self._first = {name: v.clone() for name, v in self.store.gather(None).items()}

    def do(self, asked: Packet) -> Packet:
        """Work on an order. New states are on disk when this returns."""
        table, x0 = asked.table, self.common.x0
        tag = Tag(*table["tag"])
        before = Tag(*table["before"]) if table["before"] else None
        address = Address(self.run, tag.round, tag.place, self.client, "down")
        order = self.engine.clock.at(tag.round, tag.place, table["skipped"], table["gone"])
        got = decode(order.phase.Down, asked.content, x0, address)
        # The server says where the client continues: what was done since may not have counted.
        self._return_to(before, tag)
        with quiet(self.problem):
            planned = order.cohort.planned[order.cohort.members.tolist().index(self.client)]
            share = Share(order, self.alone, [int(planned)], False)
            try:
                work = self.work(share, got)
            except WrongForm as error:  # as work that is not sound: the others go on
                raise ArithmeticError(str(error)) from None
            for reason in self._sound(order, got, work).values():
                raise ArithmeticError(reason)
        # On disk before the reply: the server may count on what it was told.
        self.states.store(tag, self._remembered(work, order))
        kept = (Tag(*one) for one in table["keep"])
        self.states.keep({tag, *kept, *([before] if before else [])})
        frame = b""
        if order.picked in (None, self.client) and work.up is not None:
            upload = work.up.map(lambda rows: rows[0])
            frame = address._replace(way="up").frame(pack(upload))
        return Packet({"gradients": work.gradients, "drawn": self.engine.streams.used}, frame)

    def _return_to(self, before: Tag | None, tag: Tag) -> None:
        """Have the states after the work ``before``, to do ``tag`` next."""
        stored = {} if before is None else self.states.load(before)
        found = {name: v.to(self.common.x0.device).unsqueeze(0) for name, v in stored.items()}
        self.store.load({n: found.get(f"{STATE}{n}", first) for n, first in self._first.items()})
        scratch = {n.removeprefix(SCRATCH): v for n, v in found.items() if n.startswith(SCRATCH)}
        # Scratch vectors are those of the phase before, never of an earlier round.
        next_phase = before is not None and before[:2] == (tag.round, tag.place - 1)
        self._scratch = Kept(self.alone, scratch) if scratch and next_phase else None

    def _remembered(self, work: Work, order: Order) -> dict[str, Tensor]:
        """What the client has after this work."""
        before = {name: v[0] for name, v in self.store.gather(None).items()}
        after = before | {name: v[0] for name, v in work.states.items()}
        found = {f"{STATE}{name}": v for name, v in after.items()}
        if not order.last:
            found |= {f"{SCRATCH}{name}": v[0] for name, v in work.scratch.items()}
        return {name: v.contiguous().cpu() for name, v in found.items()}
