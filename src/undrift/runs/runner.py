"""The loop over rounds, and what it records."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import torch

from undrift.core.cohort import Sampling
from undrift.core.method import Method
from undrift.core.problem import Problem
from undrift.core.treatment import Scope, Weights
from undrift.engines import Engine, engines
from undrift.runs.history import History
from undrift.runs.trial import Trial
from undrift.theory.rules import prescribe

if TYPE_CHECKING:
    from matplotlib.axes import Axes


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
    store: str = "auto",
    weight_decay: float = 0.0,
    clip: float | None = None,
    clip_scope: Scope = "task",
    decay: float = 1.0,
    weights: Weights = "uniform",
    **parameters: Any,
) -> Engine:
    """The engine of a run, before its first round.

    A problem may be named ("logistic-a9a"); further keyword arguments are then its parameters. Hyper-parameters given
    as "theory" take their prescribed values. What the others mean: :class:`undrift.engines.Engine`,
    :class:`undrift.engines.Simulate` (``store``) and :class:`undrift.engines.local.Options`.
    """
    if isinstance(problem, str):
        from undrift.problems.catalog import build

        problem = build(problem, **parameters)
    elif parameters:
        raise TypeError(f"{', '.join(parameters)}: parameters of a problem go with its name, not with a ready one")
    wanted = problem.dtype if dtype is None else getattr(torch, dtype), torch.device(device)
    if (problem.dtype, problem.device) != wanted:  # one that is in place is shared, and what it has captured with it
        problem = problem.to(*wanted)
    method = resolve(method, problem, steps=steps, epochs=epochs, cohort=cohort, batch=batch)
    if store != "auto" and engine != "simulate":
        raise ValueError(f"engine {engine!r} has one place for its clients' states: leave out store = {store!r}")
    return engines[engine](
        method, problem, steps=steps, epochs=epochs, cohort=cohort, batch=batch, seed=seed,
        x0=None if x0 is None else torch.as_tensor(x0),
        weight_decay=weight_decay, clip=clip, clip_scope=clip_scope, decay=decay, weights=weights,
        **({} if store == "auto" else {"store": store}),
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
    history = History()

    def keep(row: dict[str, float]) -> None:
        history.append(row)
        if watch:
            watch(row)

    return history, Trial(engine, rounds, every, keep).run(until)
