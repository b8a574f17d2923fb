"""The loop over rounds, and what it records."""

from __future__ import annotations

import dataclasses
import math
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Literal

import torch

from undrift.core.cohort import Sampling
from undrift.core.method import Method
from undrift.core.problem import Problem
from undrift.engines import Engine, engines
from undrift.runs.history import History
from undrift.theory.rules import prescribe

if TYPE_CHECKING:
    from matplotlib.axes import Axes

DIVERGED = 1e6
"""A run has diverged when its gradient (or, without one, its loss) is this many times the first, or not finite."""


@dataclasses.dataclass
class Run:
    """A finished run."""

    method: Method
    problem: Problem
    engine: Engine
    history: History
    status: str
    """``done``, ``diverged`` or ``reached`` (a target)."""

    @property
    def x(self) -> torch.Tensor:
        """The server's last model."""
        return self.engine.x.clone()

    def plot(self, y: str = "gap", x: str = "round", ax: Axes | None = None) -> Axes:
        """Draw one recorded column against another."""
        from undrift.report.figures import curve

        return curve(self.history, y, x, label=type(self.method).__name__, ax=ax)


def run(
    method: Method,
    problem: Problem | str,
    *,
    rounds: int,
    every: int = 1,
    until: Callable[[dict[str, float]], bool] | None = None,
    watch: Callable[[dict[str, float]], None] | None = None,
    **setting: Any,
) -> Run:
    """Run ``method`` on ``problem`` for ``rounds`` rounds, in the setting (``steps``, ...) of :func:`prepare`.

    Every ``every`` rounds a row is recorded and shown to ``watch``; the run ends early once ``until(row)`` holds or it
    diverges.
    """
    engine = prepare(method, problem, **setting)
    history, status = record(engine, rounds, every=every, until=until, watch=watch)
    return Run(engine.method, engine.problem, engine, history, status)


def prepare(
    method: Method,
    problem: Problem | str,
    *,
    steps: int | Sequence[int] = 1,
    epochs: int | None = None,
    cohort: int | Sampling | None = None,
    batch: int | None = None,
    x0: Any = None,
    seed: int = 0,
    dtype: str | None = None,
    device: str = "cpu",
    engine: str = "simulate",
    weight_decay: float = 0.0,
    clip: float | None = None,
    clip_scope: Literal["task", "reference"] = "task",
    decay: float = 1.0,
    weights: Literal["uniform", "samples"] = "uniform",
    **parameters: Any,
) -> Engine:
    """The engine of a run, before its first round.

    A problem may be named ("logistic-a9a"); further keyword arguments are then its parameters. Hyper-parameters given
    as "theory" take their prescribed values. What the others mean: :class:`undrift.engines.Engine` and
    :class:`undrift.engines.local.Options`.
    """
    if isinstance(problem, str):
        from undrift.problems.catalog import build

        problem = build(problem, **parameters)
    elif parameters:
        raise TypeError(f"{', '.join(parameters)}: parameters of a problem go with its name, not with a ready one")
    problem = problem.to(problem.dtype if dtype is None else getattr(torch, dtype), torch.device(device))
    method = resolve(method, problem, steps=steps, epochs=epochs, cohort=cohort, batch=batch)
    return engines[engine](
        method, problem, steps=steps, epochs=epochs, cohort=cohort, batch=batch, seed=seed,
        x0=None if x0 is None else torch.as_tensor(x0),
        weight_decay=weight_decay, clip=clip, clip_scope=clip_scope, decay=decay, weights=weights,
    )  # fmt: skip


def resolve(
    method: Method,
    problem: Problem,
    *,
    steps: int | Sequence[int] = 1,
    epochs: int | None = None,
    cohort: int | Sampling | None = None,
    batch: int | None = None,
) -> Method:
    """``method`` with the values prescribed by theory where they were asked for."""
    if not method.open_fields():
        return method
    most = steps if isinstance(steps, int) else max(steps)
    if epochs is not None and batch is not None:
        most = epochs * -(-max(problem.samples) // batch)
    size = cohort.size if isinstance(cohort, Sampling) else cohort
    values = prescribe(
        type(method).__name__,
        problem.constants,
        steps=most,
        fields={f.name: getattr(method, f.name) for f in dataclasses.fields(method)},
        fraction=1.0 if size is None else size / problem.clients,
        stochastic=batch is not None,
    )
    return dataclasses.replace(method, **values)


def record(
    engine: Engine,
    rounds: int,
    *,
    every: int = 1,
    until: Callable[[dict[str, float]], bool] | None = None,
    watch: Callable[[dict[str, float]], None] | None = None,
) -> tuple[History, str]:
    """Run the engine up to round ``rounds`` and record it."""
    history, seconds = History(), 0.0

    def evaluate() -> dict[str, float]:
        row = measure(engine) | {"seconds": seconds}
        history.append(row)
        if watch:
            watch(row)
        return row

    row = evaluate()
    limit = DIVERGED * max(_size(row), 1e-300)
    while engine.round < rounds:
        started = time.perf_counter()
        for _ in range(min(every, rounds - engine.round)):
            engine.run_round()
        seconds += time.perf_counter() - started
        row = evaluate()
        if not math.isfinite(row["loss"]) or not _size(row) <= limit:
            return history, "diverged"
        if until and until(row):
            return history, "reached"
    return history, "done"


def _size(row: dict[str, float]) -> float:
    """What a run must not blow up: the gradient, or the loss where a problem does not measure its gradient."""
    return row.get("grad_norm", abs(row["loss"]))


def measure(engine: Engine) -> dict[str, float]:
    """One row: the metrics of the server's model and what has been spent."""
    spent = dataclasses.asdict(engine.ledger)
    return {
        "round": engine.round,
        **engine.problem.metrics(engine.x),
        "drift": engine.drift,
        "vectors": spent["vectors_up"] + spent["vectors_down"],
        **spent,
    }
