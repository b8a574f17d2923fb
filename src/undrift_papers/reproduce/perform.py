"""Runs what items need and the cache lacks, problem by problem: data are laid out once for all."""

from __future__ import annotations

import dataclasses
import gc
import shutil
from collections.abc import Iterable, Iterator, Sequence
from itertools import count
from typing import TYPE_CHECKING

from undrift.cli.output import say
from undrift.core.problem import Problem, Unsupported
from undrift.records.folder import CHECKPOINTS, Busy
from undrift.runs.events import Began, Ended, Event, LeftOut, Measured
from undrift.runs.progress import Progress
from undrift_papers.reproduce.cache import Cache, Want, begin, without_defaults
from undrift_papers.reproduce.items import Item, Panel

if TYPE_CHECKING:
    from torch import Tensor

    from undrift.runs.prepare import Task
    from undrift.runs.trial import StopSignal
    from undrift.spec.schema import Spec

PAUSE = 120.0
"""Seconds between checkpoints."""
LASTING = 2e9
"""Bytes of the largest state that a run with fewer rounds than the paper's leaves when it ends."""
ROOM = 8
"""A state of which the free disk has no room for so many is not kept: two are, and a third while it
is written.
"""
EMBEDDED = ("problem.data=digits", "problem.augment=none")
"""Overrides that replace a missing data set in a quick look."""


@dataclasses.dataclass(frozen=True)
class ItemOptions:
    """How items are run."""

    quick: bool = False
    seeds: int = 1
    device: str = "cpu"
    precision: str | None = None
    rounds: int | None = None
    only: Sequence[str] = ()


def wants(item: Item, panel: Panel, options: ItemOptions) -> list[Want]:
    """The runs of a panel, method by method and seed by seed."""
    from undrift.problems.named import Images

    spec = item.spec(panel, options.quick)
    if isinstance(spec.problem, Images):  # convex problems are too small for a GPU
        gpu = options.device.startswith("cuda")
        flags = [*(EMBEDDED if options.quick and missing(spec) else ())]
        flags += [] if options.device == "cpu" else [f"device={options.device}"]
        if precision := options.precision or ("bf16" if gpu else None):
            flags.append(f"problem.precision={precision}")
        spec = item.spec(panel, options.quick, flags)
    chosen = [e for e in spec.entries if not options.only or e.label in options.only]
    tried = [item.tried(entry, options.quick) or [entry] for entry in chosen]
    start = (spec.entries[0], item.warm) if item.warm else None
    return [
        Want(
            spec,
            entry,
            seed,
            min(entry.rounds, options.rounds or entry.rounds),
            bool(options.precision),
            start,
        )
        for entries in tried
        for entry in entries
        for seed in range(options.seeds)
    ]


def missing(spec: Spec) -> str:
    """Why the images of a spec cannot be had; empty if they can."""
    from undrift.data.images import find
    from undrift.problems.named import Images

    if not isinstance(spec.problem, Images) or spec.problem.data == "digits":
        return ""
    try:
        find(spec.problem.data, spec.problem.folder)
    except (ValueError, OSError) as error:
        return str(error)
    return ""


def plan(wanted: Iterable[Want]) -> list[list[Want]]:
    """Each run once, as long as any item needs it, grouped by problem."""
    longest: dict[str, Want] = {}
    for want in wanted:
        if want.key not in longest or longest[want.key].rounds < want.rounds:
            longest[want.key] = want
    groups: dict[str, list[Want]] = {}
    for want in longest.values():
        problem = (
            type(want.spec.problem).__name__,
            without_defaults(want.spec.problem),
            repr(want.entry.objective),
        )
        groups.setdefault(f"{problem} {want.spec.dtype} {want.spec.device}", []).append(want)
    return list(groups.values())


def perform(groups: list[list[Want]], cache: Cache, stop: StopSignal) -> Iterator[tuple[Want, str]]:
    """Carry out what is left; yields each run that is over, and why it failed, if it did."""
    from undrift.runs.prepare import placed

    number, total = count(1), sum(map(len, groups))
    for group in groups:
        left = [want for want in group if not cache.serves(want)]
        if not left or stop.asked:
            continue
        spec, objective = left[0].spec, left[0].entry.objective
        try:
            problem = placed(spec.problem.build(objective), spec.dtype, spec.device)
            if data := vars(spec.problem).get("data"):
                cache.refuse_other_images(data, problem.note or "originals")
        except (ValueError, OSError, RuntimeError) as error:
            yield from ((want, str(error)) for want in left)
            continue
        for want in left:
            if stop.asked or cache.serves(want):  # by another process, or no seed changes it
                continue
            why = ""
            try:
                carry_out(want, problem, cache, stop, f"[{next(number)}/{total}]")
            except Busy:  # another process is at it
                continue
            except (Unsupported, ValueError, RuntimeError) as error:
                why = str(error)
            release()
            yield want, why
        problem.release()
        del problem
        release(compiled=True)


def carry_out(want: Want, problem: Problem, cache: Cache, stop: StopSignal, number: str) -> None:
    """One run, from where it was left."""
    from undrift.engines.checkpoint import Shelf
    from undrift.runs.prepare import threads
    from undrift.runs.trial import RunPlace, Trial

    folder, entry = cache.folder(want.key), want.entry
    folder.path.mkdir(parents=True, exist_ok=True)
    try:
        folder.lock()
        if cache.serves(want):  # another process has just finished it
            return
        say(f"{number} {want}")
        begin(folder, want, problem.note, problem.metric_samples)
        job, lines = task(want, problem, start(want, problem)), Progress(say=say)

        def hear(event: Event) -> None:
            lines.show(event)
            if not isinstance(event, (Began, Measured, Ended, LeftOut)):
                say(str(event))

        hear(Began(job.label, want.seed, want.rounds))

        with threads(problem, job.setup):
            shelf = Shelf(folder.file(CHECKPOINTS), "state", want.key)
            place = RunPlace(
                folder,
                shelf,
                largest=shutil.disk_usage(folder.path).free / ROOM,
                lasting=LASTING if want.rounds < entry.rounds else 0,
            )
            result = Trial(job, want.seed, want.seed, place, hear).run(stop, PAUSE)
        outcome = result.outcome
        if outcome.status != "stopped":
            if not result.lasts:
                shelf.clear()
            seeded = outcome.seeded or want.start is not None  # rounds that came first may draw
            folder.settle()
            folder.conclude([dataclasses.replace(outcome, note="", seeded=seeded)])
        hear(Ended(outcome))
        lines.close()
    finally:
        folder.close()


def task(want: Want, problem: Problem, x0: Tensor | None = None) -> Task:
    """A run on a problem that is built, as the experiment takes it; its label is the method's."""
    from undrift.runs.prepare import Setup, ready, resolved

    spec, method = want.spec, want.entry.method
    setup = Setup(**vars(want.entry.options), engine=spec.engine, x0=x0)
    label = type(method).__name__
    return ready(resolved(label, method, problem, setup, want.rounds, spec.every or 1))


def start(want: Want, problem: Problem) -> Tensor | None:
    """The model after the rounds that come first; ``None``: the problem's own first point."""
    if want.start is None:
        return None
    entry, rounds = want.start
    engine = task(dataclasses.replace(want, entry=entry), problem).engine(want.seed)
    for _ in range(rounds):
        engine.run_round()
    return engine.x.clone()


def release(compiled: bool = False) -> None:
    """Free a GPU's memory of finished runs and, if that is over, what torch ``compiled``."""
    import torch

    if torch.cuda.is_available():
        gc.collect()
        torch.cuda.empty_cache()
        if compiled:
            torch.compiler.reset()
