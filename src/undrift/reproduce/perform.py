"""Runs what items need and the cache has not, problem by problem: the data are laid out once for
all who share them.
"""

from __future__ import annotations

import dataclasses
import gc
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Protocol

from undrift.core.problem import Problem, Unsupported
from undrift.reproduce.cache import Cache, Want, begin, end, without_defaults
from undrift.reproduce.items import Item, Panel
from undrift.runs.folder import CHECKPOINTS, BadFolder, Outcome, Row
from undrift.spec.schema import values

if TYPE_CHECKING:
    from torch import Tensor

    from undrift.engines import Engine
    from undrift.runs.trial import Stops
    from undrift.spec.schema import Spec

PAUSE = 120.0
"""Seconds between checkpoints."""
LARGE = 2e9
"""Bytes of a state that is not kept: such a run begins anew when it was interrupted."""
EMBEDDED = ("problem.data=digits", "problem.augment=none")
"""What stands in for a data set that is not there, where only a quick look is asked for."""


@dataclasses.dataclass(frozen=True)
class Options:
    """How items are run."""

    quick: bool = False
    seeds: int = 1
    device: str = "cpu"
    precision: str | None = None
    rounds: int | None = None
    only: Sequence[str] = ()

    def flags(self) -> list[str]:
        """Changes of the specs of networks: only they go to a GPU, the convex problems are too
        small for one.
        """
        precision = self.precision or ("bf16" if self.device.startswith("cuda") else None)
        place = [] if self.device == "cpu" else [f"device={self.device}"]
        return [*place, *[f"problem.precision={precision}"] * bool(precision)]


class Reporter(Protocol):
    def begin(self, want: Want) -> None: ...
    def row(self, row: Row) -> None: ...
    def end(self, want: Want, status: str) -> None: ...
    def say(self, text: str) -> None: ...


def wants(item: Item, panel: Panel, options: Options) -> list[Want]:
    """The runs of a panel, method by method and seed by seed."""
    from undrift.problems.named import Images

    spec = item.spec(panel, options.quick)
    if isinstance(spec.problem, Images):
        flags = [*(EMBEDDED if options.quick and missing(spec) else ()), *options.flags()]
        spec = item.spec(panel, options.quick, flags) if flags else spec
    chosen = [e for e in spec.entries if not options.only or e.label in options.only]
    tried = [item.tried(panel, entry.label, options.quick) or [entry] for entry in chosen]
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
    """Each run once and as long as anyone needs it, those of one problem together."""
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


def perform(
    groups: list[list[Want]], cache: Cache, stop: Stops, reporter: Reporter
) -> Iterator[tuple[Want, str]]:
    """Carry out what is left; gives the runs that failed, with the reason."""
    for group in groups:
        left = [want for want in group if not cache.serves(want)]
        if not left or stop.asked:
            continue
        try:
            problem = build(left[0])
        except (ValueError, OSError, RuntimeError) as error:
            yield from ((want, str(error)) for want in left)
            continue
        for want in left:
            if stop.asked or cache.serves(want):
                continue
            try:
                carry_out(want, problem, cache, stop, reporter)
            except BadFolder as error:
                if "in use" not in str(error):
                    raise
            except (Unsupported, ValueError, RuntimeError) as error:
                yield want, str(error)
            release()
        problem.release()
        del problem
        release(compiled=True)


def build(want: Want) -> Problem:
    """The problem, where the run takes place."""
    import torch

    spec, objective = want.spec, want.entry.objective
    problem = spec.problem.build(objective)
    dtype = problem.dtype if spec.dtype is None else getattr(torch, spec.dtype)
    return problem.to(dtype, torch.device(spec.device))


def carry_out(want: Want, problem: Problem, cache: Cache, stop: Stops, reporter: Reporter) -> None:
    """One run, from where it was left."""
    from undrift.engines.checkpoint import Shelf
    from undrift.runs.api import prepare
    from undrift.runs.threads import threads
    from undrift.runs.trial import Trial

    folder, spec, entry = cache.folder(want.key), want.spec, want.entry
    label = name = type(entry.method).__name__
    try:
        begin(folder, want, problem.note)
        if cache.serves(want):  # another process has just finished it
            return
        reporter.begin(want)

        def watch(row: Row) -> None:
            folder.append({"label": label, "method": name, "seed": want.seed, **row})
            reporter.row(row)

        with threads(problem, spec.batch, spec.cohort):
            engine = prepare(
                entry.method,
                problem,
                seed=want.seed,
                x0=start(want, problem),
                **spec.setting(entry),
            )
            trial = Trial(engine, want.rounds, spec.every, watch)
            shelf = Shelf(folder.file(CHECKPOINTS), "state", want.key)
            trial.resume(folder, shelf, label, want.seed, reporter.say)
            if state(engine) > LARGE:
                trial.keep = folder.settle
            status = trial.run(stop=stop, pause=PAUSE)
            if status == "done" and want.rounds < entry.rounds:
                trial.keep()
            elif status != "stopped":
                shelf.clear()
        if status != "stopped":
            end(
                folder,
                Outcome(
                    label, name, want.seed, status, values(engine.method), model=trial.fingerprint()
                ),
            )
        reporter.end(want, status)
    finally:
        folder.close()


def start(want: Want, problem: Problem) -> Tensor | None:
    """Where the run begins, if not where the problem says."""
    from undrift.runs.api import prepare

    if want.start is None:
        return None
    entry, rounds = want.start
    engine = prepare(entry.method, problem, seed=want.seed, **want.spec.setting(entry))
    for _ in range(rounds):
        engine.run_round()
    return engine.x.clone()


def state(engine: Engine) -> int:
    """Bytes of a checkpoint."""
    problem, method = engine.problem, engine.method
    vectors = len(method.Server.vectors) + problem.clients * (
        len(method.Client.vectors) + problem.remembers
    )
    return vectors * problem.dim * engine.x0.element_size()


def release(compiled: bool = False) -> None:
    """Give back the memory of what is over; also what was ``compiled`` for it, of which torch keeps
    only so much.
    """
    import torch

    gc.collect()
    if torch.cuda.is_available():
        torch.cuda.empty_cache()
        if compiled:
            torch.compiler.reset()
