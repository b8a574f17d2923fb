"""Runs every method with every seed, in one place for the command line and for Python."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from functools import cached_property

from undrift._device import absent
from undrift.core.params import values
from undrift.core.problem import OF_CLIENTS, OF_OWN_MODELS, Unsupported
from undrift.core.stopping import USUALLY
from undrift.engines.checkpoint import Shelf
from undrift.records import models
from undrift.records.folder import CHECKPOINTS, Digests, Folder, Outcome, Recipe, checkpoint
from undrift.records.journal import Journal
from undrift.records.part import PART, WHOLE, RunPart
from undrift.records.rows import Key
from undrift.runs.advice import failure
from undrift.runs.events import Began, Emit, Ended, Notice, ignore
from undrift.runs.prepare import Build, Task, build_all, lay_out, threads
from undrift.runs.trial import (
    NO_RULES,
    PAUSE,
    MethodResult,
    RunPlace,
    StopSignal,
    Trial,
    TrialRules,
)
from undrift.spec.errors import BadSpec, Complaint, keys_of
from undrift.spec.schema import Spec

LASTING = 2**26
"""Bytes of the largest state that a finished method leaves in the folder of a run."""


@dataclasses.dataclass(frozen=True)
class Experiment:
    """Methods, a problem and seeds, ready to run."""

    recipe: Recipe
    tasks: Sequence[Task]
    """Those of the first seed."""
    seeds: Sequence[int]
    rules: TrialRules = NO_RULES
    """What ends a method before its last round."""
    data: Digests = None
    """The digest of the data; of each seed's, where a seed decides the problem."""
    code: Mapping[str, str | None] = dataclasses.field(default_factory=dict)
    """Digests of what the program gave to the run, by name; a spec has its files instead."""
    draws: Callable[[int], int] = int
    """The seed of the engine in the run with a seed."""
    lay: Callable[[int], list[Task]] | None = None
    """The tasks with another seed, where a seed decides the problem."""
    alike: bool = True
    """Whether a method that draws nothing is the same with every seed."""
    tolerant: bool = False
    """Whether a method that the problem or its author's code fails is an outcome, not an error."""
    part: RunPart = WHOLE
    """What is run of it."""
    _laid: dict[int, list[Task]] = dataclasses.field(default_factory=dict, repr=False)

    @cached_property
    def order(self) -> dict[Key, int]:
        """(label, seed) -> position of the method, in the order they are run in."""
        places = {task.label: k for k, task in enumerate(self.tasks)}
        return {key: places[key[0]] for key in self.part.deal([*places], self.seeds)}

    @cached_property
    def first(self) -> dict[str, int]:
        """Label -> the seed that it is run with first."""
        # The last one that is given stays.
        return {label: seed for label, seed in reversed(self.order)}

    def at(self, seed: int) -> Sequence[Task]:
        """The tasks with one seed; where each seed has its own problem, one is held at a time."""
        if self.lay is None or seed == self.seeds[0]:
            return self.tasks
        if seed not in self._laid:
            for task in (task for tasks in self._laid.values() for task in tasks):
                task.problem.release()
            self._laid.clear()
            self._laid[seed] = self.lay(seed)
        return self._laid[seed]

    def run(
        self,
        folder: Folder | None = None,
        emit: Emit = ignore,
        stop: StopSignal | None = None,
        pause: float = PAUSE,
        only: Collection[Key] | None = None,
        announce: Callable[[Key], object] | None = None,
        journal: Journal | None = None,
    ) -> Iterator[MethodResult]:
        """Run what is left to run, or ``only`` some of it, seed by seed.

        ``announce`` is told what is trained next; ``journal`` records it instead of the folder.
        """
        ended = {outcome.key: outcome for outcome in (folder.outcomes() if folder else ())}
        wanted = {key: k for key, k in self.order.items() if only is None or key in only}
        with threads(self.tasks[0].problem, self.tasks[0].setup):
            for (label, seed), k in wanted.items():
                if before := ended.get((label, seed)):
                    yield MethodResult(before)
                    continue
                if stop and stop.asked:
                    return
                if twin := self.twin(label, seed, ended):
                    result = MethodResult(twin)
                    if folder:
                        folder.ended(twin)
                else:
                    task = self.at(seed)[k]
                    place = self.place(k, seed, folder, journal) if folder else None
                    if task.remark:
                        emit(Notice(f"{label} {task.remark}", warning=True))
                    emit(Began(label, seed, task.rounds))
                    if announce:
                        announce((label, seed))
                    try:
                        trial = Trial(task, seed, self.draws(seed), place, emit, self.rules)
                        result = trial.run(stop, pause)
                    except BaseException as error:  # a user's method may do anything
                        result = MethodResult(self.failed(task, seed, error))
                    ended[label, seed] = result.outcome
                    if place and result.outcome.status != "stopped":
                        place.journal.ended(result.outcome)
                        place.shelf.clear(but=1 if result.lasts else 0)
                emit(Ended(result.outcome))
                yield result

    def place(self, k: int, seed: int, folder: Folder, journal: Journal | None = None) -> RunPlace:
        """Where the k-th method with one seed keeps its rows, checkpoints and models."""
        label = self.tasks[k].label
        name, identity = checkpoint(k, seed), folder.identity_of(label, seed)
        shelf = Shelf(folder.file(CHECKPOINTS), name, identity)
        stem = models.stem(k, label, seed)
        return RunPlace(journal or folder, shelf, folder, stem, lasting=LASTING)

    def twin(self, label: str, seed: int, ended: Mapping[Key, Outcome]) -> Outcome | None:
        """How a method ended with the first seed, if no other seed changes that."""
        first = ended.get((label, self.first[label]))
        if first is None or first.seeded or not self.alike or first.status == "stopped":
            return None
        return dataclasses.replace(first, seed=seed, same_as=first.seed)

    def failed(self, task: Task, seed: int, error: BaseException) -> Outcome:
        """The outcome of a method that cannot run here; other errors are raised again."""
        note = ""
        if self.tolerant and isinstance(error, Unsupported):
            note = f"failed: {error}"
        elif self.tolerant and task.file and not isinstance(error, (OSError, KeyboardInterrupt)):
            note = failure(error, task.file)
        if not note:
            raise error
        name = type(task.method).__name__
        return Outcome(task.label, name, seed, "failed", values(task.method), note)


def unmeasured(rules: TrialRules, task: Task, per_client: bool) -> dict[str, str]:
    """Complaints about metrics that the problem of a task does not measure, by their fields.

    What is measured of clients, ``per_client``, is known with the first row.
    """
    if not rules.missing({}):
        return {}
    problem = task.problem
    start = problem.start() if task.setup.x0 is None else task.setup.x0
    return rules.missing(
        dict(problem.metrics(start.to(problem.device, problem.dtype))),
        (OF_CLIENTS, OF_OWN_MODELS) if per_client else (),
    )


def make(spec: Spec, build: Build = build_all, part: RunPart = WHOLE) -> Experiment:
    """Build the problem of a spec and set what is left to theory. Raises :class:`BadSpec`."""
    if text := absent(spec.device):
        raise BadSpec([spec.origin.complaint(("device",), text)])
    pairs = len(spec.entries) * len(spec.seeds)
    if part.of > pairs:
        text = f"{part}: there is work for {pairs} parts, a method with a seed for each"
        raise BadSpec([Complaint((PART,), text, spec.origin.source)])
    complaints: list[Complaint] = []
    first, *others = spec.seeds if spec.anew else spec.seeds[:1]
    tasks = lay_out(spec, first, complaints, build)
    data = {str(first): tasks[0].problem.digest() if tasks else None}
    for seed in others if tasks else ():  # built again in turn: memory may not hold all of them
        again = lay_out(spec, seed, complaints, build)
        data[str(seed)] = again[0].problem.digest() if again else None

    goal = spec.best or spec.stop or USUALLY
    rules = TrialRules(spec.target, spec.stop, goal, accuracy=spec.target_accuracy)
    if tasks and build is build_all:  # what nodes hold is not here
        wrong = unmeasured(rules, tasks[0], spec.per_client)
        complaints += [spec.origin.complaint(keys_of(at), text) for at, text in wrong.items()]
    if complaints:
        raise BadSpec(complaints)
    return Experiment(
        spec,
        tasks,
        spec.seeds,
        rules=rules,
        data=data if spec.anew else data[str(first)],
        draws=spec.draws_at,
        lay=(lambda seed: lay_out(spec, seed, [], build)) if spec.anew else None,
        alike=spec.vary == ["draws"],
        tolerant=True,
        part=part,
    )
