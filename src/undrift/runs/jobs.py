"""Methods and seeds of a spec shared among the processes of a pool.

A job runs one method with one seed, and records into a journal of its own inside the run's folder.
This process shows the rows as they appear, and gathers the journals. All that crosses to a job is
plain data, so any executor of processes will do that see the run's folder.

Numbers do not depend on how many processes there are: each computes with as many threads as a
single one would, since sums of floating-point numbers can depend on that.
"""

from __future__ import annotations

import functools
import multiprocessing
import os
import signal
import time
from collections.abc import Callable, Iterator
from concurrent.futures import BrokenExecutor, Future, ProcessPoolExecutor
from contextlib import closing, contextmanager
from pathlib import Path
from threading import Lock, Thread
from typing import NamedTuple, Protocol, TypeVar, runtime_checkable

import torch

from undrift.records.folder import Folder, checkpoint
from undrift.records.journal import PARTS, Journal
from undrift.records.rows import Key, Outcome
from undrift.runs.environment import deterministic
from undrift.runs.events import Began, Emit, Ended, Event, Measured, Notice
from undrift.runs.experiment import Experiment, make
from undrift.runs.prepare import OPENMP
from undrift.runs.trial import MethodResult, StopSignal
from undrift.spec.reader import load

Answer = TypeVar("Answer")
LOOK = 0.05
"""Seconds between looks at new rows."""
STOP, DRAWN = "stop", "drawn"
"""Empty files: in the folder, jobs are to stop; in a part, its seed has changed something."""


ALONE = Lock()
"""Held by the one job of this process: workers of Dask may have threads, which share a problem."""


@runtime_checkable
class ExecutorLike(Protocol):
    """A ``concurrent.futures.Executor``, or something else with its ``submit``, as submitit has.

    Its futures need no more than ``done``, ``result`` and ``cancel``.
    """

    def submit(self, call: Callable[..., Answer], /, *given: object) -> Future[Answer]: ...


class JobStart(NamedTuple):
    """What every job of a run is told."""

    folder: str
    identity: str
    flags: tuple[str, ...]
    """What this process changes of the folder's spec, as after ``-s``."""
    pause: float
    threads: int
    openmp: dict[str, str]
    """OMP_NUM_THREADS, if it is set; Dask and Ray set it for their processes."""
    deterministic: bool


class StopFile(NamedTuple):
    """Asks jobs to stop, wherever they run, by a file in the run's folder."""

    file: Path

    @property
    def asked(self) -> bool:
        return self.file.exists()


def run_part(start: JobStart, label: str, seed: int) -> Outcome | None:
    """Run one method with one seed; ``None`` if it was stopped before it began."""
    torch.set_num_threads(start.threads)
    os.environ.pop(OPENMP, None)
    os.environ.update(start.openmp)
    if start.deterministic:
        deterministic()
    folder, experiment = Folder(Path(start.folder)), _experiment(*start[:3])
    journal = Journal(folder.file(PARTS) / checkpoint(experiment.order[label, seed], seed))

    def emit(event: Event) -> None:
        if isinstance(event, Measured) and event.drawn:
            journal.file(DRAWN).touch()

    stop, mine = StopFile(folder.file(PARTS) / STOP), [(label, seed)]
    with ALONE, closing(journal):
        journal.mend()
        for result in experiment.run(folder, emit, stop, start.pause, mine, journal=journal):
            return result.outcome
    return None


@functools.lru_cache(maxsize=1)
def _experiment(folder: str, identity: str, flags: tuple[str, ...]) -> Experiment:
    """The experiment of a folder, built once for all jobs of a process."""
    return make(load(Path(folder) / "spec.toml", flags))


def run_jobs(
    experiment: Experiment,
    folder: Folder,
    emit: Emit,
    stop: StopSignal | None,
    pause: float,
    jobs: int | ExecutorLike,
) -> Iterator[MethodResult]:
    """Run what is left to run; results come as they end."""
    ended = {outcome.key: outcome for outcome in folder.outcomes()}
    yield from map(MethodResult, ended.values())
    waiting = {key: k for key, k in experiment.order.items() if key not in ended}
    parts = folder.split({key: checkpoint(k, key[1]) for key, k in waiting.items()})
    # The folder may have another one.
    store = getattr(experiment.tasks[0].setup.engine, "store", "auto")
    start = JobStart(
        str(folder.path.absolute()),
        experiment.recipe.identity,
        () if store == "auto" else (f"engine.store={store}",),
        pause,
        torch.get_num_threads(),
        {OPENMP: os.environ[OPENMP]} if OPENMP in os.environ else {},
        torch.are_deterministic_algorithms_enabled(),
    )
    shown = {key: part.news(0)[1] for key, part in parts.items()}
    begun: set[Key] = set()
    running: dict[Future[Outcome | None], Key] = {}

    def show(key: Key) -> None:
        """Tell of the rows that a job has recorded since the last look."""
        # The whole file at every look would be read a thousand times in a long run.
        rows, shown[key] = parts[key].news(shown[key])
        if rows and key not in begun:
            begun.add(key)
            emit(Began(*key, experiment.tasks[experiment.order[key]].rounds))
        for row in rows:
            about = {name: row.pop(name) for name in ("label", "method", "seed")}
            emit(Measured(**about, row=row))

    try:
        with pool(jobs, len(waiting)) as workers:
            while waiting or running:
                if stop and stop.asked:
                    (folder.file(PARTS) / STOP).touch()
                    waiting.clear()
                for key in [*waiting]:
                    if twin := experiment.twin(*key, ended):
                        del waiting[key]
                        folder.ended(twin)
                        emit(Ended(twin))
                        yield MethodResult(twin)
                    elif _ready(experiment, key, ended, parts):
                        del waiting[key]
                        running[workers.submit(run_part, start, *key)] = key
                time.sleep(
                    LOOK
                )  # futures need not be the standard library's, which it can wait for
                done = [future for future in running if future.done()]
                for key in running.values():
                    show(key)
                for future in done:
                    key = running.pop(future)
                    try:
                        outcome = future.result()
                    except BrokenExecutor as error:  # which ends all the others too
                        emit(Notice(f"{key[0]}, seed {key[1]}: a process died ({error})", True))
                        return
                    if outcome is not None:
                        ended[key] = outcome
                        emit(Ended(outcome))
                        yield MethodResult(outcome)
    finally:
        for future in running:
            future.cancel()
        folder.gather()


def _ready(
    experiment: Experiment, key: Key, ended: dict[Key, Outcome], parts: dict[Key, Journal]
) -> bool:
    """Whether it is known that this seed is not the same as the first one."""
    first = key[0], experiment.first[key[0]]
    if key == first or not experiment.alike or first in ended:
        return True
    return first in parts and parts[first].file(DRAWN).exists()


@contextmanager
def pool(jobs: int | ExecutorLike, most: int) -> Iterator[ExecutorLike]:
    """The pool that was given, or one of so many processes that ends with the block."""
    if not isinstance(jobs, int):
        yield jobs
        return
    others, context = multiprocessing.active_children(), multiprocessing.get_context("spawn")
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")  # for those that are started from here
    pool = ProcessPoolExecutor(max(1, min(jobs, most)), context, _end_with_parent)
    try:
        yield pool
    except BaseException:
        # Waiting for their rounds could take hours; files are written whole.
        for child in multiprocessing.active_children():
            if child not in others:
                child.kill()
        raise
    finally:
        pool.shutdown()


def _end_with_parent() -> None:
    """In a process of the pool: leave Ctrl-C to the parent, and do not outlive it."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    parent = multiprocessing.parent_process()
    assert parent is not None

    def follow() -> None:
        parent.join()
        os._exit(1)

    Thread(target=follow, daemon=True).start()
