"""A method in the place of a Flower strategy, for a ServerApp of a user's own."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Literal, NoReturn

import torch
from flwr.app import ArrayRecord, ConfigRecord, Message, MetricRecord
from flwr.serverapp import Grid
from flwr.serverapp.strategy import FedAvg, Result, Strategy
from torch import Tensor

from undrift.core.cohort import Sampling
from undrift.core.method import Method
from undrift.core.options import LocalOptions
from undrift.core.params import BadParameters, hints, not_allowed, plain, unknown, values
from undrift.core.problem import Facts
from undrift.core.robust import Robust
from undrift.core.schedules import Computed, schedule
from undrift.engines.federated import Answer, Call, Check, Federated, Remote, Unsound
from undrift.engines.format import dump
from undrift.engines.options import FederatedOptions
from undrift.flower.client_training import STATES
from undrift.flower.exchange import Correspondence, Letter, needs_all
from undrift.flower.grid_carrier import LOG, MODS, Post
from undrift.flower.server_model import Model
from undrift.spec.schema import as_toml

OPTIONS = (*hints(LocalOptions), "judge")


def strategy(
    method: Method,
    *,
    clients: int,
    cohort: int | Sampling | Mapping[str, object] | None = None,
    fraction_train: float = 1.0,
    steps: int | Sequence[int] = 1,
    epochs: int | None = None,
    batch: int | None = None,
    accumulate: int | None = None,
    seed: int = 0,
    absent: Literal["wait", "drop"] = "wait",
    joining: float = 600.0,
    reduction: str | Robust | Mapping[str, object] | None = None,
    fraction_evaluate: float = 1.0,
    weighted_by_key: str = "num-examples",
    **options: Any,
) -> Strategy:
    """A method as a Flower strategy, for ClientApps that call :func:`undrift.flower.train`.

    ``clients`` is the number of nodes, all of which have to join within ``joining`` seconds.
    ``cohort`` of them take part in a round (a number or a table), or ``fraction_train``; left out,
    all do. ``steps`` are local steps, ``epochs`` passes over a node's samples in their place,
    ``batch`` the samples of a mini-batch (all when ``None``), ``accumulate`` the mini-batches that
    a gradient is the mean of. A node that does not answer within the ``timeout`` of ``start`` is
    asked again (``absent="wait"``), or left out of the round (``"drop"``).
    ``fraction_evaluate`` of the nodes evaluate the model after a round by the ClientApp's own
    ``@app.evaluate()``, their metrics weighted by ``weighted_by_key``.
    ``options`` are ``judge`` and those of :class:`undrift.core.options.LocalOptions`.
    """
    if fraction_train != 1:
        text = "" if cohort is None else "give cohort or fraction_train, not both"
        if not 0 < fraction_train < 1:
            text = not_allowed("fraction_train", fraction_train, "a number > 0 and <= 1")
        if text:
            raise BadParameters("strategy", {"fraction_train": text})
        cohort = max(1, round(fraction_train * clients))
    if strange := [name for name in options if name not in OPTIONS]:
        raise BadParameters("strategy", {n: unknown("option", n, OPTIONS) for n in strange})
    if isinstance(schedule(options.get("schedule")), Computed):
        text = "a function does not travel to the nodes: use one of undrift.schedules"
        raise BadParameters("strategy", {"schedule": text})
    setting: dict[str, object] = {"steps": steps, "cohort": cohort, "batch": batch}
    setting |= {"accumulate": accumulate, "epochs": epochs, "reduction": reduction, **options}
    return MethodStrategy(
        method,
        clients,
        as_toml(plain(setting)),
        seed,
        {"absent": absent, "joining": joining},
        fraction_evaluate=fraction_evaluate,
        min_evaluate_nodes=1,
        min_available_nodes=1,
        weighted_by_key=weighted_by_key,
    )


class MethodStrategy(FedAvg):
    """Rounds are those of a method; evaluation is that of Flower's FedAvg."""

    def __init__(
        self,
        method: Method,
        clients: int,
        setting: Mapping[str, Any],
        seed: int,
        waiting: Mapping[str, Any],
        **evaluation: Any,
    ):
        super().__init__(**evaluation)
        self.method, self.clients, self.seed, self.waiting = method, clients, seed, waiting
        self.setting = dict(setting)
        self._post: Post | None = None
        self._engine: Federated | None = None
        self._model: Model | None = None
        self._refuse()

    def _refuse(self) -> None:
        """Find what cannot be run before any node is asked."""
        if type(self.clients) is not int or self.clients < 1:
            text = f"clients = {self.clients!r} is not allowed: a whole number >= 1"
            raise BadParameters("strategy", {"clients": text})
        nothing = _facts([1] * self.clients, torch.zeros(1, dtype=torch.float64))
        self._engine_of(Remote(nothing, Nobody(), None), 1.0)
        name = type(self.method).__name__
        if self.method.minimising():
            text = f"{name} needs the exact minimiser of every client's loss, which no module has"
            raise BadParameters("strategy", {"method": text})
        if self.waiting["absent"] == "drop" and needs_all(self.method):
            text = f"{name} needs every client in every round: absent = 'wait'"
            raise BadParameters("strategy", {"absent": text})

    def _engine_of(self, problem: Remote, deadline: float) -> Federated:
        own = {**self.setting, **self.waiting, "deadline": deadline}
        return Federated(self.method, problem, seed=self.seed, **own)

    def start(
        self,
        grid: Grid,
        initial_arrays: ArrayRecord,
        num_rounds: int = 3,
        timeout: float = 3600,
        train_config: ConfigRecord | None = None,
        evaluate_config: ConfigRecord | None = None,
        evaluate_fn: Callable[[int, ArrayRecord], MetricRecord | None] | None = None,
    ) -> Result:
        """Run the method; arrays of the result are those of a state dict, as ``initial_arrays``."""
        self._post = Post(grid, train_config or ConfigRecord())
        options = FederatedOptions(deadline=timeout, **self.waiting)
        with TemporaryDirectory(prefix=STATES, ignore_cleanup_errors=True) as states:
            federation = Adopted(self._post, self, options, Path(states).name)
            said = federation.gather()
            self._model = Model.agreed(said, initial_arrays, federation.who)
            facts = _facts([about["samples"] for about in said], self._model.vector())
            self._engine = self._engine_of(Remote(facts, federation, None), timeout)
            try:
                return super().start(
                    grid,
                    initial_arrays,
                    num_rounds,
                    timeout,
                    train_config,
                    evaluate_config,
                    evaluate_fn,
                )
            finally:
                self._engine = None

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """Nothing: :meth:`aggregate_train` asks the nodes, once for every phase of the round."""
        if self._engine is None or self._post is None:
            raise RuntimeError(f"a method runs by its own start(); {MODS}")
        self._post.round = server_round
        return []

    def aggregate_train(
        self, server_round: int, replies: Iterable[Message]
    ) -> tuple[ArrayRecord | None, MetricRecord | None]:
        """One round."""
        if self._engine is None or self._model is None:
            raise RuntimeError(f"a method runs by its own start(); {MODS}")
        engine = self._engine
        before, skipped = engine.ledger.counts(), engine.ledger.skipped
        engine.run_round()
        for one in engine.rejections:
            LOG.warning("round %d without client %d: %s", server_round, one.client, one.reason)
        metrics: dict[str, int | float | list[int] | list[float]] = {
            "left-out": len(engine.rejections),
            "skipped": engine.ledger.skipped - skipped,
        }
        engine.rejections.clear()
        for name in ("gradients", "bytes_up", "bytes_down"):
            metrics[name.replace("_", "-")] = engine.ledger.counts()[name] - before[name]
        return self._model.record(engine.x), MetricRecord(metrics)

    def summary(self) -> None:
        """Log what is run."""
        LOG.info("\t├──> %s", self.method)
        LOG.info("\t└──> %d clients, %s", self.clients, self.setting)


def _facts(samples: Sequence[int], first: Tensor) -> Facts:
    """What is known of a module whose clients have these numbers of samples."""
    return Facts(
        clients=len(samples),
        dim=len(first),
        samples=tuple(samples),
        dtype=first.dtype,
        device=torch.device("cpu"),
        remembers=False,
        differentiates=True,
        first=first,
    )


class Nobody:
    """A federation that is never asked."""

    def begin(self, engine: Federated, seed: int) -> None:
        pass

    def ask(self, calls: Sequence[Call], check: Check) -> NoReturn:
        raise NotImplementedError

    def evaluate(self, problem: Remote, x: Tensor) -> NoReturn:
        raise NotImplementedError


class Adopted(Correspondence):
    """The clients of a method in a user's own app."""

    def __init__(
        self, post: Post, strategy: MethodStrategy, options: FederatedOptions, states: str
    ):
        super().__init__(post, strategy.clients, options, LOG.info)
        self._about: dict[str, Any] = {"clients": strategy.clients, "setting": strategy.setting}
        self._about["states"] = states
        self._first = b""

    def greeting(self) -> Letter:
        return Letter("train", {**self._about, "do": "hello"})

    def about_run(self, client: int) -> Mapping[str, Any]:
        return {**self._about, "client": client}

    def begin(self, engine: Federated, seed: int) -> None:
        samples = torch.tensor(engine.problem.samples)
        self._first = dump({"x": engine.x0, "samples": samples})
        self._about |= {
            "method": type(engine.method).__name__,
            "values": values(engine.method),
            "seed": seed,
            "run": engine.identity,
            "first": len(self._first),
        }

    def ask(self, calls: Sequence[Call], check: Check) -> dict[int, Answer | Unsound | str]:
        """The first message to a client also has what the run began with."""
        enclosed = [
            call if call.before else call._replace(frame=call.frame + self._first) for call in calls
        ]
        return super().ask(enclosed, check)

    def evaluate(self, problem: Remote, x: Tensor) -> NoReturn:
        raise NotImplementedError("a Flower app evaluates by functions of its own")
