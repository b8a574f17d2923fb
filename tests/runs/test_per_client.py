"""How each client fares: its numbers in rows, in folders and in Python."""

import json
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from tests.cli.stopping import after, rows
from torch import nn

import undrift as ud
from undrift.core import Message, Method, State, Vec
from undrift.core.params import BadParameters
from undrift.engines import Simulate, Wire
from undrift.problems import Quadratic
from undrift.records.folder import Folder
from undrift.records.rows import CLIENTS
from undrift.runs.clients import measured_clients, spreads
from undrift.runs.events import Measured
from undrift.runs.experiment import make
from undrift.runs.run_experiment import run_in_folder
from undrift.spec.errors import BadSpec
from undrift.spec.reader import parse

SPEC = """\
name = "mine"
rounds = 9
steps = 2
every = 3
per_client = true
seed = [0, 1]
cohort = 3
batch = 4
[problem]
name = "logistic"
clients = 6
[[method]]
name = "Scaffold"
lr = 0.02
[[method]]
name = "FedAvg"
lr = 0.02
"""
SIZES = (4, 30, 9, 1, 16)


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    folder = Folder(tmp_path_factory.mktemp("runs") / "whole")
    run_in_folder(make(parse(SPEC)), folder)
    return folder


def lines(folder):
    return folder.file(CLIENTS).read_bytes()


def quadratic():
    """f_i(x) = a_i |x - b_i|^2 / 2 in two dimensions."""
    rng = np.random.default_rng(3)
    a, b = rng.uniform(0.5, 2, 7), rng.normal(size=(7, 2))
    return a, b, Quadratic.centred(np.repeat(a[:, None], 2, 1), b)


def network():
    rng = np.random.default_rng(1)
    order = np.split(rng.permutation(sum(SIZES)), np.cumsum(SIZES)[:-1])
    X, y = rng.normal(size=(sum(SIZES), 3)), rng.integers(3, size=sum(SIZES))
    torch.manual_seed(0)
    return ud.Neural(nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 3)), (X, y), order)


# -- the numbers


def test_servers_and_local_models_by_hand():
    """FedAvg on quadratics in NumPy: the numbers of everybody, and of those who took part."""
    a, b, problem = quadratic()
    lr, steps, x, told = 0.1, 3, np.zeros(2), []
    run = ud.run(
        ud.FedAvg(lr=lr),
        problem,
        rounds=4,
        steps=steps,
        cohort=3,
        callbacks=[ud.PerClient(), ud.Events(told.append)],
    )
    engine = Simulate(ud.FedAvg(lr=lr), problem, steps=steps, cohort=3)
    found = run.per_client
    assert found.of == "train" and found.rounds.tolist() == [0, 1, 2, 3, 4]
    assert found["loss"].shape == found["local_loss"].shape == (5, 7) and found.clients == 7
    assert np.isnan(found["local_loss"][0]).all()
    for row in range(5):
        wanted = a * ((x - b) ** 2).sum(1) / 2
        np.testing.assert_allclose(found["loss"][row], wanted, rtol=1e-12)
        assert run.history["loss"][row] == pytest.approx(wanted.mean(), rel=1e-12)
        assert run.history["client_loss_mean"][row] == pytest.approx(wanted.mean(), rel=1e-12)
        if row == 4:
            break
        members = engine.cohort.draw(engine.streams, row, 7).members
        y = np.repeat(x[None], 3, 0)
        for _ in range(steps):
            y = y - lr * a[members, None] * (y - b[members])
        local = np.full(7, np.nan)
        local[members] = a[members] * ((y - b[members]) ** 2).sum(1) / 2
        np.testing.assert_allclose(found["local_loss"][row + 1], local, rtol=1e-12)
        x = y.mean(0)
    assert [event.clients["loss"] for event in told if isinstance(event, Measured)] == found[
        "loss"
    ].tolist()


def test_spreads_by_hand():
    values = np.array([0.5, 0.1, 0.9, 0.4, 0.8, 0.3, 0.7, 0.2, 0.6, 1.0, 0.0, 0.95])
    row = {"round": 3, "of": "test", "loss": [*values], "accuracy": [*values], "share": [*values]}
    found = spreads(row)
    ordered = np.sort(values)
    place = 0.1 * 11  # between the second and the third
    p10 = ordered[1] + (place - 1) * (ordered[2] - ordered[1])
    for name in ("loss", "accuracy", "share"):
        assert found[f"client_{name}_mean"] == pytest.approx(sum(values) / 12)
        about = np.sqrt(((values - values.mean()) ** 2).mean())
        assert found[f"client_{name}_std"] == pytest.approx(about)
        assert found[f"client_{name}_p10"] == pytest.approx(p10)
        assert found[f"client_{name}_p50"] == pytest.approx((ordered[5] + ordered[6]) / 2)
        assert found[f"client_{name}_p90"] == pytest.approx(ordered[9] + 0.9 * 0.05)
    assert found["client_loss_worst10"] == pytest.approx((1.0 + 0.95) / 2)  # a tenth, rounded up
    assert found["client_accuracy_worst10"] == pytest.approx((0.0 + 0.1) / 2)
    assert "client_share_worst10" not in found  # whose good end nobody knows
    alone = spreads({"local_loss": [np.nan, 2.0, np.nan, 4.0]})
    assert alone["client_local_loss_mean"] == 3 and alone["client_local_loss_worst10"] == 4
    assert spreads({"loss": [np.nan]}) == {}
    assert spreads({"loss": [1.0, np.inf]})["client_loss_mean"] == np.inf


def test_a_client_without_test_samples_is_not_measured():
    X, y = np.random.default_rng(0).normal(size=(60, 4)), np.arange(60) % 2
    parts = [np.arange(20), np.arange(20, 21), np.arange(40, 60)]
    problem = ud.Neural(nn.Linear(4, 2), (X, y), parts, test=0.2)
    run = ud.run(ud.FedAvg(lr=0.1), problem, rounds=1, steps=2, batch=5, callbacks=ud.PerClient())
    assert run.per_client.of == "test"
    for name, values in run.per_client.last.items():
        assert np.isnan(values[1]) and np.isfinite(values[[0, 2]]).all(), name


def test_the_loss_of_an_own_model_that_is_not_finite_is_infinite():
    """Client 0 has no samples, the model of client 2 is NaN."""
    nan = np.nan
    server = {"loss": [nan, 1.0, 2.0, 3.0], "accuracy": [nan, 0.5, 0.6, 0.7]}
    own = {"loss": [nan, 4.0, nan], "accuracy": [nan, 0.8, nan]}
    engine = SimpleNamespace(
        round=3,
        problem=SimpleNamespace(clients=4, own_samples="test"),
        client_metrics=lambda: {name: torch.tensor(v) for name, v in server.items()},
        own_metrics=lambda names: (
            np.array([0, 1, 2]),
            {name: torch.tensor(own[name]) for name in names},
        ),
    )
    found = measured_clients(engine)
    np.testing.assert_equal(found["local_loss"], [nan, 4.0, np.inf, nan])
    np.testing.assert_allclose(found["local_accuracy"], [nan, 0.8, nan, nan], rtol=1e-6)


def test_engines_agree():
    for method in (ud.FedAvg(lr=0.1), ud.Scaffold(lr=0.1), ud.FedRecu(lr=0.1)):
        cohort = None if method.participation == "full" else 3
        for problem in (quadratic()[2], network().to(torch.float64, torch.device("cpu"))):
            setting = {"steps": 2, "cohort": cohort, "seed": 1}
            one, other = (kind(method, problem, **setting) for kind in (Simulate, Wire))
            for engine in (one, other):
                for _ in range(5):
                    engine.run_round()
            mine, theirs = measured_clients(one), measured_clients(other)
            assert mine.keys() == theirs.keys()
            for name in mine.keys() - {"round", "of"}:
                np.testing.assert_allclose(mine[name], theirs[name], rtol=1e-12)


def test_measuring_changes_no_other_number():
    setting = {"rounds": 4, "steps": 2, "batch": 4, "cohort": 2}
    plain = ud.run(ud.Scaffold(lr=0.1), network(), **setting)
    asked = ud.run(ud.Scaffold(lr=0.1), network(), **setting, callbacks=ud.PerClient())
    assert torch.equal(plain.x, asked.x)
    for before, now in zip(plain.history.rows, asked.history.rows, strict=True):
        assert {k: v for k, v in before.items() if k != "seconds"}.items() <= now.items()


def test_without_asking_the_last_model_is_measured_when_it_is_looked_at():
    a, b, problem = quadratic()
    run = ud.run(ud.FedAvg(lr=0.1), problem, rounds=4, steps=3)
    assert not any(name.startswith("client") for name in run.history)
    assert run.per_client.rounds.tolist() == [4] and list(run.per_client) == ["loss"]
    wanted = a * ((run.x.numpy() - b) ** 2).sum(1) / 2
    np.testing.assert_allclose(run.per_client.last["loss"], wanted, rtol=1e-12)


class Personal(Method, register=False):
    """Every client keeps a model of its own, half way between its last one and the server's."""

    lr: float = 0.1

    class Client(State):
        v: Vec

    class Up(Message):
        y: Vec

    def client(self, x0):
        return self.Client(v=x0 + 1)

    def work(self, me, got, f):
        y = f.sgd(got.x, self.lr)
        return self.Client(v=(me.v + y) / 2), self.Up(y=y)

    def merge(self, s, up, cohort):
        return s.replace(x=up.y)

    def own_point(self, me, x):
        return me.v + x


def test_a_model_that_the_method_keeps_for_every_client():
    a, b, problem = quadratic()
    run = ud.run(Personal(), problem, rounds=2, steps=2, cohort=3, callbacks=ud.PerClient())
    first = a * ((1 - b) ** 2).sum(1) / 2
    np.testing.assert_allclose(run.per_client["local_loss"][0], first, rtol=1e-12)
    own = run.engine.clients.v.numpy() + run.x.numpy()
    np.testing.assert_allclose(
        run.per_client.last["local_loss"], a * ((own - b) ** 2).sum(1) / 2, rtol=1e-12
    )


# -- folders


def test_a_folder_has_them_and_gives_them_back(whole):
    found = [json.loads(line) for line in lines(whole).splitlines()]
    assert len(found) == 2 * 2 * 4 and all(len(row["loss"]) == 6 for row in found)
    read = ud.load(whole.path)
    scaffold = read.per_client("Scaffold", 1)
    assert scaffold.rounds.tolist() == [0, 3, 6, 9] and scaffold["accuracy"].shape == (4, 6)
    history = read.history("Scaffold", 1)
    np.testing.assert_allclose(history["client_loss_mean"], scaffold["loss"].mean(1), rtol=1e-12)
    with pytest.raises(KeyError, match="Scaffold"):
        read.per_client("Scaffold")


def test_python_gives_the_same_with_and_without_a_folder(tmp_path):
    setting = {"rounds": 4, "steps": 2, "cohort": 3, "every": 2}
    setting["callbacks"] = ud.PerClient()
    free = ud.run(ud.FedAvg(lr=0.1), quadratic()[2], **setting)
    kept = ud.run(ud.FedAvg(lr=0.1), quadratic()[2], save=tmp_path / "a", **setting)
    read = ud.run(ud.FedAvg(lr=0.1), quadratic()[2], save=tmp_path / "a", **setting)
    named = ud.run(ud.FedAvg(lr=0.1), "quadratic", save=tmp_path / "b", **setting)
    assert (
        ud.load(tmp_path / "b").per_client("FedAvg")["loss"].tolist()
        == named.per_client["loss"].tolist()
    )
    for run in (kept, read):
        for name in free.per_client:
            np.testing.assert_array_equal(run.per_client[name], free.per_client[name])


def test_a_checkpoint_is_passed_over_if_lines_are_missing(whole, tmp_path):
    place = Folder(tmp_path / "again")
    run_in_folder(make(parse(SPEC)), place, stop=after(8)(), pause=0)
    place.file(CLIENTS).write_bytes(b"".join(lines(place).splitlines(keepends=True)[1:]))
    told = []
    run_in_folder(make(parse(SPEC)), Folder(place.path), emit=told.append)
    assert any("passed over" in str(event) for event in told)
    assert lines(place) == lines(whole) and rows(place.path) == rows(whole.path)


@pytest.mark.parametrize("metric", ["AUC", "auc", "GAP"])
def test_a_metric_that_nothing_measures_is_refused_before_the_run(metric):
    with pytest.raises(BadSpec, match=f"unknown metric '{metric}'"):
        make(parse(f"best = '{metric}'\n{SPEC}"))
    with pytest.raises(BadParameters, match=f"unknown metric '{metric}'"):
        seen = ud.Goal(metric=metric, mode="max"), ud.PerClient()
        ud.run(ud.FedAvg(lr=0.1), "logistic", rounds=1, callbacks=seen)


def test_metrics_of_clients_are_known_with_the_first_row():
    metric = "best.metric = 'client_accuracy_worst10'\nbest.mode = 'max'\n"
    found = make(parse(metric + SPEC))
    assert found.rules.best.metric == "client_accuracy_worst10"
