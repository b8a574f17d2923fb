"""Nodes whose data nobody else sees."""

import time

import numpy as np
import pytest
import torch

pytest.importorskip("flwr", reason="flwr is not installed: pip install undrift[flower]")

from tests.federate.in_process import SPEC, assert_equal, own, run, spec
from undrift.core.stopping import EVERYBODY, MEASURED
from undrift.engines import Simulate
from undrift.engines.messages.packet import Packet
from undrift.federate.federation import FlowerFederation
from undrift.federate.node import NodeConfig
from undrift.federate.worker import ClientWorker
from undrift.flower.compat import NoFederation
from undrift.problems.logistic import Logistic
from undrift.runs.events import Measured
from undrift.runs.experiment import make
from undrift.spec.errors import BadSpec
from undrift.spec.reader import parse as read

pytestmark = pytest.mark.usefixtures("no_waiting")


def write(folder, features, labels):
    folder.mkdir(parents=True)
    lines = [
        f"{int(y):+d} " + " ".join(f"{k + 1}:{v!r}" for k, v in enumerate(row.tolist()))
        for row, y in zip(features, labels, strict=True)
    ]
    (folder / "wards").write_text("\n".join(lines) + "\n")


@pytest.fixture
def hospitals(tmp_path):
    rng = np.random.default_rng(1)
    sizes = (12, 30, 7)
    data = []
    for n in sizes:
        features = rng.standard_normal((n, 4))
        labels = np.sign(features[:, 0] + 0.5 * rng.standard_normal(n))
        labels[:2] = 1, -1
        data.append((features, labels))
    for k, (features, labels) in enumerate(data):
        write(tmp_path / f"data{k}", features, labels)
    return data


OWN = {"problem": "logistic", "more": 'data = "wards"', "top": "batch = 4\ndtype = 'float64'"}


@pytest.mark.parametrize(
    ("method", "batch", "more"),
    [
        ("Scaffold", "batch = 4", ""),
        ("FedRecu", "", ""),
        ("FedLin", "", ""),
        ("Scaffold", "", "intercept = true"),
    ],
)
def test_data_that_nobody_else_sees(tmp_path, hospitals, method, batch, more):
    """Whole gradients are those of all data in one place, metrics are so anyway; who comes first
    does not matter.
    """
    asked = {**OWN, "top": f"{batch}\ndtype = 'float64'", "more": f"{OWN['more']}\n{more}"}
    far = run(own(tmp_path), spec(method, **asked))
    assert_equal(run(own(tmp_path, (2, 0, 1), "other"), spec(method, **asked)), far)
    width = [np.ones((len(a), 1))[:, : bool(more)] for a, _ in hospitals]
    features = np.concatenate(
        [np.hstack([a, w]) for (a, _), w in zip(hospitals, width, strict=True)]
    )
    labels = np.concatenate([y for _, y in hospitals])
    ends = np.cumsum([len(y) for _, y in hospitals])
    whole = Logistic(features, labels, np.split(np.arange(ends[-1]), ends[:-1]))
    here = Simulate(far.engine.method, whole, steps=3)
    for _ in range(4):
        here.run_round()
    assert far.engine.problem.samples == whole.samples and far.model.shape == here.x.shape
    assert batch or torch.allclose(far.model, here.x, rtol=1e-12, atol=1e-12)
    found, expected = far.engine.metrics(), whole.metrics(far.model)
    assert found["loss"] == pytest.approx(expected["loss"], rel=1e-12)
    assert found["accuracy"] == pytest.approx(expected["accuracy"], rel=1e-12)
    assert "gap" not in found


def test_nodes_report_how_they_fare_on_their_own_data(tmp_path, hospitals):
    far = run(own(tmp_path), spec(**OWN))
    found, x = far.engine.client_metrics(), far.model.numpy()
    for k, (features, labels) in enumerate(hospitals):
        margins = labels * (features @ x)
        loss = np.log1p(np.exp(-margins)).mean() + x @ x / 2 / 49  # l2 is 1 / samples of all
        assert found["loss"][k].item() == pytest.approx(loss, rel=1e-12)
        assert found["accuracy"][k].item() == pytest.approx((margins > 0).mean())
    problem = far.engine.problem
    assert problem.own_samples == problem.metric_samples == "train"
    row = far.engine.metrics()
    weights = np.array([12, 30, 7]) / 49
    assert weights @ found["loss"].numpy() == pytest.approx(row["loss"], rel=1e-12)
    other = far.engine.problem.client_metrics(0 * far.model)  # asked for anew
    assert other["loss"].tolist() == pytest.approx([np.log(2)] * 3)


WRONG = {
    "no metrics": {"metrics": None},
    "no loss": {"metrics": {"accuracy": 1.0}},
    "other names": {"metrics": {"loss": 1.0, "accuracy": 1.0, "more": 1.0}},
    "the name of a column": {"metrics": {"loss": 1.0, "round": 7}},
    "text": {"metrics": {"loss": "low", "accuracy": 1.0}},
    "a truth": {"metrics": {"loss": 0.1, "accuracy": True}},
    "too large": {"metrics": {"loss": 10**400, "accuracy": 1.0}},
    "more samples": {"samples": 10**9},
    "no weights": {"weights": None},
    "weights of others": {"weights": {"loss": 7}},
    "weights below one": {"weights": {"loss": 7, "accuracy": 0}},
}


@pytest.mark.parametrize("wrong", WRONG)
def test_numbers_that_cannot_be_are_refused_and_asked_for_again(tmp_path, hospitals, wrong):
    session, chosen, left = own(tmp_path), spec(**OWN), [2]
    plain = run(own(tmp_path, states="plain"), chosen).engine.metrics()

    def spoil(asked, reply):
        if asked.table["do"] == "evaluate" and asked.table["client"] == 2 and left[0]:
            left[0] -= 1
            return [Packet({**reply.table, **WRONG[wrong]})]
        return [reply]

    session.spoil = spoil
    assert run(session, chosen).engine.metrics() == plain and left == [0]


@pytest.mark.parametrize("samples", [0, -3, 2.5, "many", None])
def test_a_client_without_a_number_of_samples_is_not_begun_with(tmp_path, hospitals, samples):
    session = own(tmp_path)

    def spoil(asked, reply):
        return [
            Packet({**reply.table, "samples": samples} if "dim" in reply.table else reply.table)
        ]

    session.spoil = spoil
    with pytest.raises(NoFederation):
        run(session, spec(**OWN))


def test_a_problem_that_everybody_can_build_is_measured_at_the_server(shared):
    far = run(shared, spec(top="batch = 3\nper_client = true"))
    here = far.engine.problem.whole.client_metrics(far.model)
    assert far.engine.client_metrics()["loss"].tolist() == here["loss"].tolist()


def test_rows_of_some_clients_are_marked_and_decide_nothing(tmp_path, hospitals):
    session, asked_for, rows = own(tmp_path), dict.fromkeys(range(3), 0), []

    def lose(asked, reply):
        if asked.table["do"] != "evaluate":
            return [reply]
        client = asked.table["client"]
        asked_for[client] += 1
        if asked_for[client] <= 2:  # the rows of rounds 0 and 1
            return [reply]
        perfect = {**reply.table, "metrics": {"loss": 0.0, "accuracy": 1.0}}
        return [] if client == 2 else [Packet(perfect)]

    session.spoil = lose
    top = f"{OWN['top']}\nstop = {{metric = 'accuracy', target = 1.0, patience = 1}}"
    engine = "deadline=0.3 absent='drop'"
    chosen = spec("FedAvg", **{**OWN, "top": top}, engine=engine)
    federation = FlowerFederation(session, chosen, print)

    def hear(event):
        federation.hear(event)
        if isinstance(event, Measured):
            rows.append(event.row)

    (result,) = make(chosen, federation.build).run(emit=hear)
    assert [row.get(MEASURED) for row in rows] == [None, None, 2, 2, 2]
    assert [row.get(EVERYBODY) for row in rows] == [None, None, 3, 3, 3]
    assert rows[-1]["accuracy"] == 1 and result.outcome.status == "done"
    assert result.best.round < 2


def test_a_row_that_nobody_measured_is_not_one_of_a_run_that_diverged(tmp_path, hospitals):
    session, asked_for = own(tmp_path), []

    def lose(asked, reply):
        if asked.table["do"] == "evaluate":
            asked_for.append(1)
        return [] if len(asked_for) > 3 and asked.table["do"] == "evaluate" else [reply]

    session.spoil = lose
    chosen = spec("FedAvg", **OWN, engine="deadline=0.05 absent='drop'")
    far = run(session, chosen)
    assert far.outcome.status == "done" and far.engine.metrics()[MEASURED] == 0


def test_theory_by_hello(tmp_path, hospitals):
    text = SPEC.format(method="FedRecu", **{**OWN, "top": ""}).replace("0.002", '"theory"')
    chosen = read(text, "mine.toml", ["engine.name=flower"])
    far = run(own(tmp_path), chosen)
    assert 0 < far.engine.method.lr < 10


def test_steps_that_need_hessians_of_all_are_refused(tmp_path, hospitals):
    text = SPEC.format(method="FedRed", **{**OWN, "top": ""})
    text = text.replace("lr = 0.002", 'p = "theory"\neta = "theory"\nlam = "theory"')
    chosen = read(text, "mine.toml", ["engine.name=flower"])
    with pytest.raises(BadSpec) as error:
        run(own(tmp_path), chosen)
    assert "delta" in str(error.value)


def test_nodes_keep_their_numbers(tmp_path, hospitals):
    session = own(tmp_path, (2, 0, 1))
    federation = FlowerFederation(session, spec(**OWN), print)
    assert [about["samples"] for about in federation.gather()] == [12, 30, 7]


def test_clients_with_other_columns(tmp_path, hospitals):
    write(tmp_path / "more" / "data", np.ones((4, 5)) * 2, np.array([1, -1, 1, -1]))
    (tmp_path / "data1" / "wards").write_bytes((tmp_path / "more/data/wards").read_bytes())
    with pytest.raises(NoFederation, match=r"the same dim .*client 1 \(node h1\): 5.*features"):
        run(own(tmp_path), spec(**OWN))
    wide = run(own(tmp_path), spec(**{**OWN, "more": f"{OWN['more']}\nfeatures = 6"}))
    assert wide.outcome.status == "done" and len(wide.model) == 6
    assert wide.model[3] and wide.model[4] and not wide.model[5]


def test_labels_that_are_written_otherwise_are_refused(tmp_path, hospitals):
    for k, (features, labels) in enumerate(hospitals):
        write(tmp_path / f"ones{k}", features, 1 * (labels > 0) + (k == 1))
        (tmp_path / f"data{k}" / "wards").write_bytes((tmp_path / f"ones{k}/wards").read_bytes())
    with pytest.raises(NoFederation, match=r"classes .*h1\): \['1', '2'\].*labels ="):
        run(own(tmp_path), spec(**OWN))
    write(tmp_path / "one", hospitals[1][0], hospitals[1][1] > 0)
    (tmp_path / "data1" / "wards").write_bytes((tmp_path / "one/wards").read_bytes())
    assert run(own(tmp_path), spec(**OWN)).outcome.status == "done"


@pytest.mark.parametrize("order", [(0, 1, 2), (0, 2)], ids=["all", "the third is not there yet"])
def test_a_node_without_sound_data_says_so(tmp_path, hospitals, capsys, order):
    """And ends the federation at once; the path of a file is for the node's own terminal."""
    (bad := tmp_path / "data2" / "wards").write_text("1 1:nan\n-1 1:2\n")
    with pytest.raises(NoFederation, match=r"h2 cannot take part.*wards.*start again") as error:
        run(own(tmp_path, order), spec(**OWN))
    assert str(tmp_path) not in str(error.value) and str(bad) in capsys.readouterr().out


def test_a_node_that_is_of_no_use_later_is_told_of(tmp_path, hospitals):
    federation = FlowerFederation(session := own(tmp_path), spec(**OWN), (told := []).append)
    federation.gather()
    (tmp_path / "data2" / "wards").unlink()
    session.workers["late"] = ClientWorker(NodeConfig("h2", tmp_path / "s2", tmp_path / "data2"))
    federation._looked = 0.0
    federation._turn(None)
    assert any("h2 cannot take part" in text for text in told)


def test_some_with_their_own_data_and_some_without(tmp_path, hospitals):
    session = own(tmp_path, (0, 1))
    session.workers["2"] = ClientWorker(
        NodeConfig("p", tmp_path / "s9", tmp_path / "data2", part=2)
    )
    with pytest.raises(NoFederation):
        run(session, spec(**OWN))


@pytest.mark.parametrize("do", ["work", "evaluate"])
def test_data_that_change_while_a_run_is_under_way_end_it(tmp_path, hospitals, do):
    """As many rows as before, and other labels: the node has started again in between."""
    session = own(tmp_path)

    def restart(asked, reply):
        if asked.table["do"] == do and asked.table["client"] == 1:
            file = tmp_path / "data1" / "wards"
            flip = str.maketrans("+-", "-+")
            lines = file.read_text().splitlines()
            file.write_text("\n".join(line[0].translate(flip) + line[1:] for line in lines) + "\n")
            session.workers["1"] = ClientWorker(session.workers["1"].config)
            session.spoil = lambda asked, reply: [reply]
        return [reply]

    session.spoil = restart
    with pytest.raises(NoFederation, match=r"client 1 \(node h1\) cannot go on: its data or"):
        run(session, spec(**OWN))


def test_a_node_that_starts_again_with_the_same_data_goes_on(tmp_path, hospitals):
    plain, session = run(own(tmp_path, states="plain"), spec(**OWN)), own(tmp_path)

    def restart(asked, reply):
        session.workers["1"] = ClientWorker(session.workers["1"].config)
        return [reply]

    session.spoil = restart
    assert torch.equal(run(session, spec(**OWN)).model, plain.model)


def test_a_node_too_many_does_not_end_a_run(tmp_path, hospitals):
    """Nor does one of the clients that comes back without its folder, and so by another name."""
    plain, session, told = run(own(tmp_path, states="plain"), spec(**OWN)), own(tmp_path), []

    def more(asked, reply):
        if asked.table["do"] == "work" and "9" not in session.workers:
            session.workers["9"] = ClientWorker(
                NodeConfig("new", tmp_path / "new", tmp_path / "data0")
            )
            time.sleep(1.1)  # nodes are looked for once a second
        return [reply]

    session.spoil = more
    assert torch.equal(run(session, spec(**OWN), told=told).model, plain.model)
    assert [text for text in told if "Node new cannot take part: the 3 clients are other" in text]


def test_a_full_disk_is_told_to_the_owner_once_and_to_the_server_without_paths(
    tmp_path, hospitals, capsys, monkeypatch
):
    session, full, said = own(tmp_path), [3], []
    node = session.workers["1"]
    work = node.work

    def fails(asked):
        if full[0]:
            full[0] -= 1
            raise OSError(28, "No space left on device", str(node.config.states / "run" / "1"))
        return work(asked)

    monkeypatch.setattr(node, "work", fails)
    session.spoil = lambda asked, reply: said.append(reply.table.get("error", "")) or [reply]
    run(session, spec(**OWN))
    assert any("No space left on device: 'run/1'" in text for text in said)
    assert not any(str(tmp_path) in text for text in said)
    told = [line for line in capsys.readouterr().out.splitlines() if "No space left" in line]
    assert len(told) == 1 and str(tmp_path) in told[0]


def test_what_a_node_tells_of_its_data_cannot_be_guessed_from_them(tmp_path, hospitals):
    """A server that has an idea of the data must not be able to try it out."""
    told = []

    def digests(states):
        session = own(tmp_path, states=states)
        session.spoil = lambda asked, reply: told.append(reply.table.get("digest")) or [reply]
        run(session, spec(**OWN))
        found = [text for text in told if text]
        told.clear()
        return found

    first = digests("s")
    assert len({*first}) == 3 and digests("s") == first  # the same when the node starts again
    assert not {*digests("other")} & {*first}  # the same data with the numbers of other nodes
    assert (tmp_path / "s0" / "salt").stat().st_mode & 0o077 == 0
