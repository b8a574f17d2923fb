"""Mods, models, losses and settings that a method cannot run with."""

import logging
import re

import pytest

pytest.importorskip("flwr", reason="flwr is not installed: pip install undrift[flower]")

from flwr.app import Array, ArrayRecord, Context, Message, RecordDict
from flwr.client.mod import secaggplus_mod
from flwr.clientapp import ClientApp
from flwr.clientapp.mod import (
    LocalDpMod,
    adaptiveclipping_mod,
    arrays_size_mod,
    fixedclipping_mod,
    message_size_mod,
)
from flwr.serverapp.strategy import DifferentialPrivacyServerSideFixedClipping
from torch import nn
from torch.nn import functional as F

from tests.flower.own_app import CLIENTS, InProcess, Net, app_of, begin, grid_of, samples
from undrift.core.params import BadParameters
from undrift.flower import strategy, train
from undrift.flower.client_training import _here
from undrift.flower.compat import NoFederation
from undrift.flower.method_strategy import MODS as REMEDY
from undrift.methods import DANE, FedAvg, FedLin, FedRecu, Scaffold

pytestmark = pytest.mark.usefixtures("task", "no_waiting")


# -- mods -----------------------------------------------------------------------------------------


def turned(msg, context, call_next):
    """A mod that changes one bit of an upload."""
    reply = call_next(msg, context)
    if msg.content["config"]["server-round"] == 2:
        array = reply.content["content"]["content"]
        data = bytes([*array.data[:-1], array.data[-1] ^ 1])
        changed = Array(dtype=array.dtype, shape=array.shape, stype=array.stype, data=data)
        reply.content["content"] = ArrayRecord({"content": changed})
    return reply


MODS = {
    "LocalDpMod": LocalDpMod(1.0, 1.0, 1.0, 1e-5),
    "fixedclipping_mod": fixedclipping_mod,
    "adaptiveclipping_mod": adaptiveclipping_mod,
    "secaggplus_mod": secaggplus_mod,
    "turned": turned,
}


@pytest.mark.parametrize("config", [{}, {"clipping_norm": 1.0}], ids=["plain", "clipping"])
@pytest.mark.parametrize("name", MODS)
@pytest.mark.parametrize("kind", [FedAvg, FedRecu])
def test_mods_that_change_uploads_are_refused(kind, name, config, tmp_path):
    """Also by one client of several; nothing of a changed upload is merged."""
    apps = [app_of(tmp_path, client, [MODS[name]] * (client == 1)) for client in range(CLIENTS)]
    chosen = strategy(kind(lr=0.1), clients=CLIENTS, fraction_evaluate=0.0)
    seen = []
    with pytest.raises(NoFederation) as refused:
        chosen.start(
            InProcess(apps),
            begin(),
            num_rounds=3,
            train_config=config,
            evaluate_fn=lambda round, arrays: seen.append(round),
        )
    assert REMEDY in str(refused.value)
    assert seen == ([0, 1] if name == "turned" else [])


def test_mods_that_only_look_are_welcome(tmp_path):
    mods = [message_size_mod, arrays_size_mod]
    chosen = strategy(Scaffold(lr=0.1), clients=CLIENTS, fraction_evaluate=0.0)
    grid = grid_of(tmp_path, mods=mods)
    assert chosen.start(grid, begin(), num_rounds=1).train_metrics_clientapp[1]["left-out"] == 0


def test_wrappers_that_change_uploads_are_refused(tmp_path):
    inner = strategy(Scaffold(lr=0.1), clients=CLIENTS, fraction_evaluate=0.0)
    outer = DifferentialPrivacyServerSideFixedClipping(inner, 0.1, 1.0, CLIENTS)
    with pytest.raises(RuntimeError, match=re.escape(REMEDY)):
        outer.start(grid_of(tmp_path), begin(), num_rounds=1)


# -- what cannot be run ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("method", "given", "field"),
    [
        (DANE(lam=1.0), {}, "method"),
        (FedLin(lr=0.1), {"cohort": 2}, "cohort"),
        (FedLin(lr=0.1), {"fraction_train": 0.5}, "cohort"),
        (FedLin(lr=0.1), {"absent": "drop"}, "absent"),
        (Scaffold(lr=0.1), {"cohort": 4}, "cohort.size"),
        (Scaffold(lr=0.1), {"cohort": 2, "fraction_train": 0.5}, "fraction_train"),
        (Scaffold(lr=0.1), {"fraction_train": 1.5}, "fraction_train"),
        (Scaffold(lr="theory"), {}, "lr"),
        (Scaffold(lr="auto"), {}, "lr"),
        (Scaffold, {}, "method"),
        (Scaffold(lr=0.1), {"clients": 0}, "clients"),
        (Scaffold(lr=0.1), {"joining": 0}, "joining"),
        (Scaffold(lr=0.1), {"epochs": 1}, "epochs"),
        (Scaffold(lr=0.1), {"schedule": lambda round: 0.5}, "schedule"),
        (Scaffold(lr=0.1), {"schedule": "cosin"}, "schedule"),
    ],
)
def test_what_cannot_be_run_is_refused_before_anybody_is_asked(method, given, field):
    with pytest.raises(BadParameters) as refused:
        strategy(method, **{"clients": CLIENTS, **given})
    assert field in refused.value.problems


class Normed(Net):
    def __init__(self, seed=0):
        super().__init__(seed)
        self.norm = nn.BatchNorm1d(4).double()


class Frozen(Net):
    def __init__(self, seed=0):
        super().__init__(seed)
        self.body.requires_grad_(False)


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        ({"net": Normed}, "to_group_norm"),
        ({"net": Frozen}, "load the same weights"),
        ({"loss": nn.CrossEntropyLoss(reduction="sum")}, "mean"),
    ],
)
def test_what_a_client_cannot_do_is_told_with_the_remedy(given, reason, tmp_path):
    first = begin(given["net"]() if "net" in given else None)
    setting = {"batch": 4, "fraction_evaluate": 0.0, "joining": 3.0}
    chosen = strategy(FedAvg(lr=0.1), clients=CLIENTS, **setting)
    with pytest.raises(NoFederation) as refused:
        chosen.start(grid_of(tmp_path, **given), first)
    assert reason in str(refused.value)


def test_a_plain_module_is_told_with_its_kind_and_its_node(tmp_path):
    app = ClientApp()

    @app.train()
    def work(msg, context):
        return train(msg, context, Net(), states=tmp_path)

    chosen = strategy(FedAvg(lr=0.1), clients=1, joining=3.0)
    with pytest.raises(NoFederation, match=r"partition-id 0.*not Net"):
        chosen.start(InProcess([app]), begin())


def test_a_round_that_diverges_has_flowers_number_and_a_remedy(tmp_path):
    grid = grid_of(tmp_path, data=samples(0), loss=lambda y, t: F.mse_loss(y.exp(), y.detach() + 1))
    chosen = strategy(FedAvg(lr=1e3), clients=CLIENTS, steps=20, fraction_evaluate=0.0)
    with pytest.raises(NoFederation, match=r"diverged in round [12]: .*smaller lr"):
        chosen.start(grid, begin(), num_rounds=4)


@pytest.mark.parametrize("why", ["another machine", "another user", "no number"])
def test_a_node_says_where_its_states_are(why, tmp_path, monkeypatch):
    """Unless it has a number and finds, as its own, the folder that the server made."""
    if why == "another machine":
        monkeypatch.setattr("undrift.flower.client_training.gettempdir", lambda: str(tmp_path))
    if why == "another user":
        monkeypatch.setattr("os.getuid", lambda: 4321)
    apps = [app_of(None, client) for client in range(CLIENTS)]
    grid = InProcess(apps, lambda client: {} if why == "no number" else {"partition-id": client})
    chosen = strategy(FedAvg(lr=0.1), clients=CLIENTS, joining=3.0)
    with pytest.raises(NoFederation, match="states="):
        chosen.start(grid, begin())


@pytest.mark.parametrize("name", ["..", "../etc", "undrift-states-a/b", "", None])
def test_a_server_chooses_no_folder(name):
    with pytest.raises(ValueError, match="states="):
        _here(None, Context(1, 1, {}, RecordDict(), {}), name, 0)


class Other(Net):
    def __init__(self, seed=0):
        super().__init__(seed)
        self.head = nn.Linear(5, 3, bias=False).double()


def test_models_that_are_not_the_same_are_refused(tmp_path):
    chosen = strategy(FedAvg(lr=0.1), clients=CLIENTS, fraction_evaluate=0.0)
    apps = [app_of(tmp_path, k, net=Other if k == 2 else Net) for k in range(CLIENTS)]
    with pytest.raises(NoFederation, match=r"client 0 \(node .* client 2 \(node \w+\)"):
        chosen.start(InProcess(apps), begin())
    for other in (Other(), Net().float()):
        with pytest.raises(NoFederation, match="initial_arrays"):
            chosen.start(grid_of(tmp_path), begin(other))


def test_an_app_that_fails_is_told(tmp_path):
    app = ClientApp()

    @app.train()
    def work(msg, context):
        raise FileNotFoundError("no data here")

    chosen = strategy(FedAvg(lr=0.1), clients=1)
    with pytest.raises(NoFederation, match="no data here"):
        chosen.start(InProcess([app]), begin())


def test_another_strategy_is_told(tmp_path):
    app = app_of(tmp_path, 0)
    message = Message(RecordDict({"arrays": begin()}), 1, "train")
    with pytest.raises(ValueError, match=r"undrift\.flower\.strategy"):
        app(message, Context(1, 1, {}, RecordDict(), {}))


def test_a_client_that_diverges_is_left_out_and_said(tmp_path, caplog):
    def loss(outputs, targets):
        return F.cross_entropy(outputs, targets) * (float("inf") if len(targets) == 2 else 1.0)

    apps = [app_of(tmp_path, k, loss=loss, data=samples(k, 2 if k == 1 else 9)) for k in range(3)]
    chosen = strategy(FedAvg(lr=0.1), clients=3, fraction_evaluate=0.0)
    with caplog.at_level(logging.WARNING, "flwr"):
        found = chosen.start(InProcess(apps), begin(), num_rounds=1)
    assert found.train_metrics_clientapp[1]["left-out"] == 1
    assert "without client 1" in caplog.text
