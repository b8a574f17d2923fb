"""The loop over rounds, and what it records."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

import torch

from undrift.core.cohort import Sampling, sampling
from undrift.core.method import Method
from undrift.core.options import Scope, Weights
from undrift.core.problem import Problem, Unsupported
from undrift.engines import Engine, Ledger
from undrift.engines.memory import afford
from undrift.engines.named import registry as engines
from undrift.runs.arguments import named, settle
from undrift.runs.history import History
from undrift.runs.trial import Trial
from undrift.theory import prescribe

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from torch import nn

SPENT = tuple(field.name for field in dataclasses.fields(Ledger))


@dataclasses.dataclass(repr=False)
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

    def module(self) -> nn.Module:
        """The network with the server's last model, where the problem is one."""
        make = getattr(self.problem, "module", None)
        if make is None:
            raise Unsupported(
                f"{type(self.problem).__name__} is not a network: its model is the vector x of the run"
            )
        return make(self.x)

    def plot(self, y: str | None = None, x: str = "round", ax: Axes | None = None) -> Axes:
        """Draw one recorded column against another.

        Without ``y`` that is the gap where the optimum is known, else the accuracy, else the loss.
        """
        from undrift.plots.columns import metric
        from undrift.plots.curves import curve

        column = y or metric(self.history.rows)
        return curve(self.history, column, x, label=type(self.method).__name__, ax=ax)

    def __repr__(self) -> str:
        problem = f"{type(self.problem).__name__} with {self.problem.clients} clients, dim {self.problem.dim}"
        return f"Run({self.method} on {problem}: {self.status}; {self.history.ending(SPENT)})"


def run(
    method: Method,
    problem: Problem | str,
    *,
    rounds: int,
    every: int = 1,
    until: Callable[[dict[str, float]], bool] | None = None,
    watch: Callable[[dict[str, float]], None] | None = None,
    steps: int | Sequence[int] = 1,
    epochs: int | None = None,
    cohort: int | Sampling | Mapping[str, Any] | None = None,
    batch: int | None = None,
    x0: Any = None,
    seed: int = 0,
    dtype: str | torch.dtype | None = None,
    device: str | torch.device = "cpu",
    engine: Literal["simulate", "wire"] = "simulate",
    store: str = "auto",
    weight_decay: float = 0.0,
    clip: float | None = None,
    clip_scope: Scope = "task",
    decay: float = 1.0,
    weights: Weights = "uniform",
    problem_seed: int | None = None,
    **parameters: Any,
) -> Run:
    """Run ``method`` on ``problem`` and record it.

    A problem may be named ("logistic-a9a"); further keyword arguments are then its parameters.
    Hyper-parameters given
    as "theory" take their prescribed values. What is wrong with the arguments is raised as one
    ``BadParameters``;
    what only the problem itself can tell, as the length of ``x0``, as a ``ValueError``.

    rounds        rounds of communication, after which the method is done
    every         rounds from one recorded row to the next
    until         a function of a row: the run ends early once it is true
    watch         is shown every row as it is recorded
    steps         local steps of a round: one number for all clients, or one for each
    epochs        passes over a client's samples, instead of steps; needs a batch
    cohort        clients that take part in a round: a number, or a Sampling or its parameters; left
                  out: all of them
    batch         samples of a mini-batch; left out: all that a client has
    x0            the first point; left out: the problem's own
    seed          decides cohorts, mini-batches and coins
    dtype         float64 or float32, of models and gradients; left out: the problem's own
    device        cpu, cuda, cuda:1 ...
    engine        simulate: the cohort side by side; wire: one client after another, by messages
    store         where simulate keeps what clients remember: device, host, file, or auto: the first
                  with room
    weight_decay  adds weight_decay * y to every local gradient
    clip          largest norm of a gradient
    clip_scope    what of a local step is clipped: task, whole or reference
                  (undrift.core.options.Treatment)
    decay         factor on lr after every round
    weights       uniform, or samples: clients count by their number of samples
    problem_seed  the parameter seed of a problem that is named: decides its data, its split, its
                  first weights
    """
    setting: dict[str, Any] = {
        "steps": steps, "epochs": epochs, "cohort": cohort, "batch": batch, "x0": x0, "seed": seed, "dtype": dtype,
        "device": device, "engine": engine, "store": store, "weight_decay": weight_decay, "clip": clip,
        "clip_scope": clip_scope, "decay": decay, "weights": weights, "problem_seed": problem_seed,
    }  # fmt: skip
    own = {"rounds": rounds, "every": every, "until": until, "watch": watch}
    given = settle(method, problem, own | setting, parameters)
    machine = prepare(method, problem, **setting, **parameters)
    history, status = record(
        machine, given["rounds"], every=given["every"], until=until, watch=watch
    )
    return Run(machine.method, machine.problem, machine, history, status)


def prepare(
    method: Method,
    problem: Problem | str,
    *,
    steps: int | Sequence[int] = 1,
    epochs: int | None = None,
    cohort: int | Sampling | Mapping[str, Any] | None = None,
    batch: int | None = None,
    x0: Any = None,
    seed: int = 0,
    dtype: str | torch.dtype | None = None,
    device: str | torch.device = "cpu",
    engine: Literal["simulate", "wire"] = "simulate",
    store: str = "auto",
    weight_decay: float = 0.0,
    clip: float | None = None,
    clip_scope: Scope = "task",
    decay: float = 1.0,
    weights: Weights = "uniform",
    problem_seed: int | None = None,
    **parameters: Any,
) -> Engine:
    """The engine of a :func:`run`, before its first round."""
    setting: dict[str, Any] = {
        "steps": steps, "epochs": epochs, "cohort": cohort, "batch": batch, "x0": x0, "seed": seed,
        "weight_decay": weight_decay, "clip": clip, "clip_scope": clip_scope, "decay": decay, "weights": weights,
    }  # fmt: skip
    place = {
        "dtype": dtype,
        "device": device,
        "engine": engine,
        "store": store,
        "problem_seed": problem_seed,
    }
    given = settle(method, problem, setting | place, parameters)
    if isinstance(problem, str):
        from undrift.problems.named import made

        kind = made(problem, **named(parameters, problem_seed))
        afford(problem, kind.least_bytes)
        problem = kind.build()
    wanted = (
        problem.dtype if dtype is None else getattr(torch, given["dtype"]),
        torch.device(given["device"]),
    )
    if (
        problem.dtype,
        problem.device,
    ) != wanted:  # one that is in place is shared, and what it has captured with it
        problem = problem.to(*wanted)
    setting = {name: given[name] for name in setting}
    method = resolve(
        method, problem, **{name: setting[name] for name in ("steps", "epochs", "cohort", "batch")}
    )
    if store != "auto" and engine != "simulate":
        raise ValueError(
            f"engine {engine!r} has one place for its clients' states: leave out store = {store!r}"
        )
    if store != "auto":
        setting["store"] = store
    return engines[engine].load()(method, problem, **setting)


def resolve(
    method: Method,
    problem: Problem,
    *,
    steps: int | Sequence[int] = 1,
    epochs: int | None = None,
    cohort: int | Sampling | Mapping[str, Any] | None = None,
    batch: int | None = None,
) -> Method:
    """``method`` with the values prescribed by theory where they were asked for."""
    if not method.open_fields():
        return method
    most = steps if isinstance(steps, int) else max(steps)
    if epochs is not None and batch is not None:
        most = epochs * -(-max(problem.samples) // batch)
    drawn = sampling(cohort)
    values = prescribe(
        method,
        problem.constants,
        steps=most,
        fraction=1.0 if drawn is None else drawn.size / problem.clients,
        batch=batch,
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
