"""What the processes of one run say to one another: numbers, JSON and rows, never objects.

Every method of :class:`Ranks` is a collective: all ranks call the same ones in the same order.
"""

from __future__ import annotations

import json
import logging
import os
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from datetime import timedelta
from threading import Event, Thread
from typing import Any, cast

import numpy as np
import torch
import torch.distributed as dist
from torch import Tensor
from torch._C._distributed_c10d import PrefixStore, Store
from torch.distributed.rendezvous import rendezvous

from undrift._threads import cores
from undrift.core.params import BadParameters
from undrift.engines.options import PATIENCE, RENDEZVOUS

NEEDED = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE")
BEAT, NOTICE = 5.0, 60.0
"""Seconds between looks at where the other ranks are, and of waiting until they are named."""
WORKS = "its own work after exchange"
ALONE = (
    "the engine distributed runs in several processes, and this is one: start the program with "
    "torchrun --nproc-per-node N"
)


class Broken(RuntimeError):
    """A run that several processes share cannot go on."""


class RankLost(Broken):
    """A process of the run is gone, or cannot be reached."""


class Parted(Broken):
    """The processes of a run do not do the same."""


class WorkFailed(Broken):
    """The local work of another rank has failed."""


def told() -> dict[str, int]:
    """What the launcher says in the environment. Raises :class:`BadParameters`."""
    needed = NEEDED if RENDEZVOUS in os.environ else (*NEEDED, "MASTER_PORT")
    try:
        return {name: int(os.environ[name]) for name in needed}
    except (KeyError, ValueError) as error:
        text = f"{', '.join(needed)} must be whole numbers in the environment ({error})"
        remedy = "let torchrun set them, or give --workers N"
        raise BadParameters("distributed", {"workers": f"{text}: {remedy}"}) from None


def join(device: str, patience: float = PATIENCE) -> None:
    """Meet the other processes; a GPU of its own for each where there are enough of them.

    One that is alive is waited for as long as ``patience`` says, in seconds.
    """
    about, file = told(), os.environ.get(RENDEZVOUS)
    backend = "gloo"
    if device == "cuda" and 1 < about["LOCAL_WORLD_SIZE"] <= torch.cuda.device_count():
        torch.cuda.set_device(about["LOCAL_RANK"])
        backend = "cpu:gloo,cuda:nccl"
    # Ranks on one machine share its cores, or each would use all of them.
    if "OMP_NUM_THREADS" not in os.environ:
        torch.set_num_threads(max(cores() // about["LOCAL_WORLD_SIZE"], 1))
    rank, size, limit = about["RANK"], about["WORLD_SIZE"], timedelta(seconds=patience)
    meeting = f"file://{file}" if file else "env://"
    try:
        # One store, two names: places of ranks must not be taken for torch's own entries.
        store, _, _ = next(rendezvous(meeting, rank, size, timeout=limit))
        kept = PrefixStore("run", store)
        dist.init_process_group(backend, store=kept, rank=rank, world_size=size, timeout=limit)
        at.watch(PrefixStore("where", store), rank, size)
    except (RuntimeError, ValueError, OSError) as error:
        where = file or f"{os.environ.get('MASTER_ADDR')}:{about['MASTER_PORT']}"
        words = " ".join(str(error).split())[:200]
        raise RankLost(f"the processes of the run cannot meet at {where}: {words}") from error


def leave() -> None:
    """Take leave of the other processes."""
    at.over.set()
    if joined():
        dist.destroy_process_group()


def joined() -> bool:
    return dist.is_available() and dist.is_initialized()


def count() -> int:
    """How many processes share a run: 1 unless they have met."""
    return dist.get_world_size() if joined() else 1


def here() -> int:
    """How many of them are on this machine, as far as a launcher has said."""
    told = os.environ.get("LOCAL_WORLD_SIZE", "1")
    return min(int(told) if told.isdecimal() else 1, count()) or 1


class Whereabouts:
    """Where this rank is among the collectives, and where the others are.

    A collective waits without a word, for ever if ranks call different ones. So a thread keeps each
    rank's place in a store that all can read, and says whom this one waits for.
    """

    def __init__(self) -> None:
        self.number, self.name, self.since = 0, WORKS, time.monotonic()
        self.over = Event()

    def watch(self, store: Store, rank: int, size: int) -> None:
        """Begin to look, until :func:`leave`."""
        self.over = Event()
        Thread(target=self._watch, args=(store, rank, size, self.over), daemon=True).start()

    def _watch(self, store: Store, rank: int, size: int, over: Event) -> None:
        said = 0
        # The last process to end takes the store with it: then there is nobody to wait for.
        with suppress(RuntimeError):
            while not over.wait(BEAT):
                number, name, waited = self.number, self.name, time.monotonic() - self.since
                store.set(str(rank), json.dumps([number, name]))
                if name == WORKS or waited < NOTICE or number == said:
                    continue
                said, elsewhere = number, list[str]()
                for other in {*range(size)} - {rank}:
                    place = json.loads(store.get(str(other))) if store.check([str(other)]) else None
                    if place != [number, name]:
                        where = "has not begun" if place is None else f"is at {place[1]} {place[0]}"
                        elsewhere.append(f"rank {other}, which {where}")
                who = ", ".join(elsewhere) or "all ranks, which have come to the same place"
                logging.getLogger(__name__).warning(
                    "rank %d has waited %.0f s at %s %d for %s", rank, waited, name, number, who
                )

    @contextmanager
    def collective(self, name: str, counted: bool = True) -> Iterator[None]:
        """Inside it this rank waits; an error means that somebody is gone.

        What only two ranks call is not ``counted``, so that all have the same numbers.
        """
        self.number, self.name, self.since = self.number + counted, name, time.monotonic()
        try:
            yield
        except RuntimeError as error:
            raise RankLost("a process of the run is gone, or cannot be reached") from error
        finally:
            self.name = WORKS


at = Whereabouts()


class Ranks:
    """All processes of a run; ``device`` is where its vectors are. Rank 0 leads."""

    def __init__(self, device: torch.device, patience: float = PATIENCE):
        if not joined():
            if not {"RANK", "WORLD_SIZE"} <= os.environ.keys():
                raise BadParameters("distributed", {"engine": ALONE})
            join(str(device), patience)
        self.rank, self.size, self.device = dist.get_rank(), dist.get_world_size(), device
        direct = device.type == "cuda" and "nccl" in str(dist.get_backend_config())
        self._road = device if direct else torch.device("cpu")

    def tell(self, value: Any = None, source: int = 0) -> Any:
        """What one rank says, which JSON holds, on every rank."""
        text = json.dumps(value).encode() if self.rank == source else b""
        # The others must know how much to receive: a broadcast fills what is there.
        size = int(self.broadcast(torch.tensor([len(text)]), source))
        content = torch.frombuffer(bytearray(text.ljust(size)), dtype=torch.uint8)
        return json.loads(self.broadcast(content, source).numpy().tobytes())

    def agree(self, decision: bool) -> bool:
        """The decision of rank 0."""
        return bool(self.broadcast(torch.tensor([int(decision)])))

    def sizes(self, mine: int) -> list[int]:
        """How many rows each rank has, where this one has so many."""
        return cast(list[int], self.gather(torch.tensor([mine]), [1] * self.size).tolist())

    def sum(self, v: Tensor) -> Tensor:
        """The sum of a tensor over all ranks, the same bits on each."""
        total = v.to(self._road, copy=True)
        with at.collective("sum"):
            dist.all_reduce(total)
        return total.to(v.device)

    def broadcast(self, v: Tensor, source: int = 0) -> Tensor:
        """The tensor of one rank, on the CPU; others give one of its form."""
        v = v.cpu().contiguous()
        with at.collective("broadcast"):
            dist.broadcast(v, source)
        return v

    def gather(self, rows: Tensor, sizes: Sequence[int]) -> Tensor:
        """The rows of all ranks, of which rank r has ``sizes[r]``, in the order of ranks."""
        width, most = rows.shape[1:], max(sizes)
        mine = rows.to(self._road).contiguous()
        # all_gather wants as many rows of every rank.
        if len(mine) < most:
            mine = torch.cat([mine, mine.new_zeros(most - len(mine), *width)])
        every = mine.new_empty(self.size, most, *width)
        with at.collective("gather"):
            dist.all_gather([*every], mine)
        if min(sizes) == most:
            return every.flatten(0, 1).to(rows.device)
        parts = [part[:size] for part, size in zip(every, sizes, strict=True)]
        return torch.cat(parts).to(rows.device)

    def move(
        self, rows: Mapping[str, Tensor], names: Sequence[str], source: np.ndarray, to: np.ndarray
    ) -> dict[str, Tensor]:
        """Rows that lie on the ranks ``source`` to the ranks ``to``; both are ascending."""
        # The same answer on all ranks, so that none is left alone in the collective.
        if (source == to).all():
            return {name: rows[name] for name in names if name in rows}
        out = np.bincount(to[source == self.rank], minlength=self.size).tolist()
        into = np.bincount(source[to == self.rank], minlength=self.size).tolist()
        found = dict[str, Tensor]()
        for name in names:
            given = rows[name].to(self._road).contiguous()
            arrived = given.new_empty(sum(into), *given.shape[1:])
            with at.collective("move"):
                dist.all_to_all_single(arrived, given, into, out)
            found[name] = arrived.to(self.device)
        return found

    def hand(self, block: Tensor, source: int, to: int) -> Tensor:
        """The ``block`` of one rank on another, on the CPU; only these two call it."""
        with at.collective("hand", counted=False):
            if source != to and self.rank == source:
                dist.send(block.contiguous(), to)
            elif source != to:
                dist.recv(block, source)
        return block

    def same(self, digest: bytes) -> bool:
        """Whether all ranks have the same digest."""
        mine = torch.frombuffer(bytearray(digest), dtype=torch.uint8).unsqueeze(0)
        return bool((self.gather(mine, [1] * self.size) == mine).all())
