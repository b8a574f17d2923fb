"""What a run takes in memory, and where there is room for what its clients remember."""

from __future__ import annotations

import ctypes
import dataclasses
import os
import shutil
import struct
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import Any

import torch

from undrift.core.cohort import Sampling
from undrift.core.method import Method, Own, Phase
from undrift.core.problem import Problem

PLACES = ("device", "host", "file")

WORK = 12
"""Vectors that a client at work is given room for: its states, iterates and gradients, and a
network's activations.

On an H200, ResNet-18 with ten clients at work took 9 to 13 times their ten models."""
SPARE = 0.1
"""What is left alone of the bytes that are free."""
SMALL = 2**26
"""Bytes that there is always room for."""
GROUPS = (
    ("/sys/fs/cgroup", "memory.max", "memory.current"),
    ("/sys/fs/cgroup/memory", "memory.limit_in_bytes", "memory.usage_in_bytes"),
)
"""Where a container says what it allows and what it uses."""


@dataclasses.dataclass(frozen=True)
class Needs:
    """Bytes of a run, and the place of its clients' states."""

    vectors: int
    """What a client remembers, its last local model included where the problem asks for that."""
    model: int
    states: int
    work: int
    """For the cohort at work: an estimate."""
    place: str
    free: int | None = None
    """At that place before the run, where it was worth looking."""


class NoRoom(ValueError):
    """What a run needs is more than there is; the message says what to do."""


def plan(method: Method, problem: Problem, cohort: Sampling, store: str = "auto") -> Needs:
    """Where to keep the clients' states: in the first place with room for them, or where ``store``
    says.
    """
    device, n = problem.device, problem.clients
    places = [place for place in PLACES if place != "host" or device.type == "cuda"]
    if store not in ("auto", *places):
        raise ValueError(
            f"store = {store!r} is not allowed: auto, {', '.join(places)} (host is memory beside a GPU)"
        )
    busy = n if any(phase.who == "all" for phase in _phases(method)) else cohort.size
    model, vectors = (
        problem.dim * problem.dtype.itemsize,
        len(method.Client.vectors) + problem.remembers,
    )
    states, least = n * vectors * model, (len(method.Server.vectors) + busy * (vectors + 2)) * model
    work = max(busy * WORK * model, least)
    if store in ("auto", "device") and states + work < SMALL:
        return Needs(vectors, model, states, work, "device")
    if least > (on_device := free("device", device)):
        raise NoRoom(
            f"{busy} clients at work need at least {_gb(least)}, but {_gb(on_device)} are free "
            f"{where('device', device)}: use a smaller cohort or {_smaller(problem)}"
        )
    if not states or (
        store == "auto" and busy == n
    ):  # the states of clients at work are on the device anyway
        store = "device"
    choice, room = places if store == "auto" else [store], {}
    beside, usable = (work, 1 - SPARE) if store == "auto" else (least, 1)
    for place in choice:
        room[place] = on_device if place == "device" else free(place, device)
        if states + beside * (place == "device") <= usable * room[place]:
            return Needs(vectors, model, states, work, place, room[place])
    looked = ", ".join(
        f"{_gb(size)} are free {where(place, device)}" for place, size in room.items()
    )
    tight = store == "auto" and states + least <= on_device
    raise NoRoom(
        f"what {n} clients remember takes {_gb(states)}, but {looked}: use fewer clients or {_smaller(problem)}"
        + ", or set TMPDIR to a folder with room" * ("file" in choice)
        + f", or try store = 'device' with {_gb(on_device - states)} for the clients at work"
        * tight
    )


def afford(what: str, least: int) -> None:
    """Refuse what holds more than the memory that is free, before any of it is taken."""
    if least > SMALL and least > (free := _memory()):
        raise NoRoom(
            f"{what} of this size holds at least {_gb(least)}, but {_gb(free)} are free in memory: use less"
        )


def where(place: str, device: torch.device) -> str:
    """A place in words."""
    if place == "file":
        return f"in {folder()}"
    return "on the GPU" if place == "device" and device.type == "cuda" else "in memory"


def folder() -> str:
    """Where a file of states goes: $TMPDIR, or where large temporary files usually go."""
    return os.environ.get("TMPDIR") or (
        "/var/tmp" if os.path.isdir("/var/tmp") else tempfile.gettempdir()
    )


def free(place: str, device: torch.device) -> int:
    """Bytes that can be had there."""
    if place == "file":
        return shutil.disk_usage(folder()).free
    if place == "device" and device.type == "cuda":
        idle = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
        return torch.cuda.mem_get_info(device)[0] + idle
    return _memory()


def _memory() -> int:
    """Within what a container allows; on a system that does not say what is free, all there is."""
    try:
        found = [1024 * _line("/proc/meminfo", "MemAvailable:")]
    except OSError:
        there = hasattr(os, "sysconf")
        found = [os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") if there else _windows()]
    for group, limit, used in GROUPS:
        with suppress(OSError, ValueError):
            allowed, taken = (
                int(Path(group, name).read_text(encoding="utf-8")) for name in (limit, used)
            )
            found.append(allowed - taken + _line(f"{group}/memory.stat", "inactive_file"))
    return max(min(found), 0)


def _windows() -> int:
    """What is free there: the second of seven sizes, after two words of which the first is the
    length of it all.
    """
    status = ctypes.create_string_buffer(struct.pack("IIQQQQQQQ", 64, *[0] * 8), 64)
    if not ctypes.windll.kernel32.GlobalMemoryStatusEx(status):  # type: ignore[attr-defined]
        raise NoRoom("the system does not say how much memory is free")
    return int(struct.unpack_from("Q", status, 16)[0])


def _line(file: str, key: str) -> int:
    return next(
        int(line.split()[1])
        for line in Path(file).read_text(encoding="utf-8").splitlines()
        if line.startswith(key)
    )


def _phases(method: Method) -> list[Phase]:
    """Every phase that a round of the method may have."""
    return [*(kind(method) for kind in method.nested), Own(method)]


def _smaller(problem: Problem) -> str:
    return "a smaller model" + ", or dtype = 'float32'" * (problem.dtype.itemsize == 8)


def _gb(size: int) -> str:
    return f"{size / 1e9:.1f} GB"
