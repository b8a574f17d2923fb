"""Carries a checked spec out: every method with every seed, on one problem."""

from __future__ import annotations

import dataclasses
import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, cast

from undrift.cli.talk import say
from undrift.core.cohort import Sampling
from undrift.core.method import Method
from undrift.core.params import THEORY
from undrift.core.problem import Problem, Unsupported
from undrift.runs.folder import Outcome
from undrift.runs.spec import BadSpec, Complaint, Entry, Spec, values
from undrift.theory.rules import has_rule

if TYPE_CHECKING:
    from undrift.cli.progress import Progress
    from undrift.engines import Engine


STEPS = (("lr", "smaller"), ("eta", "larger"), ("lam", "larger"))
"""What tames a method that diverges."""
SMALL = 1_000_000
"""Numbers in the data of a problem that one thread handles fastest."""


class Stopped(Exception):
    """The user has asked for an end, and the round is over."""


@dataclasses.dataclass(frozen=True)
class Experiment:
    """A spec whose problem is built and whose methods have all their values."""

    spec: Spec
    problem: Problem
    methods: list[Method]

    def perform(self, record: Callable[[dict[str, Any]], None], progress: Progress, stop: Stop) -> Iterator[Outcome]:
        """Run it all; each row goes to ``record`` as soon as it is measured."""
        seeds, entries = self.spec.seeds, self.spec.entries
        width = max(len(entry.label) for entry in entries)
        runs = [(seed, *pair) for seed in seeds for pair in zip(entries, self.methods, strict=True)]
        with threads(self.problem):
            for seed, entry, method in runs:
                if stop.asked:
                    return
                progress.begin(f"{entry.label:<{width}}" + f" seed {seed}" * (len(seeds) > 1), entry.rounds)
                outcome = self.one(entry, method, seed, record, progress, stop)
                progress.end(outcome)
                yield outcome

    def one(
        self,
        entry: Entry,
        method: Method,
        seed: int,
        record: Callable[[dict[str, Any]], None],
        progress: Progress,
        stop: Stop,
    ) -> Outcome:
        from undrift.runs import runner

        name, spec = type(method).__name__, self.spec
        last: dict[str, Any] = {}

        def watch(row: dict[str, float]) -> None:
            last.update(row)
            record({"label": entry.label, "method": name, "seed": seed, **row})
            progress.row(row)

        def close(row: dict[str, float]) -> bool:
            return spec.target is not None and row.get("gap", float("inf")) <= spec.target

        note = ""
        try:
            engine = runner.prepare(
                method, self.problem, steps=entry.steps, cohort=spec.cohort, batch=spec.batch, seed=seed,
                dtype=spec.dtype, device=spec.device, engine=spec.engine,
            )  # fmt: skip
            steered = cast("Engine", Steered(engine, stop))
            _, status = runner.record(steered, entry.rounds, every=spec.every, until=close, watch=watch)
        except Stopped:
            status = "stopped"
            if last.get("round") != engine.round:
                watch(runner.measure(engine) | {"seconds": last.get("seconds", 0.0)})
        except Unsupported as error:
            status, note = "failed", f"failed: {error}"
        if status == "diverged":
            note = f"diverged in round {last['round']}: {remedy(entry.method)}"
        return Outcome(entry.label, name, seed, status, values(method), note)


class Stop:
    """Ctrl-C while it is entered: once sets ``asked``, twice ends at once."""

    def __init__(self) -> None:
        self.asked = False

    def __enter__(self) -> Stop:
        self.before = signal.signal(signal.SIGINT, self.heard)
        return self

    def __exit__(self, *error: object) -> None:
        signal.signal(signal.SIGINT, self.before)

    def heard(self, *signal: object) -> None:
        if self.asked:
            raise KeyboardInterrupt
        self.asked = True
        say("\nStopping after this round; Ctrl-C again stops now.")


class Steered:
    """An engine that ends after the round in which it was asked to."""

    def __init__(self, engine: Engine, stop: Stop):
        self._engine, self._stop = engine, stop

    def __getattr__(self, name: str) -> Any:
        return getattr(self._engine, name)

    def run_round(self) -> None:
        if self._stop.asked:
            raise Stopped
        self._engine.run_round()


def make(spec: Spec) -> Experiment:
    """Build the problem and let theory set what was left to it. Raises :class:`BadSpec` before anything is run."""
    import torch

    from undrift.runs.runner import resolve

    say_where = spec.origin.complaint
    if spec.device.startswith("cuda") and not torch.cuda.is_available():
        raise BadSpec([say_where(("device",), f"device = {spec.device!r} is not on this machine; use 'cpu'")])
    try:
        problem = spec.problem.build().to(getattr(torch, spec.dtype), torch.device(spec.device))
    except (ValueError, OSError, RuntimeError) as error:
        raise BadSpec([say_where(("problem",), str(error))]) from None
    methods: list[Method] = []
    complaints: list[Complaint] = []
    for i, entry in enumerate(spec.entries):
        try:
            method = resolve(entry.method, problem, steps=entry.steps, cohort=spec.cohort, batch=spec.batch)
        except ValueError as error:
            field = next(iter(entry.method.open_fields()), "name")
            complaints.append(say_where(("method", i, field), str(error)))
            continue
        n = problem.clients
        steps = [entry.steps] * n if isinstance(entry.steps, int) else entry.steps
        cohort = Sampling(spec.cohort or n)
        complaints += [say_where(("method", i), reason) for reason in method.refuse(n, cohort, steps)]
        methods.append(method)
    if complaints:
        raise BadSpec(complaints)
    return Experiment(spec, problem, methods)


def remedy(method: Method) -> str:
    """What to try when a method diverges."""
    given = values(method)
    tries = [f"a {how} {field}" for field, how in STEPS if field in given]
    if by_theory := [f for f, value in given.items() if value != THEORY and has_rule(type(method).__name__, f)]:
        tries.append(" and ".join(f'{field} = "theory"' for field in by_theory))
    return f"try {', or '.join(tries)}" if tries else "try fewer local steps"


@contextmanager
def threads(problem: Problem) -> Iterator[None]:
    """One thread for a small problem, unless OMP_NUM_THREADS says otherwise: more would only wait for each other."""
    import torch

    before = torch.get_num_threads()
    if "OMP_NUM_THREADS" not in os.environ and problem.dim * max(sum(problem.samples), problem.clients) < SMALL:
        torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)
