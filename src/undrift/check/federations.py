"""The small federations the battery runs on, and hyper-parameters for any method on them."""

from __future__ import annotations

import dataclasses
import math
from typing import TypeVar

import numpy as np
import torch

from undrift.core.method import Exchange, Method, Round
from undrift.core.params import THEORY, fits, hints, numeric
from undrift.core.problem import Constants, Problem
from undrift.engines import Engine, Simulate
from undrift.engines.work import Counters
from undrift.problems.quadratic import LeastSquares, Quadratic
from undrift.theory import has_rule, prescribe

AnyEngine = TypeVar("AnyEngine", bound=Engine)
STEPS = 3


def quadratics(seed: int = 0, clients: int = 4, dim: int = 3) -> tuple[np.ndarray, np.ndarray]:
    """Hessians ``[N, d, d]`` with eigenvalues in [1, 4] and far-apart minimisers."""
    rng = np.random.default_rng(seed)
    frames = np.linalg.qr(rng.normal(size=(clients, dim, dim)))[0]
    hessians = np.einsum("nij,nj,nkj->nik", frames, rng.uniform(1, 4, (clients, dim)), frames)
    return hessians, np.einsum("nij,nj->ni", hessians, 20 * rng.normal(size=(clients, dim)))


def quadratic() -> Quadratic:
    return Quadratic(*quadratics())


def least_squares(seed: int = 0, clients: int = 5, rows: int = 8, dim: int = 4) -> LeastSquares:
    """A problem with samples, for mini-batches."""
    rng = np.random.default_rng(seed)
    return LeastSquares(rng.normal(size=(clients, rows, dim)), rng.normal(size=(clients, rows)))


def example(cls: type[Method], constants: Constants, steps: int = STEPS, **given: object) -> Method:
    """The method with prescribed values; without a rule, a small ``lr`` and declared defaults."""
    values = dict(given)
    for field in dataclasses.fields(cls):
        if field.name in values:
            continue
        if has_rule(cls, field.name):
            values[field.name] = THEORY
        elif field.default is not dataclasses.MISSING:
            values[field.name] = field.default
        elif field.name == "lr" and constants.L:
            values["lr"] = 1 / (4 * steps * constants.L)
        elif numeric(hint := hints(cls)[field.name]):
            values[field.name] = 0.5 if fits(0.5, hint) else 1
    method = cls(**values)
    return dataclasses.replace(method, **prescribe(method, constants, steps=steps))


def uneven(method: Method, clients: int, batch: int | None = None) -> dict[str, object]:
    """Partial cohorts, unequal local steps and mini-batches, as far as the method allows them."""
    return {
        "steps": STEPS if method.equal_steps else [1 + (i % STEPS) for i in range(clients)],
        "cohort": clients - 2 if method.participation == "partial" else None,
        "batch": None if method.solves else batch,
    }


def on_samples(
    cls: type[Method], batch: int | None = None
) -> tuple[Method, LeastSquares, dict[str, object]]:
    """The method on a problem with samples, as unevenly as it allows."""
    problem = least_squares()
    method = example(cls, problem.constants)
    return method, problem, uneven(method, problem.clients, batch)


def after(rounds: int, engine: AnyEngine) -> AnyEngine:
    """The engine itself, so many rounds later."""
    for _ in range(rounds):
        engine.run_round()
    return engine


def random_clients(method: Method) -> bool:
    """Whether some phase draws single clients, so that renaming the clients changes the run."""
    return any(p.who == "one" or p.reduction == "pick" for p in phases(method))


def random_rounds(method: Method) -> bool:
    """Whether rounds differ: by their number, by coins, or by which client was drawn."""
    drawn = False

    def coin() -> np.random.Generator:
        nonlocal drawn
        drawn = True
        return np.random.default_rng(0)

    def plan(number: int) -> object:
        now = Round(number, [STEPS], coin)
        exchanges = [type(p) for p in method.phases(now)]
        return list(method.local_steps(now)), exchanges, method.blocks(now)

    return plan(0) != plan(1) or drawn or random_clients(method)


def phases(method: Method) -> list[Exchange]:
    """The exchanges of the first round."""
    return method.phases(Round(0, [STEPS], lambda: np.random.default_rng(0)))


class RoundMap:
    """A round as a map of the whole state (server's and clients' vectors in one)."""

    def __init__(self, method: Method, problem: Problem, rounds: int = 1):
        self.engine: Engine = Simulate(method, problem, steps=STEPS)
        self.rounds = rounds
        tensors, self.counters = self.engine.snapshot()
        self.shapes = {name: tuple(t.shape) for name, t in tensors.items()}
        self.cold = self.pack(tensors)

    def pack(self, tensors: dict[str, torch.Tensor]) -> np.ndarray:
        return np.concatenate([tensors[name].reshape(-1).numpy() for name in self.shapes])

    def __call__(self, state: np.ndarray, counters: Counters | None = None) -> np.ndarray:
        """The state after ``rounds`` rounds."""
        self.place(state, counters)
        return self.pack(after(self.rounds, self.engine).snapshot()[0])

    def place(self, state: np.ndarray, counters: Counters | None = None) -> None:
        ends = np.cumsum([math.prod(shape) for shape in self.shapes.values()])
        parts = zip(self.shapes.items(), np.split(state, ends[:-1]), strict=True)
        tensors = {name: torch.from_numpy(v.reshape(shape).copy()) for (name, shape), v in parts}
        self.engine.restore(tensors, counters or self.counters)

    def point(self, state: np.ndarray) -> np.ndarray:
        """The server's model in a state."""
        self.place(state)
        return self.engine.x.numpy()

    def matrix(self) -> tuple[np.ndarray, np.ndarray]:
        """(M, b) of the map s -> M s + b, by probing."""
        b = self(np.zeros_like(self.cold))
        return np.stack([self(e) - b for e in np.eye(len(b))], axis=1), b
