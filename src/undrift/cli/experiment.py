"""Carries a checked spec out: every method with every seed."""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from undrift.cli.output import say
from undrift.cli.stop import Stop
from undrift.core.cohort import Sampling
from undrift.core.method import Method
from undrift.core.options import fades
from undrift.core.params import THEORY, BadParameters
from undrift.core.problem import Problem, Unsupported
from undrift.report.text import count, size, whole
from undrift.runs.folder import CHECKPOINTS, Folder, Outcome
from undrift.spec.errors import BadSpec, Complaint
from undrift.spec.schema import Entry, Spec, values
from undrift.theory import has_rule

if TYPE_CHECKING:
    from undrift.cli.progress import Progress
    from undrift.engines import Engine
    from undrift.engines.memory import Needs

__all__ = ["Experiment", "Stop", "Task", "make"]

STEPS = (("lr", "smaller"), ("eta", "larger"), ("lam", "larger"))
"""What tames a method that diverges."""


@dataclasses.dataclass(frozen=True)
class Task:
    """A method that has all its values, and the problem it is run on."""

    entry: Entry
    method: Method
    problem: Problem
    needs: Needs


@dataclasses.dataclass(frozen=True)
class Experiment:
    """A spec that is ready to run."""

    spec: Spec
    tasks: list[Task]
    """Those of the first seed."""
    store: str = "auto"
    data: str | None = None
    """The digest of what was loaded or drawn, for all seeds."""
    _laid: dict[int, list[Task]] = dataclasses.field(default_factory=dict, repr=False)

    @property
    def takes(self) -> str:
        """What the method with the largest client states needs in memory, and where those go."""
        from undrift.engines.memory import where

        task = max(self.tasks, key=lambda task: task.needs.states)
        needs, problem = task.needs, task.problem
        factors = (
            count(needs.vectors, "vector"),
            count(problem.clients, "client"),
            f"{whole(problem.dim)} numbers",
        )
        free = f" ({size(needs.free)} free)" if needs.free is not None else ""
        states = f"{' x '.join(factors)} = {size(needs.states)}, {where(needs.place, problem.device)}{free}"
        of = f" of {task.entry.label}" if len(self.tasks) > 1 else ""
        return (
            f"Client states{of}: {states if needs.states else 'none'}; "
            f"model: {size(needs.model)}; the cohort at work: about {size(needs.work)}"
        )

    @property
    def note(self) -> str:
        """What is to be said beside any accuracy."""
        return self.tasks[0].problem.note

    def at(self, seed: int) -> list[Task]:
        """The tasks with one seed; of those whose problems are its own, one seed's are held at a
        time.
        """
        if not self.spec.anew or seed == self.spec.seeds[0]:
            return self.tasks
        if seed not in self._laid:
            for task in (task for tasks in self._laid.values() for task in tasks):
                task.problem.release()
            self._laid.clear()
            self._laid[seed] = lay(self.spec, self.store, seed, [])
        return self._laid[seed]

    def engine(self, task: Task, seed: int) -> Engine:
        from undrift.runs import api as runner

        setting = self.spec.setting(task.entry) | {
            "seed": self.spec.draws_at(seed),
            "store": self.store,
        }
        return runner.prepare(task.method, task.problem, **setting)

    def threads(self) -> AbstractContextManager[None]:
        from undrift.runs.threads import threads

        return threads(self.tasks[0].problem, self.spec.batch, self.spec.cohort)

    def perform(
        self, folder: Folder, progress: Progress, stop: Stop, pause: float | None = None
    ) -> Iterator[Outcome]:
        """Run what is left to run. Rows and outcomes go to the folder; ``pause`` is the time
        between checkpoints.
        """
        ended = {(outcome.label, outcome.seed): outcome for outcome in folder.outcomes()}
        seeds, width = self.spec.seeds, max(len(task.entry.label) for task in self.tasks)
        with self.threads():
            for seed in seeds:
                for k, task in enumerate(self.tasks):
                    label = task.entry.label
                    if before := ended.get((label, seed)):
                        yield before
                        continue
                    if stop.asked:
                        return
                    if twin := self.twin(label, ended):
                        outcome = dataclasses.replace(twin, seed=seed, same_as=twin.seed)
                        folder.ended(outcome)
                        yield outcome
                        continue
                    progress.begin(
                        f"{label:<{width}}" + f" seed {seed}" * (len(seeds) > 1), task.entry.rounds
                    )
                    outcome = ended[label, seed] = self.one(k, seed, folder, progress, stop, pause)
                    progress.end(outcome)
                    yield outcome

    def twin(self, label: str, ended: Mapping[tuple[str, int], Outcome]) -> Outcome | None:
        """How a method ended with the first seed, if no other seed changes that."""
        first = ended.get((label, self.spec.seeds[0]))
        return first if first and self.spec.vary == ["draws"] and not first.seeded else None

    def one(
        self,
        k: int,
        seed: int,
        folder: Folder,
        progress: Progress,
        stop: Stop,
        pause: float | None = None,
    ) -> Outcome:
        """The k-th method with one seed, from where it was left."""
        from undrift.engines.checkpoint import Shelf
        from undrift.engines.memory import where
        from undrift.runs import models
        from undrift.runs.trial import PAUSE, Best, Trial

        spec, task = self.spec, self.at(seed)[k]
        name, label, last = type(task.method).__name__, task.entry.label, dict[str, Any]()
        identity = f"{folder.identity or spec.identity} {label!r} {seed}"
        checkpoints = Shelf(folder.file(CHECKPOINTS), f"{k}-{seed}", identity)
        stem = f"{models.stems(entry.label for entry in spec.entries)[label]}-{seed}"

        def watch(row: dict[str, Any]) -> None:
            last.update(row)
            folder.append({"label": label, "method": name, "seed": seed, **row})
            progress.row(row)

        def close(row: dict[str, Any]) -> bool:
            return spec.target is not None and row.get("gap", float("inf")) <= spec.target

        note, end = "", dict[str, Any]()
        try:
            engine = self.engine(task, seed)
            if (found := engine.memory).place != task.needs.place:
                say(
                    f"{label}: client states go {where(found.place, task.problem.device)}: free memory has changed"
                )
            trial = Trial(engine, task.entry.rounds, spec.every, watch, Best())
            trial.resume(folder, checkpoints, label, seed, say)
            status = trial.run(close, stop, PAUSE if pause is None else pause)
            end = {"model": trial.fingerprint(), "seeded": engine.streams.used}
            if status != "stopped":
                about = {"label": label, "seed": seed, "round": engine.round}
                end["files"] = models.keep(folder, task.problem, stem, about, engine.x, trial.best)
                end["best"] = trial.best.about if "best" in end["files"] and trial.best else None
        except Unsupported as error:
            status, note = "failed", f"failed: {error}"
        except BaseException as error:  # a user's method may do anything
            if task.entry.file is None or isinstance(error, (OSError, KeyboardInterrupt)):
                raise
            status, note = (
                "failed",
                f"failed: {type(error).__name__}{_place(error, task.entry.file)}: {error}",
            )
        if status == "diverged":
            note = f"diverged in round {engine.round}: {remedy(task.entry.method)}"
        outcome = Outcome(label, name, seed, status, values(task.method), note, **end)
        if status != "stopped":
            folder.ended(outcome)
            checkpoints.clear()
        return outcome


def make(spec: Spec, store: str = "auto") -> Experiment:
    """Build what is to be solved and let theory set what is left to it; :class:`BadSpec` if that is
    not possible.

    ``store`` is where the clients' states are to be kept.
    """
    from undrift.spec.device import absent

    if text := absent(spec.device):
        raise BadSpec([spec.origin.complaint(("device",), text)])
    store = spec.store if store == "auto" else store
    complaints: list[Complaint] = []
    first, *others = spec.seeds if spec.anew else spec.seeds[:1]
    tasks = lay(spec, store, first, complaints)
    digests = [task.problem.digest() for task in tasks[:1]]
    for seed in (
        others if tasks else ()
    ):  # laid out again when its turn comes: many do not fit into memory together
        digests += [task.problem.digest() for task in lay(spec, store, seed, complaints)[:1]]
    if complaints:
        raise BadSpec(complaints)
    return Experiment(spec, tasks, store, together(digests))


def together(digests: Sequence[str | None]) -> str | None:
    """The digest of a run: the only one, or one of all."""
    known = [digest for digest in digests if digest]
    if len(known) < len(digests):
        return None
    return known[0] if len(known) == 1 else hashlib.sha256(" ".join(known).encode()).hexdigest()


def lay(spec: Spec, store: str, seed: int, complaints: list[Complaint]) -> list[Task]:
    """The tasks with one seed, without those that there are complaints of."""
    import torch

    from undrift.engines.memory import NoRoom, plan
    from undrift.runs.api import resolve

    say_where = spec.origin.complaint
    problems = build(spec, seed, complaints)
    tasks: list[Task] = []
    for i, entry in enumerate(spec.entries):
        problem = problems.get(entry.objective)
        if problem is None:
            continue
        try:
            most = max(steps(spec, entry, problem))
            method = resolve(
                entry.method, problem, steps=most, cohort=spec.cohort, batch=spec.batch
            )
        except ValueError as error:
            field = next(iter(entry.method.open_fields()), "name")
            complaints.append(say_where(("method", i, field), str(error)))
            continue
        reasons = method.refuse(
            problem.clients,
            spec.cohort or Sampling(problem.clients),
            steps(spec, entry, problem),
            spec.weights,
        )
        complaints += [spec.complaint(i, *reason) for reason in reasons]
        if why := fades(
            getattr(method, "lr", None), entry.decay, entry.rounds, torch.finfo(problem.dtype).tiny
        ):
            complaints.append(spec.complaint(i, "decay", why))
        try:
            place = store if spec.engine == "simulate" else "device"
            needs = plan(method, problem, spec.cohort or Sampling(problem.clients), place)
        except NoRoom as error:
            complaints.append(say_where(("problem",), f"{entry.label}: {error}"))
            continue
        except ValueError as error:
            at = spec.origin.complaint(("engine", "store"), str(error))
            raise BadSpec([at]) from None
        tasks.append(Task(entry, method, problem, needs))
    return tasks


def build(spec: Spec, seed: int, complaints: list[Complaint]) -> dict[Any, Problem]:
    """Objective -> the problem with it: each is built once for all methods."""
    import torch

    from undrift.engines.memory import afford

    problems: dict[Any, Problem] = {}
    for i, entry in enumerate(spec.entries):
        objective = entry.objective
        if objective in problems:
            continue
        try:
            named = spec.problem_at(seed)
            afford(spec.problem_name, named.least_bytes)
            problem = named.build(objective)
            dtype = problem.dtype if spec.dtype is None else getattr(torch, spec.dtype)
            problems[objective] = problem.to(dtype, torch.device(spec.device))
        except RecursionError:
            raise
        except (MemoryError, OverflowError) as error:
            text = f"{spec.problem_name} of this size does not go into memory ({error or 'there is too little'})"
            complaints.append(spec.origin.complaint(("problem",), text))
        except (ValueError, OSError, RuntimeError) as error:
            about = isinstance(error, BadParameters) and "objective" in error.problems
            own = ("method", i, "objective") if "objective" in entry.given else ("objective",)
            text = error.problems["objective"] if about else str(error)
            text = f"seed {seed}: {text}" if spec.anew else text
            complaints.append(spec.origin.complaint(own if about else ("problem",), text))
    return problems


def steps(spec: Spec, entry: Entry, problem: Problem) -> list[int]:
    """Local steps of each client."""
    if entry.epochs is not None and spec.batch is not None:
        return [entry.epochs * -(-count // spec.batch) for count in problem.samples]
    return [entry.steps] * problem.clients if isinstance(entry.steps, int) else entry.steps


def remedy(method: Method) -> str:
    """What to try when a method diverges."""
    given = values(method)
    tries = [f"a {how} {field}" for field, how in STEPS if field in given]
    if by_theory := [
        f for f, value in given.items() if value != THEORY and has_rule(type(method), f)
    ]:
        tries.append(" and ".join(f'{field} = "theory"' for field in by_theory))
    return f"try {', or '.join(tries)}" if tries else "try fewer local steps"


def _place(error: BaseException, file: str) -> str:
    """Where in the user's file it happened."""
    lines, trace = [], error.__traceback__
    while trace is not None:
        if Path(trace.tb_frame.f_code.co_filename).name == Path(file).name:
            lines.append(trace.tb_lineno)
        trace = trace.tb_next
    return f" ({file}:{lines[-1]})" if lines else ""
