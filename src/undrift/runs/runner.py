"""The loop over rounds, and what it records."""

from __future__ import annotations

import dataclasses
import math
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import torch

from undrift.core.method import Method
from undrift.core.problem import Problem
from undrift.engines import Engine, engines
from undrift.runs.history import History
from undrift.theory.rules import prescribe

if TYPE_CHECKING:
    from matplotlib.axes import Axes

DIVERGED = 1e6
"""A run has diverged when its gradient is this many times the first one, or not finite."""


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
    steps: int | Sequence[int] = 1,
    cohort: int | None = None,
    batch: int | None = None,
    x0: Any = None,
    seed: int = 0,
    dtype: str = "float64",
    device: str = "cpu",
    engine: str = "simulate",
    every: int = 1,
    until: Callable[[dict[str, float]], bool] | None = None,
    watch: Callable[[dict[str, float]], None] | None = None,
    **options: Any,
) -> Run:
    """Run ``method`` on ``problem`` for ``rounds`` rounds of ``steps`` local steps.

    A problem may be named ("logistic-a9a"); further keyword arguments are then its parameters. Hyper-parameters given
    as "theory" take their prescribed values. Every ``every`` rounds a row is recorded, shown to ``watch``, and the run
    ends early once ``until(row)`` holds or it diverges.
    """
    machine = prepare(
        method, problem, steps=steps, cohort=cohort, batch=batch, x0=x0, seed=seed,
        dtype=dtype, device=device, engine=engine, **options,
    )  # fmt: skip
    history, status = record(machine, rounds, every=every, until=until, watch=watch)
    return Run(machine.method, machine.problem, machine, history, status)


def prepare(
    method: Method,
    problem: Problem | str,
    *,
    steps: int | Sequence[int] = 1,
    cohort: int | None = None,
    batch: int | None = None,
    x0: Any = None,
    seed: int = 0,
    dtype: str = "float64",
    device: str = "cpu",
    engine: str = "simulate",
    **options: Any,
) -> Engine:
    """The engine of a run, before its first round."""
    if isinstance(problem, str):
        from undrift.problems.catalog import build

        problem = build(problem, **options)
    elif options:
        raise TypeError(f"{', '.join(options)}: parameters of a problem go with its name, not with a ready one")
    problem = problem.to(getattr(torch, dtype), torch.device(device))
    method = resolve(method, problem, steps=steps, cohort=cohort, batch=batch)
    start = None if x0 is None else torch.as_tensor(x0)
    return engines[engine](method, problem, steps=steps, cohort=cohort, batch=batch, seed=seed, x0=start)


def resolve(
    method: Method, problem: Problem, *, steps: int | Sequence[int], cohort: int | None, batch: int | None
) -> Method:
    """``method`` with the values prescribed by theory where they were asked for."""
    if not method.open_fields():
        return method
    values = prescribe(
        type(method).__name__,
        problem.constants,
        steps=steps if isinstance(steps, int) else max(steps),
        fields={f.name: getattr(method, f.name) for f in dataclasses.fields(method)},
        fraction=1.0 if cohort is None else cohort / problem.clients,
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
    limit = DIVERGED * max(row["grad_norm"], 1e-300)
    while engine.round < rounds:
        started = time.perf_counter()
        for _ in range(min(every, rounds - engine.round)):
            engine.run_round()
        seconds += time.perf_counter() - started
        row = evaluate()
        if not math.isfinite(row["loss"]) or not row["grad_norm"] <= limit:
            return history, "diverged"
        if until and until(row):
            return history, "reached"
    return history, "done"


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
