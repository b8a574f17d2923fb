"""What a call of ``undrift.run`` computed, for the folder of a run that no spec can describe."""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Mapping, Sequence

from undrift.core.params import values
from undrift.core.problem import Problem
from undrift.records.recipe import PYTHON, digest_of_call
from undrift.runs.callbacks import Callback, Observers, name_of
from undrift.runs.code import code_digest, is_known
from undrift.runs.prepare import Task
from undrift.spec import writer
from undrift.spec.schema import Table, Values, as_toml, numbers_of


@dataclasses.dataclass(frozen=True)
class Script:
    """The recipe of a run that was called from Python."""

    name: str
    tables: Values
    """The document without its name."""
    sources: Mapping[str, bytes] = dataclasses.field(default_factory=dict)

    @property
    def identity(self) -> str:
        return digest_of_call(self.tables)

    def document(self) -> Values:
        return {"name": self.name, **self.tables}

    def toml(self) -> str:
        return (
            "# Called from Python, with a problem, a method or a function that only that program\n"
            "# has: continue with the same call, or undrift.resume(FOLDER, method, problem).\n"
        ) + writer.toml(self.document())


def describe(
    name: str,
    tasks: Sequence[Task],
    seeds: Sequence[int],
    given: Table,
    callbacks: Sequence[Callback],
) -> Script:
    """The recipe of some tasks: settings and methods in full, the problem by its facts."""
    first = tasks[0]
    top = {
        "rounds": first.rounds,
        "every": first.every,
        "seed": list(seeds),
        "device": given["device"],
        **_setup(first),
        "stop": given["stop"],
        "best": given["best"],
    }
    if first.per_client:
        top["per_client"] = True
    if callbacks:
        top["callbacks"] = [name_of(callback) for callback in callbacks]
    methods = [
        {"name": type(task.written).__name__, "label": task.label, **values(task.written)}
        for task in tasks
    ]
    return Script(name, as_toml({**top, "problem": _facts(first.problem), "method": methods}))


def code_of(tasks: Sequence[Task], given: Observers) -> dict[str, str | None]:
    """The digest of each part of a call that no document can hold; ``None`` if it has none.

    Methods and settings of undrift's own are in the document. Callbacks are known by name alone:
    one that failed may be mended.
    """
    first = tasks[0]
    things = dict(first.problem.choices())
    if not is_known(type(first.problem)):
        things["problem"] = type(first.problem)
    things |= {f"method {task.label}": task.written for task in tasks if _is_own(task.written)}
    settings = {**vars(first.setup), "stop": given.stop, "best": given.best}
    things |= {name: value for name, value in settings.items() if _is_own(value)}
    return {name: code_digest(thing) for name, thing in things.items()}


def _is_own(value: object) -> bool:
    parts = value if isinstance(value, list | tuple) else [value]
    return not all(is_known(type(part)) for part in parts)


def _setup(task: Task) -> Values:
    """The settings of a task that decide numbers; the place of client states does not."""
    found = dict(vars(task.setup))
    del found["own"]
    found["engine"] = numbers_of(found["engine"])
    if found["x0"] is not None:
        start = found["x0"].detach().cpu().numpy()
        found["x0"] = hashlib.sha256(start.tobytes()).hexdigest()
    if found["epochs"] is not None:
        del found["steps"]
    return found


def _facts(problem: Problem) -> Values:
    kind, precision = type(problem), getattr(problem, "precision", "f32")
    return {
        "name": kind.__name__,
        PYTHON: f"{kind.__module__}.{kind.__qualname__}",
        "clients": problem.clients,
        "dim": problem.dim,
        "samples": sum(problem.samples),
        "dtype": str(problem.dtype).removeprefix("torch."),
        **({} if precision == "f32" else {"precision": precision}),
    }
