"""What a run takes in memory, and where there is room for what its clients remember."""

from __future__ import annotations

import dataclasses
import os
import shutil
import sys
import tempfile
from contextlib import suppress
from pathlib import Path

import torch

from undrift.core.cohort import Sampling
from undrift.core.method import Method
from undrift.core.params import BadParameters
from undrift.core.problem import Facts, Problem

WORK = 12
"""Vectors reserved for a client at work: its states, iterates, gradients, a network's activations.

On an H200, ResNet-18 with ten clients at work took 9 to 13 times their ten models."""
SPARE = 0.1
"""Share of the free bytes that is left alone."""
SMALL = 2**26
"""Bytes that are taken without looking whether they are free."""
SMALLER = "a smaller model, or dtype = 'float32'"
GROUPS = (
    ("/sys/fs/cgroup", "memory.max", "memory.current"),
    ("/sys/fs/cgroup/memory", "memory.limit_in_bytes", "memory.usage_in_bytes"),
)
"""Where a container says what it allows and what it uses."""


@dataclasses.dataclass(frozen=True)
class Needs:
    """Bytes of a run, and the place of its clients' states."""

    vectors: int
    """That a client remembers, with its last local model where the problem uses that."""
    model: int
    states: int
    work: int
    """For the cohort at work: an estimate."""
    place: str
    free: int | None = None
    """At that place before the run; ``None`` where nobody looked."""


class NoRoom(ValueError):
    """A run needs more than there is; the message says what to do."""


def plan(
    method: Method,
    problem: Problem | Facts,
    cohort: Sampling,
    store: str = "auto",
    processes: int = 1,
    here: int = 1,
) -> Needs:
    """Where to keep the clients' states: in ``store``, or in the first place with room for them.

    Of a run that several ``processes`` share it is the part of one; ``here`` of them share the
    memory of this machine.

    Raises :class:`NoRoom` if they do not fit, :class:`BadParameters` if this machine has no such
    place.
    """
    device, n = problem.device, -(-problem.clients // processes)
    places = ("device", "host", "file") if device.type == "cuda" else ("device", "file")
    if store not in ("auto", *places):
        allowed = f"auto, {', '.join(places)} (host is memory beside a GPU)"
        raise BadParameters("store", {"store": f"store = {store!r} is not allowed: {allowed}"})
    everyone = any(phase.who == "all" for phase in method.exchanges())
    at_work = n if everyone else -(-cohort.size // processes)
    model = problem.dim * problem.dtype.itemsize
    vectors = len(method.Client.vectors) + problem.remembers
    states = n * vectors * model
    least = (len(method.Server.vectors) + at_work * (vectors + 2)) * model
    work = max(at_work * WORK * model, least)
    needs = Needs(vectors, model, states, work, "device")
    if store in ("auto", "device") and states + work < SMALL:
        return needs
    # Work is an estimate, ``least`` is not: only what cannot fit is refused.
    on_device = free("device", device) // here
    if least > on_device:
        raise NoRoom(
            f"{at_work} clients at work need at least {_gb(least)}, but {_gb(on_device)} are free "
            f"{where('device', device)}: use a smaller cohort or {SMALLER}"
        )
    # the states of clients at work are on the device anyway
    if not states or (store == "auto" and at_work == n):
        store = "device"
    looked = dict[str, int]()
    for place in places if store == "auto" else [store]:
        looked[place] = on_device if place == "device" else free(place, device) // here
        usable = looked[place] * (1 - SPARE) if store == "auto" else looked[place]
        if place == "device":
            usable -= work if store == "auto" else least
        if states <= usable:
            return dataclasses.replace(needs, place=place, free=looked[place])
    found = ", ".join(f"{_gb(size)} are free {where(at, device)}" for at, size in looked.items())
    raise NoRoom(
        f"what {n} clients remember takes {_gb(states)}, but {found}: use fewer clients or "
        f"{SMALLER}, set TMPDIR to a folder with room for store = 'file', or try store = 'device'"
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
    """Free memory that a container allows; all there is where the system does not say what is free,
    and no bound where it does not say that either.
    """
    # The least of what the machine has, what it says is free, and what a container leaves: a
    # container does not see its own bound in the numbers of the machine.
    found = [sys.maxsize]
    if hasattr(os, "sysconf"):
        found = [os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")]
    with suppress(OSError):
        found.append(1024 * _line("/proc/meminfo", "MemAvailable:"))
    for group, limit, used in GROUPS:
        with suppress(OSError, ValueError):
            allowed, taken = (
                int(Path(group, name).read_text(encoding="utf-8")) for name in (limit, used)
            )
            found.append(allowed - taken + _line(f"{group}/memory.stat", "inactive_file"))
    return max(min(found), 0)


def _line(file: str, key: str) -> int:
    return next(
        int(line.split()[1])
        for line in Path(file).read_text(encoding="utf-8").splitlines()
        if line.startswith(key)
    )


def _gb(size: int) -> str:
    return f"{size / 1e9:.1f} GB"
