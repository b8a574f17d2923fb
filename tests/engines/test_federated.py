"""The engine of a federation and its nodes, without a network: calls are made in this process."""

import os
from typing import NamedTuple

import pytest
import torch
from tests.rounds import after

from undrift.check.federations import example, least_squares
from undrift.core import registry
from undrift.core.params import BadParameters
from undrift.engines import Simulate
from undrift.engines.checkpoint import Shelf
from undrift.engines.federated import Federated, Refused, Remote
from undrift.engines.judge import Diverged
from undrift.engines.messages.packet import Packet, Tag
from undrift.engines.node import BadNodeStates, Node, NodeStates, OneOf
from undrift.methods import FedAvg, FedRecu, FedRed, Mime, Scaffold
from undrift.objectives import MOON
from undrift.problems.named import made

PROBLEM = least_squares(1, clients=5, rows=8, dim=4)


class Call(NamedTuple):
    """What is asked of a client."""

    client: int
    tag: Tag
    order: Packet


class Calls:
    """A federation in this process; ``reach`` may lose, repeat or spoil what passes through it."""

    def __init__(self, problem, folder, method, **setting):
        self.problem, self.folder, self.method, self.setting = problem, folder, method, setting
        self.reach = lambda call, do: do()
        self.start()

    def start(self):
        """As after every machine of a client was restarted: only files are left."""
        self.nodes = {}
        for client in range(self.problem.clients):
            own = OneOf(self.problem, client, self.problem.samples)
            seed = self.setting.get("seed", 0)
            setting = {name: v for name, v in self.setting.items() if name != "seed"}
            self.nodes[client] = Node(self.method, own, self.folder / str(client), setting, seed)

    def begin(self, engine, seed):
        assert {node.run for node in self.nodes.values()} == {engine.identity}

    def ask(self, orders, accept):
        failed = {}
        for client, order in orders.items():
            call = Call(client, Tag(*order.table["tag"]), order)
            try:
                accept(client, self.reach(call, lambda call=call: self.do(call)))
            except (ConnectionError, Refused) as error:
                failed[client] = str(error)
            except ArithmeticError as error:
                accept(client, Packet({"unsound": str(error)}))
        return failed

    def do(self, call):
        return self.nodes[call.client].do(call.order)

    def evaluate(self, problem, x):
        return self.problem.metrics(x)


def federation(method, folder, problem=PROBLEM, **setting):
    calls = Calls(problem, folder, method, **setting)
    return Federated(method, Remote(problem.facts, calls, None, problem), **setting), calls


def settings(method):
    batch = None if method.solves else 3
    cohort = None if method.participation == "full" else 3
    steps = 3 if method.equal_steps else [3, 1, 2, 5, 4]
    return {"batch": batch, "cohort": cohort, "steps": steps, "seed": 3}


def losing(engine, lost):
    """Have ``lost(order, client)`` decide whose work does not arrive."""
    collect = engine.collect

    def collected(order, down):
        work = collect(order, down)
        gone = {client: "lost" for client in work.members.tolist() if lost(order, client)}
        return work._replace(failed=gone)

    engine.collect = collected


def apart(a, b):
    return float((a.x - b.x).norm() / b.x.norm().clamp(min=1e-300))


@pytest.mark.covering(12)
@pytest.mark.parametrize("name", sorted(registry))
def test_every_method_is_what_it_is_on_one_machine(name, tmp_path):
    method = example(registry[name], PROBLEM.constants, steps=3)
    far, _ = federation(method, tmp_path, **settings(method))
    near = Simulate(method, PROBLEM, **settings(method))
    after(6, far, near)
    assert apart(far, near) < 1e-13
    assert far.ledger == near.ledger
    assert far.streams.used == near.streams.used
    assert far.drift is None
    assert far.metrics() == pytest.approx(near.metrics(), rel=1e-9, abs=1e-12)


def test_last_local_models_are_remembered(tmp_path):
    problem = made("images", train=60, test=20, model="mlp", hidden=8, clients=3).build(MOON())
    problem = problem.to(torch.float64, torch.device("cpu"))
    setting = {"batch": 8, "cohort": 2, "steps": 2, "seed": 1}
    far, _ = federation(FedAvg(lr=0.1), tmp_path, problem, **setting)
    near = Simulate(FedAvg(lr=0.1), problem, **setting)
    after(5, far, near)
    assert problem.remembers and apart(far, near) < 1e-12


@pytest.mark.parametrize(
    "method", [FedRecu(lr=0.02), Scaffold(lr=0.02), FedRed(eta=0.02, lam=1.0, p=0.3)]
)
def test_nodes_may_be_restarted_between_any_two_calls(method, tmp_path):
    far, calls = federation(method, tmp_path, seed=2, steps=3)
    near = Simulate(method, PROBLEM, seed=2, steps=3)

    def restart(call, do):
        calls.start()
        return calls.do(call)

    calls.reach = restart
    after(4, far, near)
    assert apart(far, near) < 1e-13


@pytest.mark.parametrize("method", [FedRecu(lr=0.02), Scaffold(lr=0.02)])
def test_work_that_is_asked_for_again_gives_the_same_answer(method, tmp_path):
    far, calls = federation(method, tmp_path, seed=2, steps=3, batch=3)
    near = Simulate(method, PROBLEM, seed=2, steps=3, batch=3)

    def twice(call, do):
        first = do()
        calls.start()  # killed after its states were written, before the reply left
        second = calls.do(call)
        assert second == first
        return second

    calls.reach = twice
    after(3, far, near)
    assert apart(far, near) < 1e-13


def test_work_that_does_not_count_is_rolled_back(tmp_path):
    """A client whose upload is lost is as if it had not been asked."""
    method, setting = Scaffold(lr=0.02), {"seed": 2, "steps": 3}
    far, calls = federation(method, tmp_path, **setting)
    near = Simulate(method, PROBLEM, **setting)
    lost = {(0, 1), (1, 1), (1, 4), (3, 0)}

    def lose(call, do):
        answer = do()
        if (call.tag.round, call.client) in lost:
            raise ConnectionError("lost")
        return answer

    calls.reach = lose
    losing(near, lambda order, client: (order.round, client) in lost)
    after(5, far, near)
    assert apart(far, near) < 1e-13
    assert far.ledger.left_out == near.ledger.left_out == len(lost)
    assert [one[:3] for one in far.rejections] == [one[:3] for one in near.rejections]


def test_a_client_lost_in_the_second_phase_begins_the_round_again(tmp_path):
    method, setting = Mime(lr=0.02), {"seed": 2, "steps": 3, "cohort": 4}
    assert len(Simulate(method, PROBLEM, **setting).clock.plan(0, 0).phases) == 2
    far, calls = federation(method, tmp_path, **setting)
    near = Simulate(method, PROBLEM, **setting)
    victims = {r: int(near.clock.drawn(r)[0]) for r in (1, 3)}

    def lose(call, do):
        if call.tag.place == 1 and victims.get(call.tag.round) == call.client:
            raise ConnectionError("lost")
        return do()

    calls.reach = lose
    losing(near, lambda order, client: order.place and victims.get(order.round) == client)
    for _ in range(5):
        far.run_round()
        near.run_round()
        victim = victims.get(far.round - 1)
        tag = None if victim is None else far.counted.last[victim]
        assert tag is None or tag.round < far.round - 1  # its first phase does not count
    assert apart(far, near) < 1e-13
    assert far.ledger.left_out == near.ledger.left_out == len(victims)
    assert far.ledger.syncs == near.ledger.syncs  # of the phases that were done twice too


@pytest.mark.parametrize("kept", [1, 2])
def test_a_server_resumes_though_its_clients_went_on(kept, tmp_path):
    """Also from the older of its two checkpoints, should the newest be damaged."""
    method, setting = FedRecu(lr=0.02), {"seed": 2, "steps": 3, "batch": 3}
    far, calls = federation(method, tmp_path / "nodes", **setting)
    near = Simulate(method, PROBLEM, **setting)
    shelf = Shelf(tmp_path / "shelf", "run", "identity")
    for _ in range(8):
        far.run_round()
        if far.round % 2 == 0:
            shelf.store(far)
    far.run_round()
    far.advance()  # killed in the middle of a round
    files = shelf.files()
    if kept == 2:
        files[0][1].unlink()
    calls.start()
    again = Federated(method, Remote(PROBLEM.facts, calls, None, PROBLEM), **setting)
    assert shelf.restore(again, lambda counters: True, print) is not None
    assert again.round == (8 if kept == 1 else 6)
    while again.round < 12:
        again.run_round()
    after(12, near)
    assert apart(again, near) < 1e-13


def test_old_states_are_removed(tmp_path):
    far, _ = federation(Scaffold(lr=0.02), tmp_path, seed=2, steps=3)
    for _ in range(12):
        far.run_round()
        far.snapshot()
    for client in range(PROBLEM.clients):
        assert len([*(tmp_path / str(client)).rglob("*.safetensors")]) <= 5
    assert not [*tmp_path.rglob("*.part")]


def test_a_missing_generation_is_an_error(tmp_path):
    far, _calls = federation(Scaffold(lr=0.02), tmp_path, seed=2, steps=3)
    far.run_round()
    for path in (tmp_path / "1").rglob("*.safetensors"):
        path.unlink()
    with pytest.raises(BadNodeStates, match="are not on this node"):
        far.run_round()


def test_states_of_another_run_and_damaged_ones_are_refused(tmp_path):
    far, _calls = federation(Scaffold(lr=0.02), tmp_path, seed=2, steps=3)
    other, _ = federation(Scaffold(lr=0.02), tmp_path / "other", seed=3, steps=3)
    far.run_round()
    other.run_round()
    (mine,) = (tmp_path / "1").rglob("*.safetensors")
    (theirs,) = (tmp_path / "other" / "1").rglob("*.safetensors")
    kept = mine.read_bytes()
    mine.write_bytes(theirs.read_bytes())
    with pytest.raises(BadNodeStates, match="another run"):
        far.run_round()
    assert mine.read_bytes() == theirs.read_bytes()
    mine.write_bytes(kept[:-1] + bytes([kept[-1] ^ 1]))
    with pytest.raises(BadNodeStates, match="damaged"):
        far.run_round()
    mine.write_bytes(kept)
    far.run_round()


def test_an_answer_that_was_changed_is_refused(tmp_path):
    far, calls = federation(FedAvg(lr=0.02), tmp_path, seed=2, steps=3)

    def change(call, do):
        table, frame = do()
        if call.client == 2:
            frame = frame[:-3] + bytes([frame[-3] ^ 4]) + frame[-2:]
        return Packet(table, frame)

    calls.reach = change
    far.run_round()
    assert [(one.client, "damaged" in one.reason) for one in far.rejections] == [(2, True)]
    assert far.ledger.left_out == 1


def test_a_client_with_states_that_are_not_finite_says_so(tmp_path):
    far, _calls = federation(Scaffold(lr=1e200), tmp_path, seed=2, steps=3)
    with pytest.raises(Diverged):
        after(4, far)
    assert all("finite" in one.reason for one in far.rejections)


def test_states_survive_what_was_left_of_a_kill(tmp_path):
    states = NodeStates(tmp_path, "a" * 32, 0)
    states.store(Tag(0, 0, 0), {"state.c": torch.ones(3)})
    (tmp_path / ".1-0-0.safetensors.abc.part").write_bytes(b"half")
    states.keep({Tag(0, 0, 0)})
    assert states.load(Tag(0, 0, 0))["state.c"].tolist() == [1, 1, 1]


@pytest.mark.skipif(os.name != "posix", reason="permissions are those of Unix")
def test_states_are_for_their_user_alone(tmp_path):
    """A control variate tells of the client's data what a gradient does."""
    usual = os.umask(0o022)
    try:
        far, _calls = federation(Scaffold(lr=0.1), tmp_path, seed=2, steps=3)
        far.run_round()
    finally:
        os.umask(usual)
    folders = {file.parent for file in tmp_path.rglob("*.safetensors")}
    assert len(folders) == PROBLEM.clients
    assert {folder.stat().st_mode & 0o777 for folder in folders} == {0o700}


def test_it_needs_a_federation():
    with pytest.raises(BadParameters, match="undrift federate"):
        Federated(FedAvg(lr=0.1), PROBLEM)


class Short(Scaffold, register=False):
    """Client 1 uploads vectors that are too short."""

    def work(self, me, got, f):
        new, up = super().work(me, got, f)
        return new, up.map(lambda v: v[..., :-1]) if f.members.tolist() == [1] else up


def test_a_node_whose_vectors_have_another_form_is_refused_alone(tmp_path):
    far, _ = federation(Short(lr=0.02), tmp_path, steps=2)
    after(2, far)
    assert [(one.round, one.client) for one in far.rejections] == [(0, 1), (1, 1)]
