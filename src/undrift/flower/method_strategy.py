"""A method in the place of a Flower strategy, for a ServerApp of a user's own."""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Literal, NoReturn, cast

import torch
from flwr.app import Array, ArrayRecord, ConfigRecord, Message, MetricRecord, RecordDict
from flwr.serverapp import Grid
from flwr.serverapp.strategy import FedAvg, Result, Strategy
from torch import Tensor

from undrift.core.aggregation import Aggregation
from undrift.core.cohort import Sampling
from undrift.core.faults import Judging
from undrift.core.method import Method
from undrift.core.options import Training
from undrift.core.params import AUTO, THEORY, BadParameters, not_allowed, values
from undrift.core.problem import Facts
from undrift.core.schedules import Schedule
from undrift.engines.federated import Federated, Remote
from undrift.engines.judge import Diverged
from undrift.engines.messages.format import dump
from undrift.engines.messages.packet import Packet
from undrift.engines.options import FederatedOptions
from undrift.flower.client_training import STATES
from undrift.flower.compat import LASTING, NoFederation
from undrift.flower.exchange import About, ClientExchange, needs_all
from undrift.flower.grid_carrier import CHANGED, GridCarrier
from undrift.flower.network import agreed, start_of, state_of
from undrift.models.layout import StateDict
from undrift.spec.schema import as_toml

LOG = logging.getLogger("flwr")
MODS = "mods and wrappers that change uploads cannot be used: leave them out (flower-app.md)"
PROBE = bytes(16)
"""The content of a greeting: a mod that changes uploads fails on it, or changes it."""


def strategy(
    method: Method,
    *,
    clients: int,
    cohort: int | Sampling | Mapping[str, object] | None = None,
    fraction_train: float = 1.0,
    steps: int | Sequence[int] = 1,
    epochs: int | None = None,
    batch: int | None = None,
    training: Training | Mapping[str, object] | None = None,
    seed: int = 0,
    absent: Literal["wait", "drop"] = "wait",
    joining: float = 600.0,
    aggregation: str | Aggregation | Mapping[str, object] | None = None,
    schedule: float | str | Schedule | Mapping[str, object] | None = None,
    judge: Judging | Mapping[str, object] | None = None,
    fraction_evaluate: float = 1.0,
    weighted_by_key: str = "num-examples",
) -> Strategy:
    """A method as a Flower strategy, for ClientApps that call :func:`undrift.flower.train`.

    ``clients`` is the number of nodes, all of which have to join within ``joining`` seconds.
    ``cohort`` of them take part in a round (a number or a table), or ``fraction_train``; left out,
    all do. ``steps`` are local steps, ``epochs`` passes over a node's samples in their place,
    ``batch`` the samples of a mini-batch (all when ``None``).
    A node that does not answer within the ``timeout`` of ``start`` is asked again
    (``absent="wait"``), or left out of the round (``"drop"``).
    ``fraction_evaluate`` of the nodes evaluate the model after a round by the ClientApp's own
    ``@app.evaluate()``, their metrics weighted by ``weighted_by_key``.
    ``training``, ``aggregation``, ``schedule`` and ``judge`` are as :func:`undrift.run` takes them.
    """
    name, wrong = type(method).__name__, dict[str, str]()
    if type(clients) is not int or clients < 1:
        wrong["clients"] = not_allowed("clients", clients, "a whole number >= 1")
    if not 0 < fraction_train <= 1:
        wrong["fraction_train"] = not_allowed("fraction_train", fraction_train, "> 0 and <= 1")
    elif fraction_train < 1 and cohort is not None:
        wrong["fraction_train"] = "give cohort or fraction_train, not both"
    if callable(schedule) and not isinstance(schedule, Schedule):
        wrong["schedule"] = "a function does not travel to the nodes: use one of undrift.schedules"
    for field in method.open_fields(THEORY, AUTO) if isinstance(method, Method) else ():
        wrong[field] = (
            f"{field}: give {name} a number, which ud.tune finds on data of your own: nobody here "
            "has those of the nodes"
        )
    if isinstance(method, Method) and method.minimising():
        wrong["method"] = f"{name} needs the exact minimiser of every client's loss"
    elif isinstance(method, Method) and absent == "drop" and needs_all(method):
        wrong["absent"] = f"{name} needs every client in every round: absent = 'wait'"
    if wrong:
        raise BadParameters("strategy", wrong)
    if fraction_train < 1:
        cohort = max(1, round(fraction_train * clients))
    setting = {
        "steps": steps,
        "cohort": cohort,
        "batch": batch,
        "training": training,
        "epochs": epochs,
        "aggregation": aggregation,
        "schedule": schedule,
        "judge": judge,
    }
    return MethodStrategy(
        method,
        clients,
        as_toml(setting),
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
        self._started: tuple[AppCarrier, Federated, StateDict] | None = None
        # What any engine refuses is found before a node is asked.
        nothing = _facts([1] * clients, torch.zeros(1, dtype=torch.float64))
        nobody = AppClients(cast(AppCarrier, None), self, FederatedOptions(**waiting), "")
        self._engine_of(Remote(nothing, nobody, None), 1.0)

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
        carrier = AppCarrier(grid, train_config or ConfigRecord())
        options = FederatedOptions(deadline=timeout, **self.waiting)
        with TemporaryDirectory(prefix=STATES, ignore_cleanup_errors=True) as states:
            federation = AppClients(carrier, self, options, Path(states).name)
            said = federation.gather()
            network = agreed([about["network"] for about in said], federation.who)
            try:
                model = state_of(network, initial_arrays.to_torch_state_dict())
            except ValueError as error:
                raise NoFederation(
                    f"initial_arrays: {error}: load the same weights on every node"
                ) from None
            first = start_of(model, getattr(torch, said[0]["dtype"]))
            facts = _facts([about["samples"] for about in said], first)
            engine = self._engine_of(Remote(facts, federation, None), timeout)
            self._started = carrier, engine, model
            return super().start(
                grid,
                initial_arrays,
                num_rounds,
                timeout,
                train_config,
                evaluate_config,
                evaluate_fn,
            )

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """Nothing: :meth:`aggregate_train` asks the nodes, once for every phase of the round."""
        if self._started is None:
            raise RuntimeError(f"a method runs by its own start(); {MODS}")
        self._started[0].round = server_round
        return []

    def aggregate_train(
        self, server_round: int, replies: Iterable[Message]
    ) -> tuple[ArrayRecord | None, MetricRecord | None]:
        """One round."""
        assert self._started, "configure_train comes first"
        _, engine, model = self._started
        before = dataclasses.replace(engine.ledger)
        try:
            engine.run_round()
        except Diverged as error:  # whose rounds begin at 0, Flower's at 1
            text = f"diverged in round {server_round}: {error.reason}: try a smaller lr"
            raise NoFederation(text) from None
        for one in engine.rejections:
            LOG.warning("round %d without client %d: %s", server_round, one.client, one.reason)
        metrics: dict[str, int | float | list[int] | list[float]] = {
            "left-out": len(engine.rejections),
            "skipped": engine.ledger.skipped - before.skipped,
            "gradients": engine.ledger.gradients - before.gradients,
            "bytes-up": engine.ledger.bytes_up - before.bytes_up,
            "bytes-down": engine.ledger.bytes_down - before.bytes_down,
        }
        engine.rejections.clear()
        arrays = {name: Array(v.numpy()) for name, v in model.at(engine.x).items()}
        return ArrayRecord(arrays), MetricRecord(metrics)

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


class AppCarrier(GridCarrier):
    """The grid of a user's app: what its mods change, and what its code fails at, is for good."""

    def __init__(self, grid: Grid, config: ConfigRecord):
        super().__init__(grid)
        self.config, self.round = config, 0

    def records(self, packet: Packet) -> RecordDict:
        records = super().records(packet)
        records["config"] = ConfigRecord({**self.config, "server-round": self.round})
        return records

    def received(self, message: Message) -> Packet:
        found = super().received(message)
        table = found.table
        if table.get("code") == CHANGED:
            return _lasting(f"its reply is not what train returned ({table['error']}): {MODS}")
        if table.get("code") in LASTING:
            why = f"{LASTING[table['code']]}: {message.error.reason}"
            return _lasting(f"{why}. If it has mods: {MODS}")
        return found

    def renew(self) -> NoReturn:
        raise NoFederation("the Flower run is over")


def _lasting(why: str) -> Packet:
    return Packet({"error": why, "lasting": True})


class AppClients(ClientExchange):
    """The clients of a method in a user's own app."""

    def __init__(
        self,
        carrier: AppCarrier,
        strategy: MethodStrategy,
        options: FederatedOptions,
        states: str,
    ):
        super().__init__(carrier, strategy.clients, options, LOG.info)
        self._about: dict[str, Any] = {
            "clients": strategy.clients,
            "setting": strategy.setting,
            "states": states,
        }

    def greeting(self) -> Packet:
        return Packet({**self._about, "do": "hello"}, PROBE)

    def about_run(self, client: int) -> About:
        return {**self._about, "client": client}

    def begin(self, engine: Federated, seed: int) -> None:
        self.tell_once(dump({"x": engine.x0, "samples": torch.tensor(engine.problem.samples)}))
        self._about |= {
            "method": type(engine.method).__name__,
            "values": values(engine.method),
            "seed": seed,
            "run": engine.identity,
        }

    def evaluate(self, problem: Remote, x: Tensor) -> NoReturn:
        raise NotImplementedError("a Flower app evaluates by functions of its own")
