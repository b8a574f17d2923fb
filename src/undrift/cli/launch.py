"""Several processes for one run: started here, or by torchrun. One leads, the others follow."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import tempfile
import time
from argparse import Namespace
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from threading import Thread

from undrift.cli import output
from undrift.cli.output import FAILED, OK, refuse, say
from undrift.cli.stop import Stop
from undrift.engines.options import RENDEZVOUS, DistributedOptions
from undrift.spec.schema import Spec

MOMENT, LONGEST = 0.05, 5.0
"""Seconds between looks at the processes, and until those that are left over are ended."""
ALONE = (
    "the engine distributed runs in several processes: give --workers N, or start it with "
    "torchrun --nproc-per-node N -m undrift run ..."
)
JOBS = "--jobs shares methods among processes, the engine distributed their clients: leave it out"


def rank() -> int | None:
    """The number of this process among those of a launcher; ``None`` if there is none."""
    found = os.environ.get("RANK", "")
    return int(found) if found.isdecimal() and os.environ.get("WORLD_SIZE") else None


@contextmanager
def together(spec: Spec, args: Namespace) -> Iterator[int | None]:
    """Enter with ``None`` in a process that works alone or leads.

    A process that follows does its part first, and enters with its exit code.
    """
    number, options = rank(), spec.engine
    if command := options.run_by:
        text = f"the engine {options.name} is run by {command}, which also continues a run"
        refuse([spec.origin.complaint(("engine",), text)])
    if not isinstance(options, DistributedOptions):
        if number is not None and os.environ["WORLD_SIZE"] != "1":
            refuse(
                [f"torchrun has started several processes, {options.name} runs in one"],
                "Use --engine distributed, or leave out torchrun.",
            )
        yield None
        return
    output.muted = bool(number)
    if args.jobs > 1:
        refuse([JOBS])
    if number is None and options.workers is None:
        refuse([ALONE])
    clients = getattr(spec.problem, "clients", sys.maxsize)
    faults = [fault for fault in spec.faults or () if fault.kind != "label-noise"]
    several = options.workers if number is None else 1
    if wrong := options.refuse(several or 1, clients, spec.aggregation, faults):
        refuse([spec.origin.complaint(tuple(at.split(".")), text) for at, text in wrong.items()])
    if number is None:
        yield launch(spec, args) if args.check else None
        return
    from undrift.engines.ranks import leave

    meet(spec.device, options.patience)
    try:
        yield follow(spec, args) if number else None
    finally:
        output.muted = False
        leave()


def meet(device: str, patience: float) -> None:
    """Join the other processes, or say why that is not possible."""
    from undrift.core.params import BadParameters
    from undrift.engines.ranks import RankLost, join

    if RENDEZVOUS in os.environ:
        Thread(target=_end_with_launcher, daemon=True).start()
    try:
        join(device, patience)
    except BadParameters as error:
        output.muted = False
        refuse(error.problems.values())
    except RankLost as error:
        output.muted = False
        say(f"Rank {rank()}: {error}")
        raise SystemExit(FAILED) from None


def follow(spec: Spec, args: Namespace) -> int:
    """Train as the process that leads says."""
    from undrift.cli.rehearse import rehearse
    from undrift.core.params import BadParameters
    from undrift.engines.ranks import Broken, RankLost
    from undrift.runs.experiment import make
    from undrift.runs.run_experiment import check_same, follow_leader, shared

    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # what a method prints is printed once
    try:
        with Stop(""):  # the one that leads says what happens
            if args.check:
                return rehearse(spec, args.part, args.json)
            experiment = make(spec, part=args.part)
            if ranks := shared(experiment):
                try:
                    check_same(experiment, ranks)
                except RankLost:
                    return OK  # the one that leads has nothing to do, or says what is wrong
                follow_leader(experiment, ranks)
        return OK
    except (Broken, BadParameters):
        return FAILED  # the one that leads says why
    except Exception as error:
        output.muted = False
        for line in str(error).splitlines() or [""]:
            say(f"Rank {rank()}: {type(error).__name__}: {line}")
        return FAILED


def launch(spec: Spec, args: Namespace, lost: Callable[[], object] = int) -> int:
    """Run the same command in several processes; ``lost`` is called if the one that leads dies."""
    assert isinstance(spec.engine, DistributedOptions)
    count = spec.engine.workers or 1
    with tempfile.TemporaryDirectory(prefix="undrift-") as place, Stop("") as stop:
        common = os.environ | {"WORLD_SIZE": str(count), "LOCAL_WORLD_SIZE": str(count)}
        common[RENDEZVOUS] = str(Path(place) / "meet")
        inside = [name for _, name in socket.if_nameindex() if name in ("lo", "lo0")]
        if inside:
            common.setdefault("GLOO_SOCKET_IFNAME", inside[0])
        processes = [
            subprocess.Popen(  # a group of its own, which no terminal interrupts
                [sys.executable, "-m", "undrift", *args.words],
                stdin=subprocess.PIPE,
                env=common | {"RANK": str(k), "LOCAL_RANK": str(k)},
                process_group=0 if os.name == "posix" else None,
            )
            for k in range(count)
        ]
        stop.others = processes
        try:
            first = watch(processes)
        finally:
            for process in processes:
                process.kill()
                process.wait()
        lead, number = processes[0].returncode, processes[first].returncode
        if lead and number < 0:
            say(f"Rank {first} of {count} was ended by signal {-number}, the others after it.")
        if lead < 0:
            lost()
        if stop.asked and lead:
            return stop.code
        return FAILED if lead < 0 else lead


def watch(processes: Sequence[subprocess.Popen[bytes]]) -> int:
    """Wait for all; the rank that failed first. None outlives it, or the one that leads, long."""
    failed, deadline = list[int](), float("inf")
    while True:
        codes = [process.poll() for process in processes]
        failed = failed or [k for k, code in enumerate(codes) if code]
        if None not in codes:
            return failed[0] if failed else 0
        if failed or codes[0] is not None:
            deadline = min(deadline, time.monotonic() + LONGEST)
        if time.monotonic() > deadline:
            for process in processes:
                process.kill()
        time.sleep(MOMENT)


def _end_with_launcher() -> None:
    """Wait for the end of the process that started this one, and end too: files are whole."""
    os.read(0, 1)
    os._exit(FAILED)
