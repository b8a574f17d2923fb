"""A method in a Flower app of a user's own: Flower's parts, and a grid in this process."""

import logging
import os
import subprocess
import sys

import numpy as np
import pytest
import torch

pytest.importorskip("flwr", reason="flwr is not installed: pip install undrift[flower]")

from flwr.app import ArrayRecord, MetricRecord
from flwr.serverapp.strategy import Strategy
from torch import nn
from torch.nn import functional as F

import undrift as ud
from tests.flower.own_app import (
    CLIENTS,
    RUNNABLE,
    InProcess,
    Net,
    app_of,
    begin,
    grid_of,
    problem_of,
    pushed_bytes,
    same,
    samples,
    setting_of,
    simulated,
)
from undrift.check.federations import example
from undrift.core import registry
from undrift.core.problem import Constants
from undrift.core.schedules import Cosine
from undrift.engines import Simulate
from undrift.flower import strategy
from undrift.flower.compat import NoFederation
from undrift.flower.grid_carrier import unpacked
from undrift.methods import FedAvg, FedRecu, Scaffold
from undrift.objectives import MOON, FedLC

pytestmark = pytest.mark.usefixtures("task", "no_waiting")


@pytest.mark.covering(11)
@pytest.mark.parametrize("name", RUNNABLE)
def test_every_method_is_what_it_is_on_one_machine(name, tmp_path):
    method = example(registry[name], Constants(L=2.0, mu=0.1, delta_A=0.5, delta_B=0.5), steps=3)
    setting = setting_of(method)
    chosen = strategy(method, clients=CLIENTS, fraction_evaluate=0.0, **setting)
    assert isinstance(chosen, Strategy)
    result = chosen.start(grid_of(tmp_path), begin(), num_rounds=3)
    near = simulated(method, 3, **setting)
    assert same(result, near) < 1e-10
    spent = sum(record["gradients"] for record in result.train_metrics_clientapp.values())
    assert spent == near.ledger.gradients


@pytest.mark.parametrize(
    "setting",
    [
        {"epochs": 2, "batch": 4, "aggregation": "weighted-mean", "schedule": 0.9},
        {"steps": 2, "schedule": Cosine(rounds=3, warmup=1), "training": {"optimiser": "momentum"}},
        {
            "steps": 3,
            "batch": 2,
            "training": {"accumulate": 2, "optimiser": {"name": "adamw", "beta2": 0.9}},
        },
        {"steps": 3, "aggregation": "median", "judge": {"norm": 50.0}, "training": {"clip": 0.5}},
        {"steps": np.int64(2), "cohort": {"size": 2, "sampling": "bernoulli"}, "batch": 100},
    ],
    ids=["epochs", "schedule", "adamw", "robust", "sampling"],
)
def test_settings_are_those_of_any_engine(setting, tmp_path):
    method = FedAvg(lr=0.1)
    chosen = strategy(method, clients=CLIENTS, seed=2, fraction_evaluate=0.0, **setting)
    result = chosen.start(grid_of(tmp_path), begin(), num_rounds=3)
    assert same(result, simulated(method, 3, seed=2, **setting)) < 1e-10


def test_the_package_loads_neither_torch_nor_flower():
    code = "import sys, undrift.flower; print({'torch', 'flwr', 'numpy'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"


def test_local_sgd_as_torch_writes_it(tmp_path):
    """FedAvg on whole data sets against torch.optim.SGD."""
    net, rounds = Net(), 2
    for _ in range(rounds):
        ends = []
        for client in range(CLIENTS):
            own, data = Net(), samples(client)
            own.load_state_dict(net.state_dict())
            sgd = torch.optim.SGD(own.parameters(), lr=0.2)
            for _ in range(4):
                sgd.zero_grad()
                F.cross_entropy(own(data.tensors[0]), data.tensors[1]).backward()
                sgd.step()
            ends.append(own.state_dict())
        net.load_state_dict({k: torch.stack([e[k] for e in ends]).mean(0) for k in ends[0]})
    chosen = strategy(FedAvg(lr=0.2), clients=CLIENTS, steps=4)
    found = chosen.start(grid_of(tmp_path), begin(), num_rounds=rounds)
    for name, value in found.arrays.to_torch_state_dict().items():
        assert torch.allclose(value, net.state_dict()[name], rtol=1e-12, atol=1e-14)
    assert sorted(found.evaluate_metrics_clientapp) == [1, 2]
    losses = [found.evaluate_metrics_clientapp[k]["loss"] for k in (1, 2)]
    assert losses[1] < losses[0]


def test_rounds_and_config_reach_the_clients(tmp_path):
    grid = grid_of(tmp_path)
    chosen = strategy(FedRecu(lr=0.05), clients=CLIENTS, steps=2, fraction_evaluate=0.0)
    chosen.start(grid, begin(), num_rounds=2, train_config={"temperature": 0.5})
    configs = [message.content["config"] for message in grid.pushed]
    assert {config["temperature"] for config in configs} == {0.5}
    asked = [config["server-round"] for config in configs]
    assert asked == [0] * CLIENTS + [1] * 2 * CLIENTS + [2] * 2 * CLIENTS
    kinds = {message.metadata.message_type for message in grid.pushed}
    assert kinds == {"train"}


def test_the_server_sees_the_model_after_every_round(tmp_path):
    seen = {}

    def look(round, arrays):
        seen[round] = arrays.to_torch_state_dict()["head.bias"].clone()
        return MetricRecord({"bias": float(seen[round].norm())})

    chosen = strategy(Scaffold(lr=0.1), clients=CLIENTS, fraction_train=0.67, seed=1)
    found = chosen.start(grid_of(tmp_path), begin(), num_rounds=2, evaluate_fn=look)
    assert sorted(seen) == sorted(found.evaluate_metrics_serverapp) == [0, 1, 2]
    assert torch.equal(seen[0], Net().head.bias.detach()) and not torch.equal(seen[1], seen[2])


PROGRAM = """
import threading
from tests.flower.own_app import InProcess, begin
from undrift.flower import strategy
from undrift.methods import FedAvg

chosen = strategy(FedAvg(lr=0.1), clients=2)
threading.Thread(target=chosen.start, args=(InProcess([]), begin())).start()
raise SystemExit("there will be no nodes")
"""


@pytest.mark.thorough
def test_waiting_for_nodes_ends_with_the_program():
    """Flower's simulation has the ServerApp in a thread, which outlives what comes of it."""
    words = [sys.executable, "-c", PROGRAM]
    done = subprocess.run(words, capture_output=True, text=True, timeout=60)
    assert done.returncode == 1 and "there will be no nodes" in done.stderr


def test_waiting_for_nodes_ends(tmp_path):
    chosen = strategy(FedAvg(lr=0.1), clients=CLIENTS, joining=0.1)
    with pytest.raises(NoFederation, match=r"2 of 3 clients .*; missing: client 2"):
        chosen.start(grid_of(tmp_path, clients=2), begin())


@pytest.mark.parametrize(("share", "cohort"), [(0.6, 2), (0.1, 1), (0.9, 3)])
def test_a_share_of_the_clients_is_rounded(share, cohort):
    chosen = strategy(Scaffold(lr=0.1), clients=CLIENTS, fraction_train=share)
    assert chosen.setting["cohort"] == cohort


class Wide(Net):
    def __init__(self, seed=0):
        super().__init__(seed)
        self.body, self.head = nn.Linear(4, 5000).double(), nn.Linear(5000, 3).double()


def test_a_cohort_is_sent_the_model_once(tmp_path):
    """And, in the first round, once the point that the run began with."""
    grid = grid_of(tmp_path, clients=10, net=Wide)
    chosen = strategy(FedAvg(lr=0.1), clients=10, fraction_evaluate=0.0)
    chosen.start(grid, begin(Wide()), num_rounds=2)
    model, rounds = 8 * sum(p.numel() for p in Wide().parameters()), {}
    for message in grid.pushed:
        rounds.setdefault(message.content["config"]["server-round"], []).append(message)
    assert [round(pushed_bytes(rounds[k]) / model, 1) for k in range(3)] == [0.0, 2.0, 1.0]
    assert not any("samples" in unpacked(message.content).table for message in grid.pushed)


# -- what clients remember ------------------------------------------------------------------------


@pytest.mark.parametrize(
    "method", [FedRecu(lr=0.05), Scaffold(lr=0.05)], ids=["FedRecu", "Scaffold"]
)
def test_a_node_that_was_away_does_the_same_work_again(method, tmp_path, monkeypatch):
    grid, lost = grid_of(tmp_path), iter([False] * 5 + [True] * 2 + [False] * 3 + [True])
    grid.lose = lambda message: next(lost, False)
    setting = {"steps": 3, "batch": 4, "seed": 5}
    chosen = strategy(method, clients=CLIENTS, fraction_evaluate=0.0, **setting)
    result = chosen.start(grid, begin(), num_rounds=4)
    near = simulated(method, 4, **setting)
    assert same(result, near) < 1e-10 and next(lost, "all") == "all"


def test_trouble_is_told_once_with_the_client_that_has_it(tmp_path, caplog):
    grid, waited = grid_of(tmp_path), iter(range(5))

    def away(message):  # client 1, when it is first asked to work, and five times again
        table = unpacked(message.content).table
        return table["do"] == "work" and table["client"] == 1 and next(waited, None) is not None

    grid.lose = away
    chosen = strategy(FedAvg(lr=0.1), clients=CLIENTS, fraction_evaluate=0.0)
    with caplog.at_level(logging.INFO, "flwr"):
        chosen.start(grid, begin(), num_rounds=2)
    told = [record.message for record in caplog.records if "Node Unavailable" in record.message]
    assert len(told) == 1 and told[0].startswith("client 1 (") and next(waited, "all") == "all"


def test_nodes_of_this_machine_may_leave_it_to_the_server_where_states_are(tmp_path, monkeypatch):
    """As in Flower's simulation; the folder is gone after the run."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    grid = InProcess([app_of(None, client) for client in range(CLIENTS)])
    seen = set()
    grid.lose = lambda message: seen.update(tmp_path.rglob("first"))
    setting = {"steps": 2, "seed": 5}
    chosen = strategy(Scaffold(lr=0.05), clients=CLIENTS, fraction_evaluate=0.0, **setting)
    result = chosen.start(grid, begin(), num_rounds=3)
    assert same(result, simulated(Scaffold(lr=0.05), 3, **setting)) < 1e-10
    assert len(seen) == CLIENTS and not [*tmp_path.glob("undrift*")]


def damaged(path):
    path.write_bytes(path.read_bytes()[:-8] + bytes(8))


@pytest.mark.parametrize(("name", "goes_on"), [("0-0-0.safetensors", False), ("first", True)])
def test_states_that_are_gone_are_no_fresh_start(name, goes_on, tmp_path):
    """What a node was told once, it is told again."""
    grid = grid_of(tmp_path)

    def change(message):
        if message.content["config"]["server-round"] == 1:
            for path in tmp_path.rglob(f"1/{name}"):
                damaged(path) if goes_on else path.unlink()
        return False

    grid.lose = change
    chosen = strategy(Scaffold(lr=0.05), clients=CLIENTS, fraction_evaluate=0.0)
    if goes_on:
        result = chosen.start(grid, begin(), num_rounds=2)
        assert same(result, simulated(Scaffold(lr=0.05), 2)) < 1e-10
        return
    with pytest.raises(NoFederation, match=r"client 1 .*cannot go on"):
        chosen.start(grid, begin(), num_rounds=2)


def test_what_a_node_keeps_is_for_its_user_alone(tmp_path):
    usual = os.umask(0o022)
    try:
        chosen = strategy(Scaffold(lr=0.05), clients=CLIENTS, fraction_evaluate=0.0)
        chosen.start(grid_of(tmp_path), begin(), num_rounds=1)
    finally:
        os.umask(usual)
    folders = {file.parent for file in tmp_path.rglob("first")}
    assert len(folders) == CLIENTS
    assert {folder.stat().st_mode & 0o777 for folder in folders} == {0o700}


def test_a_node_that_stays_away_is_left_out(tmp_path):
    grid = grid_of(tmp_path)
    grid.lose = lambda message: (
        message.metadata.dst_node_id == 101 and message.content["config"]["server-round"] == 2
    )
    setting = {"steps": 2, "batch": 4, "seed": 5}
    chosen = strategy(
        Scaffold(lr=0.05), clients=CLIENTS, absent="drop", fraction_evaluate=0.0, **setting
    )
    found = chosen.start(grid, begin(), num_rounds=3, timeout=0.3)
    metrics = [record["left-out"] for record in found.train_metrics_clientapp.values()]
    assert metrics == [0, 1, 0]
    plan = [{"kind": "drop-after", "clients": [1], "since": 1, "until": 2}]
    near = simulated(Scaffold(lr=0.05), 3, faults=plan, **setting)
    assert same(found, near) < 1e-10


def named(tmp_path, client):
    """The folder of a node whose name puts it in its place."""
    folder = tmp_path / str(client)
    folder.mkdir()
    (folder / "name").write_text(f"node{client:02}")
    return folder


@pytest.mark.parametrize("numbered", [True, False])
def test_a_node_too_many_is_refused_at_first_and_later_ignored(numbered, tmp_path):
    apps = [app_of(named(tmp_path, client), client) for client in range(CLIENTS + 1)]
    grid = InProcess(apps, lambda client: {"partition-id": client} if numbered else {})
    setting = {"steps": 2, "seed": 5}
    chosen = strategy(Scaffold(lr=0.05), clients=CLIENTS, fraction_evaluate=0.0, **setting)
    with pytest.raises(NoFederation):
        chosen.start(grid, begin(), num_rounds=1)
    *known, extra = grid.get_node_ids()
    greeted = len(grid.pushed)

    def away(message):  # until the server has looked who else is there
        asked = [one.metadata.dst_node_id for one in grid.pushed[greeted:]]
        return message.content["config"]["server-round"] == 2 and extra not in asked

    grid.lose = away

    def online():
        return [*known, extra] if chosen._started and chosen._started[0].round == 2 else known

    grid.get_node_ids = online
    result = chosen.start(grid, begin(), num_rounds=3)
    assert same(result, simulated(Scaffold(lr=0.05), 3, **setting)) < 1e-10


# -- the problem ----------------------------------------------------------------------------------


class Tied(nn.Module):
    def __init__(self, seed=0):
        super().__init__()
        with torch.random.fork_rng():
            torch.manual_seed(seed)
            self.one = nn.Linear(4, 4, bias=False)
        self.two = nn.Linear(4, 4, bias=False)
        self.two.weight = self.one.weight
        self.drop = nn.Dropout(0.5)
        self.register_buffer("scale", torch.full((), 2.0))
        self.double()

    def forward(self, x):
        return self.two(self.drop(torch.tanh(self.one(x)))) * self.scale


def test_tied_weights_and_buffers_come_back_as_a_state_dict(tmp_path):
    first = Tied()
    chosen = strategy(FedAvg(lr=0.1), clients=CLIENTS, batch=4, fraction_evaluate=0.0)
    found = chosen.start(grid_of(tmp_path, net=Tied), ArrayRecord(first.state_dict()), num_rounds=2)
    arrays = found.arrays.to_torch_state_dict()
    near = Simulate(FedAvg(lr=0.1), problem_of(Tied(), *map(samples, range(CLIENTS))), batch=4)
    near.run_round()
    near.run_round()
    assert torch.allclose(arrays["one.weight"].reshape(-1), near.x, rtol=1e-10)
    assert list(arrays) == list(first.state_dict())
    assert torch.equal(arrays["one.weight"], arrays["two.weight"])
    assert not torch.equal(arrays["one.weight"], first.one.weight)
    first.load_state_dict(arrays)
    assert float(first.scale) == 2


class Blocks(ud.models.Net):
    def __init__(self, seed=0):
        inner = Net(seed)
        super().__init__([nn.Sequential(inner.body, nn.Tanh())], nn.Identity(), inner.head)


@pytest.mark.parametrize("objective", [MOON(), FedLC()], ids=["memory", "labels"])
def test_local_losses_are_those_of_one_machine(objective, tmp_path):
    setting = {"steps": 3, "batch": 4, "seed": 5}
    chosen = strategy(FedAvg(lr=0.1), clients=CLIENTS, fraction_evaluate=0.0, **setting)
    grid = grid_of(tmp_path, net=Blocks, objective=objective)
    arrays = chosen.start(grid, begin(Blocks()), num_rounds=3).arrays.to_torch_state_dict()
    problem = problem_of(Blocks(), *map(samples, range(CLIENTS)), objective=objective)
    near = Simulate(FedAvg(lr=0.1), problem, **setting)
    for _ in range(3):
        near.run_round()
    found = torch.cat([v.reshape(-1) for v in arrays.values()])
    assert torch.allclose(found, near.x, rtol=1e-10)
