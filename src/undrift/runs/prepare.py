"""From a spec or a call to tasks: problems built, hyper-parameters set, memory found; threads."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from traceback import walk_tb

import torch
from torch import Tensor

from undrift._threads import cores
from undrift.core.cohort import Sampling
from undrift.core.method import Method
from undrift.core.options import RunOptions, refuse
from undrift.core.params import AUTO, THEORY, BadParameters, Refusal, hints, values
from undrift.core.problem import Constants, Problem
from undrift.data.files import BadData
from undrift.engines.engine import Engine, load
from undrift.engines.federated import Remote
from undrift.engines.memory import Needs, NoRoom
from undrift.engines.options import EngineOptions, StoreOptions
from undrift.objectives import Objective
from undrift.problems.named import find
from undrift.spec.errors import BadSpec, Complaint, Keys
from undrift.spec.schema import Entry, Spec, path_of
from undrift.spec.user_files import line_in
from undrift.sweeps import auto
from undrift.sweeps.constants import Estimates, estimate
from undrift.theory import has_rule, prescribe

MANY = 100_000
"""Samples up to which a row takes milliseconds."""
STRIDES = (1, 2, 5, 10, 20, 50)
SMALL = 2_000_000
"""Parameters times samples of a gradient of all clients, below which one thread is fastest."""
ESTIMATES = "estimates"
"""Where a problem keeps those of its constants."""
OPENMP = "OMP_NUM_THREADS"
"""The environment variable with the threads that everything is to take."""
EXPECTED = (ValueError, OSError, RuntimeError, MemoryError, OverflowError)
"""Errors of problems that cannot be built from what was given."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Setup(RunOptions):
    """How a method is run: everything an engine takes besides method, problem and seed."""

    x0: Tensor | None = None
    engine: EngineOptions = dataclasses.field(default_factory=StoreOptions)
    """Which engine, with the options of its own; they decide no numbers."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Task:
    """A method with all its values, the problem it is run on, and how."""

    label: str
    method: Method
    problem: Problem
    rounds: int
    every: int
    setup: Setup
    per_client: bool = False
    written: Method
    """The method as it was given, with hyper-parameters that theory or short runs were to set."""
    file: str | None = None
    """The user's file the method is from, or else the problem or a part of it."""
    needs: Needs | None = None
    remark: str = ""
    """What is to be known of its hyper-parameters besides their values."""
    spent: int = 0
    """Gradients that were spent on finding them."""

    @cached_property
    def settled(self) -> Task:
        """The same with the step that short runs find, where it was left to them.

        It is found once for all seeds of a problem, and by none of them.
        """
        if not self.method.open_fields(AUTO):
            return self
        how = {name: getattr(self.setup, name) for name in ("x0", *hints(RunOptions))}
        found = auto.find(self._at, self.problem, self.rounds, **how | {"schedule": None})
        return dataclasses.replace(
            self, method=self._at(found.step), spent=self.spent + found.gradients
        )

    def _at(self, step: float) -> Method:
        """The method with a step, and what theory prescribes with it."""
        return resolve(auto.at(self.method, step), self.problem, self.setup)

    def engine(self, seed: int) -> Engine:
        """The engine before its first round."""
        given = dict(vars(self.setup))
        options = given.pop("engine")
        given |= values(options)
        engine = load(options.name)(self.method, self.problem, seed=seed, **given)
        engine.ledger.gradients = self.spent
        return engine

    def refuse(self) -> list[Refusal]:
        """Why it cannot run."""
        method, problem = self.method, self.problem
        reasons = refuse(method, self.setup, None, problem, self.rounds)
        return [*reasons, *method.refuse_problem(problem)]


def placed(problem: Problem, dtype: str | None, device: str | torch.device) -> Problem:
    """``problem`` in a precision and place; itself, with all it has recorded, if it is there."""
    kind = problem.dtype if dtype is None else getattr(torch, dtype)
    wanted = kind, torch.device(device)
    there = problem if (problem.dtype, problem.device) == wanted else problem.to(*wanted)
    there.refuse_overflow()
    return there


def resolve(method: Method, problem: Problem, options: RunOptions) -> Method:
    """``method`` with the values that theory prescribes, where it was left to theory.

    Constants that the problem does not know are estimated.
    """
    return by_theory(method, problem, options)[0]


def by_theory(
    method: Method, problem: Problem, options: RunOptions, estimating: bool = True
) -> tuple[Method, Estimates | None]:
    """The same, with the estimates that it took, if any."""
    if not (left := method.open_fields()):
        return method, None
    cohort, batch = options.cohort, options.drawn
    exact = batch is None or batch >= max(problem.samples)

    def given(constants: Constants) -> Method:
        values = prescribe(
            method,
            constants.decayed(options.training.weight_decay),
            steps=max(options.local_steps(problem.samples)),
            fraction=1.0 if cohort is None else cohort.size / problem.clients,
            batch=None if exact else batch,
            noisy=problem.keyed,
        )
        return dataclasses.replace(method, **values)

    try:
        return given(problem.cheap_constants), None
    except BadParameters:  # a rule needs the deltas, or more than is known
        if not estimating or not all(has_rule(type(method), field) for field in left):
            return given(problem.constants), None
    constants, found = constants_of(problem)
    return given(constants), found


def constants_of(problem: Problem) -> tuple[Constants, Estimates | None]:
    """All constants of a problem, and estimates where it does not know them itself."""
    known = vars(problem.constants)
    missing = [name for name, value in known.items() if value is None]
    if not missing or isinstance(problem, Remote):
        return problem.constants, None
    found: Estimates = vars(problem).get(ESTIMATES) or estimate(problem)
    vars(problem)[ESTIMATES] = found  # for other methods
    return Constants(**known | {name: getattr(found.constants, name) for name in missing}), found


def resolved(
    label: str,
    method: Method,
    problem: Problem,
    setup: Setup,
    rounds: int,
    every: int | None,
    per_client: bool = False,
    estimating: bool = True,
) -> Task:
    """A task with what theory prescribes. Raises ``ValueError`` where it cannot."""
    text, theory, by_runs = "", "lr" in method.open_fields(), method.open_fields(AUTO)
    if theory and (optimiser := setup.training.optimiser):
        text = f"theory prescribes lr for local SGD, not for {optimiser.name}"
    elif by_runs and load(setup.engine.name).remote:
        text = f"short runs find {by_runs[0]} where the clients' data are, and they are not here"
    elif (theory or by_runs) and (factor := setup.schedule) and max(map(factor, range(rounds))) > 1:
        text = "the schedule has factors above 1, which take lr beyond what was found for it"
    if text:
        raise ValueError(f"{label}: {text}: give it as a number")
    # What theory cannot prescribe is refused here, whatever the step.
    found, used = by_theory(auto.at(method, 1.0) if by_runs else method, problem, setup, estimating)
    fields = ", ".join(method.open_fields())
    text = f"has {fields} by theory from estimated constants, which are no bounds: {used}"
    return Task(
        label=label,
        method=method if by_runs else found,
        remark=text if used else "",
        spent=used.gradients if used else 0,
        problem=problem,
        rounds=rounds,
        every=every or usual_every(problem, setup.cohort),
        setup=setup,
        per_client=per_client,
        written=method,
    )


def usual_every(problem: Problem, cohort: Sampling | None) -> int:
    """Rounds from one row to the next where nobody has said: a row measures all training samples.

    It depends on nothing that differs between methods or seeds, or that a longer run changes.
    """
    if cohort is None or problem.metric_samples == "test" or sum(problem.samples) <= MANY:
        return 1
    return max(n for n in STRIDES if n == 1 or n <= problem.clients / (10 * cohort.size))


def ready(task: Task) -> Task:
    """``task`` itself; raises ``BadParameters`` if it or its method cannot run on its problem."""
    if reasons := task.refuse():
        raise BadParameters("run", {"method" if at == "name" else at: why for at, why in reasons})
    return task


Build = Callable[[Spec, int, list[Complaint]], Mapping[Objective | None, Problem]]
"""Builds the problems of a spec with one seed, and complains about those that cannot be built."""


def lay_out(
    spec: Spec, seed: int, complaints: list[Complaint], build: Build | None = None
) -> list[Task]:
    """The tasks of a spec with one seed, without those that ``complaints`` are added about."""
    problems = (build or build_all)(spec, seed, complaints)
    return [
        task
        for entry in spec.entries
        if (problem := problems.get(entry.objective)) is not None
        and (task := _task(spec, entry, problem, complaints))
    ]


def build_all(
    spec: Spec, seed: int, complaints: list[Complaint]
) -> dict[Objective | None, Problem]:
    """The problem for each objective of a spec, built once for all methods that share it."""
    problems: dict[Objective | None, Problem] = {}
    # Code of a user may fail in any way; other errors are faults of undrift's own.
    expected = (Exception,) if spec.sources else EXPECTED
    for i, entry in enumerate(spec.entries):
        if entry.objective in problems:
            continue
        try:
            found = spec.problem.drawn(spec.vary, seed).build(entry.objective)
            problems[entry.objective] = placed(found, spec.dtype, spec.device)
        except RecursionError:
            raise
        except expected as error:
            complaints.append(_blamed(spec, i, seed, error))
    return problems


def _blamed(spec: Spec, i: int, seed: int, error: Exception) -> Complaint:
    """Why the problem of the i-th method cannot be built, at the key that the error names.

    An error of a user's code has the line of the file.
    """
    if isinstance(error, BadParameters) and "objective" in error.problems:
        return spec.complaint(i, "objective", error.problems["objective"])
    path: Keys = ("problem",)
    text = " ".join(str(error).split()) or "too little memory is free"
    if isinstance(error, BadParameters):
        text = "; ".join(error.problems.values())
        path += tuple(name for name in error.problems if name in hints(type(spec.problem)))[:1]
    elif isinstance(error, BadData) and spec.problem_file is None:
        path += ("name" if "data" in find(spec.problem_name)[1] else "data",)
    folder = Path(spec.origin.source).parent
    frames = [frame.f_code.co_qualname for frame, _ in walk_tb(error.__traceback__)]
    for key, call in spec.calls.items():
        if call.name in (name.partition(".")[0] for name in frames):
            path = (key,)
    for file in spec.sources:
        if line := line_in(error, (folder / file).absolute()):
            text = f"{file}:{line}: {type(error).__name__}: {text}"
    return spec.origin.complaint(path, f"seed {seed}: {text}" if spec.anew else text)


def _task(spec: Spec, entry: Entry, problem: Problem, complaints: list[Complaint]) -> Task | None:
    """One method on its problem; ``None``, and complaints, where it cannot run."""
    say_where, cohort = spec.origin.complaint, entry.options.cohort or Sampling(problem.clients)
    label, method, rounds = entry.label, entry.method, entry.rounds
    setup = Setup(**vars(entry.options), engine=spec.engine)
    every = spec.every or usual_every(problem, spec.cohort)  # the same for all methods
    try:
        task = resolved(label, method, problem, setup, rounds, every, spec.per_client)
    except ValueError as error:
        field = next(iter(entry.method.open_fields(THEORY, AUTO)), "name")
        complaints.append(say_where(("method", entry.place, field), str(error)))
        return None
    complaints += [
        say_where(path_of(field, entry.place, entry.given), text) for field, text in task.refuse()
    ]
    engine = load(spec.engine.name)
    try:
        needs = engine.needs(task.method, problem, cohort, spec.engine)
    except NoRoom as error:
        complaints.append(say_where(("problem",), f"{entry.label}: {error}"))
        return None
    except BadParameters as error:
        found = error.problems.items()
        raise BadSpec([say_where(("engine", field), text) for field, text in found]) from None
    own = entry.given.get("file") or spec.problem_file or next(iter(spec.sources), None)
    return dataclasses.replace(task, file=own, needs=needs)


@contextmanager
def threads(problem: Problem, options: RunOptions) -> Iterator[None]:
    """No more than there are cores to use, and one for small gradients, where more are slower.

    If OMP_NUM_THREADS is set, as many as it says.
    """
    before = torch.get_num_threads()
    samples = options.batch or sum(problem.samples) / problem.clients or 1
    size = problem.dim * samples * (options.cohort.size if options.cohort else problem.clients)
    if OPENMP not in os.environ:
        torch.set_num_threads(1 if size < SMALL else min(before, cores()))
    try:
        yield
    finally:
        torch.set_num_threads(before)
