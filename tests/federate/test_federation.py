"""What becomes of messages: lost, repeated, changed, late; and runs as those of one machine."""

import hashlib
import itertools
import json

import pytest
import torch

pytest.importorskip("flwr", reason="flwr is not installed: pip install undrift[flower]")

from tests.federate.in_process import SPEC, Session, assert_equal, near, run, spec
from undrift import __version__
from undrift.engines import Simulate
from undrift.engines.messages.packet import Packet
from undrift.federate.federation import FlowerFederation
from undrift.federate.node import NodeConfig
from undrift.federate.worker import ClientWorker
from undrift.flower.compat import Lost, NoFederation
from undrift.methods import Scaffold
from undrift.runs.experiment import make
from undrift.spec.errors import BadSpec
from undrift.spec.reader import load
from undrift.spec.reader import parse as read

pytestmark = pytest.mark.usefixtures("no_waiting")


@pytest.mark.parametrize("method", ["FedRecu", "Scaffold", "FedLin"])
def test_rows_are_those_of_one_machine(shared, method):
    rows, chosen = [], spec(method)
    federation = FlowerFederation(shared, chosen, print)

    def hear(event):
        federation.hear(event)
        if hasattr(event, "row"):
            rows.append(event.row)

    (far,) = make(chosen, federation.build).run(emit=hear)
    assert_equal(far, near(chosen))
    seen = []
    text = chosen.toml().replace('engine = "flower"', 'engine = "simulate"')
    list(make(read(text, "mine.toml")).run(emit=lambda e: seen.append(getattr(e, "row", None))))
    seen = [row for row in seen if row]
    assert len(rows) == len(seen) == 5
    for far, here in zip(rows, seen, strict=True):
        for name in here.keys() - {"seconds", "drift"}:
            assert far[name] == pytest.approx(here[name], rel=1e-9, abs=1e-12)


def test_lost_messages_are_sent_again(shared):
    lost = set()

    def lose(asked, reply):
        key = asked.table["do"], asked.table.get("client"), json.dumps(asked.table.get("tag"))
        if asked.table["do"] == "work" and key not in lost and asked.table["client"] == 1:
            lost.add(key)
            return []
        return [reply]

    shared.spoil = lose
    chosen = spec("FedRecu", engine="deadline=0.05")
    far = run(shared, chosen)
    assert torch.equal(far.model, near(chosen).model) and len(lost) == 8
    works = [sum(to == node for to, do, _ in shared.asked if do == "work") for node in "012"]
    assert works == [8, 16, 8]


def test_an_answer_counts_once(shared):
    shared.spoil = lambda asked, reply: [30, reply] if asked.table["do"] == "work" else [reply]
    chosen = spec(engine="deadline=0.01")
    far = run(shared, chosen)
    assert_equal(far, near(chosen))
    assert len(shared.asked) > 20


def test_drop_goes_on_without_who_is_away(shared):
    """And that client returns to its last state that counted."""
    away = {(0, 1), (2, 1), (2, 0)}

    def lose(asked, reply):
        if asked.table["do"] != "work":
            return [reply]
        at = asked.table["tag"][0], asked.table["client"]
        return [] if at in away else [reply]

    shared.spoil = lose
    chosen = spec(engine="deadline=0.2 absent='drop'")
    far = run(shared, chosen)
    assert far.engine.ledger.left_out == 3
    problem = far.engine.problem.whole
    here = Simulate(Scaffold(lr=0.002), problem, steps=3, batch=3)
    collect = here.collect

    def lose_too(order, down):
        work = collect(order, down)
        gone = {c: "lost" for c in work.members.tolist() if (order.round, c) in away}
        return work._replace(failed=gone)

    here.collect = lose_too
    for _ in range(4):
        here.run_round()
    assert torch.equal(far.engine.x, here.x)


def test_methods_that_need_everybody_refuse_to_drop(shared):
    with pytest.raises(BadSpec, match="absent = 'wait'"):
        run(shared, spec("FedRecu", engine="absent='drop'"))


def test_a_flower_run_that_ends_is_replaced(shared):
    count = itertools.count()

    def break_off(asked, reply):
        if asked.table["do"] == "work" and next(count) in (1, 7):
            return [Lost("gone")]
        return [reply]

    shared.spoil = break_off
    chosen = spec()
    assert_equal(run(shared, chosen), near(chosen))
    assert shared.renewed == 2


def test_a_node_comes_back_under_another_number(shared):
    worker = shared.workers["1"]

    def move(asked, reply):
        if asked.table["do"] == "work" and asked.table["tag"][0] == 2 and "1" in shared.workers:
            del shared.workers["1"]
            shared.workers["9"] = ClientWorker(worker.config)  # what it had in memory is gone
            return [] if asked.table["client"] == 1 else [reply]
        return [reply]

    shared.spoil = move
    chosen = spec(engine="deadline=3")
    assert_equal(run(shared, chosen), near(chosen))
    assert ("9", "work", False) in shared.asked


def test_changed_answers_are_refused_and_asked_for_again(shared):
    changed = []

    def change(asked, reply):
        if asked.table["do"] == "work" and asked.table["client"] == 2 and len(changed) < 3:
            changed.append(1)
            middle = len(reply.content) - 8
            content = bytearray(reply.content)
            content[middle] ^= 16
            return [Packet(reply.table, bytes(content))]
        return [reply]

    shared.spoil = change
    chosen = spec(engine="deadline=5")
    assert_equal(run(shared, chosen), near(chosen))
    assert len(changed) == 3


def test_states_that_are_gone_end_the_run(shared, tmp_path):
    def remove(asked, reply):
        if asked.table["do"] == "work" and asked.table["tag"][0] == 1:
            for path in (tmp_path / "1").rglob("*.safetensors"):
                path.unlink()
        return [reply]

    shared.spoil = remove
    with pytest.raises(NoFederation, match=r"client 1 \(node n1\) cannot go on.*not on this node"):
        run(shared, spec())


def test_who_has_joined_is_named_and_others_are_not_waited_for_in_vain(tmp_path):
    session = Session(
        *(ClientWorker(NodeConfig(f"n{k}", tmp_path / str(k), part=k)) for k in (0, 2))
    )
    said, told = r"client 0 \(node n0\), client 2 \(node n2\); missing: client 1", []
    with pytest.raises(NoFederation, match=f"2 of 3 clients have joined: {said}"):
        run(session, spec(engine="joining=0.3"), told=told)
    assert len(told) <= 2


def test_orders_live_as_long_as_they_are_waited_for(shared):
    run(shared, spec(engine="deadline=7200"))
    assert len(shared.lives) > 12 and min(shared.lives) == 7200


def test_an_owner_hears_of_the_first_and_the_last_round(shared, capsys):
    run(shared, spec())
    told = [line for line in capsys.readouterr().out.splitlines() if "client 1" in line]
    assert told == [
        "Run mine: Scaffold, seed 0, round 1 of 4, as client 1.",
        "Run mine: Scaffold, seed 0, round 4 of 4, the last, as client 1.",
    ]


def test_the_spec_and_all_samples_are_told_once(shared):
    chosen = spec()
    assert_equal(run(shared, chosen), near(chosen))
    for node in shared.workers:
        assert [do for to, do, whole in shared.asked if to == node and whole] == ["hello", "work"]


def test_nodes_that_are_missing_are_named_by_their_keys(tmp_path):
    one = ClientWorker(NodeConfig("n0", tmp_path, data=tmp_path))
    session, chosen = Session(one), spec(engine="joining=0.3")
    keys = {"0": "north", "7": "south"}
    session.spoil = lambda asked, reply: [Packet({"name": "n0", "version": __version__})]
    federation = FlowerFederation(session, chosen, print, keys)
    with pytest.raises(NoFederation, match=r": \(key north, node n0\); missing: key south"):
        federation.gather()


def test_two_nodes_with_one_client(tmp_path):
    nodes = [ClientWorker(NodeConfig(f"n{k}", tmp_path / str(k), part=k % 2)) for k in range(3)]
    with pytest.raises(NoFederation, match=r"client 0 \(node n0\) is the same client"):
        run(Session(*nodes), spec())


def test_a_node_with_other_data(tmp_path, monkeypatch):
    nodes = [ClientWorker(NodeConfig(f"n{k}", tmp_path / str(k), part=k)) for k in range(3)]
    hello = nodes[1].hello
    other = lambda *asked: Packet({**hello(*asked).table, "digest": "0" * 64})  # noqa: E731
    monkeypatch.setattr(nodes[1], "hello", other)
    with pytest.raises(NoFederation, match=r"client 1 \(node n1\) has other data"):
        run(Session(*nodes), spec())


def test_a_problem_without_a_digest_is_run_all_the_same(shared, monkeypatch):
    monkeypatch.setattr("undrift.problems.quadratic.LeastSquares.digest", lambda self: None)
    chosen = spec()
    assert_equal(run(shared, chosen), near(chosen))


def test_a_seed_cannot_change_the_data(shared):
    with pytest.raises(BadSpec, match="leave out vary"):
        run(shared, spec(top="batch = 3\nvary = ['draws', 'split']"))


def test_trouble_that_is_no_message(shared):
    worker = shared.workers["0"]
    once = b'{"spec": "name = ", "files": {}, "samples": []}'
    told = {"do": "hello", "told": hashlib.sha256(once).hexdigest(), "once": len(once)}
    for packet in (Packet({}), Packet({"do": "work"}), Packet(told, once)):
        assert worker.answer(packet).table["lasting"]


def test_planned_faults_are_those_of_one_machine(shared):
    top = """batch = 8
dtype = "float64"
cohort = 2
[[faults]]
kind = "label-noise"
clients = [1]
rate = 0.5
[[faults]]
kind = "nan"
clients = [2]
since = 1
until = 3
[[faults]]
kind = "drop-before"
rate = 0.2
"""
    more = 'train = 60\ntest = 20\nmodel = "mlp"\nhidden = 8'
    chosen = spec("Scaffold", top, "images", more)
    far, here = run(shared, chosen), near(chosen)
    assert far.engine.ledger == here.engine.ledger and far.engine.ledger.left_out
    assert torch.allclose(far.model, here.model, rtol=0, atol=1e-13)


@pytest.mark.parametrize(
    "top",
    [
        "epochs = 1\nbatch = 3\naggregation = 'weighted-mean'",
        "steps = [1, 4, 2]\naggregation = 'median'",
        "steps = 2\nschedule = { name = 'cosine', rounds = 4, warmup = 1 }",
        "steps = 3\nbatch = 2\ntraining = {accumulate = 3, optimiser = 'adamw'}",
        "steps = 2\nschedule = 0.9\ntraining.clip = 1.0\ntraining.weight_decay = 0.01",
    ],
)
def test_settings_are_those_of_one_machine(shared, top):
    text = SPEC.format(method="FedAvg", top=top, problem="least-squares", more="")
    text = text.replace("steps = 3\n", "")
    chosen = read(text, "mine.toml", ["engine.name=flower"])
    assert_equal(run(shared, chosen), near(chosen))


# -- methods of one's own -----------------------------------------------------------------------

MINE = '''\
"""Mine."""
from undrift import Method, Vec, State, Message


class Mine(Method):
    lr: float

    class Server(State):
        x: Vec

    class Down(Message):
        x: Vec

    class Up(Message):
        y: Vec

    def server(self, x0):
        return self.Server(x=x0)

    def send(self, s):
        return self.Down(x=s.x)

    def work(self, me, got, f):
        return me, self.Up(y=f.descend(got.x, lambda y, grad: y - self.lr * grad(y)))

    def merge(self, s, up, cohort):
        return self.Server(x=up.y)
'''


def test_a_method_of_a_file_runs_where_the_same_file_is(tmp_path):
    for folder in ("server", "good", "changed"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "mine.py").write_text(MINE)
    (tmp_path / "changed" / "mine.py").write_text(MINE + "# another\n")
    text = SPEC.format(method="Mine", top="", problem="least-squares", more="")
    text += 'file = "mine.py"\n'
    (tmp_path / "server" / "spec.toml").write_text(text)
    chosen = load(tmp_path / "server" / "spec.toml", ["engine.name=flower"])

    def session(folder):
        methods = folder and tmp_path / folder
        places = [NodeConfig(f"n{k}", tmp_path / str(k), None, k, methods) for k in range(3)]
        return Session(*map(ClientWorker, places))

    far = run(session("good"), chosen)
    assert far.outcome.status == "done" and far.engine.round == 4
    for folder, word in ((None, "--methods"), ("changed", "not the file of the server")):
        with pytest.raises(NoFederation, match=rf"n0 cannot take part.*{word}"):
            run(session(folder), chosen)
