import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.rounds import after

from undrift.check.federations import example, least_squares, quadratic
from undrift.core import Message, Method, State, Vec, registry
from undrift.core.streams import Streams
from undrift.engines import Simulate, Wire
from undrift.methods import GD, FedAvg, FedLin, FedRecu, Scaffold


@settings(max_examples=30, deadline=None)
@given(
    name=st.sampled_from(sorted(registry)),
    seed=st.integers(0, 1000),
    clients=st.integers(1, 6),
    dim=st.integers(1, 5),
    batch=st.none() | st.integers(1, 12),
    cohort=st.integers(1, 6),
    steps=st.lists(st.integers(1, 5), min_size=6, max_size=6),
)
def test_engines_agree_on_any_federation(name, seed, clients, dim, batch, cohort, steps):
    problem = least_squares(seed, clients=clients, rows=8, dim=dim)
    method = example(registry[name], problem.constants, steps=3)
    setting = {
        "batch": None if method.solves else batch,
        "cohort": None if method.participation == "full" else min(cohort, clients),
        "steps": steps[0] if method.equal_steps else steps[:clients],
        "seed": seed,
    }
    fast, slow = Simulate(method, problem, **setting), Wire(method, problem, **setting)
    after(6, fast, slow)
    scale = max(1.0, float(slow.x.abs().max()))
    assert float((fast.x - slow.x).abs().max()) < 1e-11 * scale
    assert fast.ledger == slow.ledger


def test_float32_stays_float32_and_near():
    problem = least_squares()
    method = example(Scaffold, problem.constants)
    single = Simulate(
        method, problem.to(torch.float32, torch.device("cpu")), steps=[1, 2, 3, 2, 1], batch=3
    )
    double = Simulate(method, problem, steps=[1, 2, 3, 2, 1], batch=3)
    after(50, single, double)
    assert single.x.dtype == torch.float32 and all(
        v.dtype == torch.float32 for _, v in single.clients.items()
    )
    assert float((single.x - double.x).abs().max()) < 1e-5
    assert single.ledger.bytes_up * 2 == double.ledger.bytes_up


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device here")
def test_cuda_follows_the_cpu():
    problem = least_squares()
    for name in sorted(registry):
        method = example(registry[name], problem.constants)
        cpu, gpu = (
            Simulate(method, problem.to(torch.float64, torch.device(d)), steps=3)
            for d in ("cpu", "cuda")
        )
        after(20, cpu, gpu)
        scale = max(1.0, float(cpu.x.abs().max()))
        assert float((cpu.x - gpu.x.cpu()).abs().max()) < 1e-10 * scale, name


def test_steps_taken_are_those_of_each_client():
    """The control variate of SCAFFOLD divides by the client's own number of steps."""
    problem = quadratic()
    lr, steps = 0.01, [1, 2, 3, 4]
    engine = Simulate(Scaffold(lr=lr), problem, steps=steps)
    engine.run_round()
    for i, k in enumerate(steps):
        alone = Simulate(Scaffold(lr=lr), problem, steps=k)
        alone.run_round()
        assert torch.allclose(engine.clients.c[i], alone.clients.c[i], atol=1e-12)
    assert engine.ledger.gradients == sum(steps)


def test_gradients_are_counted_where_they_are_computed():
    problem = quadratic()
    counts = {
        "GD": (GD(lr=0.1), 4),
        "FedAvg": (FedAvg(lr=0.1), 12),
        "FedRecu": (FedRecu(lr=0.1), 12),
    }
    counts["FedLin"] = (FedLin(lr=0.1), 16)
    counts["Scaffold I"] = (Scaffold(lr=0.1, option="I"), 16)
    for name, (method, expected) in counts.items():
        for kind in (Simulate, Wire):
            engine = kind(method, problem, steps=3)
            engine.run_round()
            assert engine.ledger.gradients == expected, (name, kind)


class Anchored(FedAvg, abstract=True):
    """Asks for the gradient on all samples inside its local steps."""

    def work(self, me, got, f):
        return me, self.Up(dy=f.sgd(got.x, self.lr, lambda y, grad: grad(y) + f.grad(y)) - got.x)


def test_a_client_that_is_done_spends_no_gradients():
    for kind in (Simulate, Wire):
        engine = kind(Anchored(lr=0.01), quadratic(), steps=[1, 2, 3, 4])
        after(2, engine)
        assert engine.ledger.gradients == 2 * 2 * (1 + 2 + 3 + 4), kind


def test_ledger_of_a_partial_cohort():
    problem = least_squares()
    engine = Wire(Scaffold(lr=0.01), problem, steps=2, cohort=3)
    after(4, engine)
    vector = problem.dim * 8
    assert (engine.ledger.vectors_up, engine.ledger.vectors_down) == (8, 8)
    assert (engine.ledger.bytes_up, engine.ledger.bytes_down) == (
        4 * 3 * 2 * vector,
        4 * 3 * 2 * vector,
    )
    assert engine.ledger.iterations == 8 and engine.ledger.syncs == 4


class Toy(Method):
    """Uploads each client's gradient; the server sees it reduced."""

    class Server(State):
        x: Vec

    class Down(Message):
        x: Vec

    class Up(Message):
        g: Vec

    def send(self, s):
        return self.Down(x=s.x)

    def work(self, me, got, f):
        return me, self.Up(g=f.grad(got.x))


registry.pop("Toy")


@pytest.mark.parametrize("engine", [Simulate, Wire])
@pytest.mark.parametrize("reduction", ["mean", "sum", "stack", "pick"])
def test_reductions(engine, reduction):
    problem = quadratic()
    seen = {}

    class Reduced(Toy, abstract=True):
        def merge(self, s, up, cohort):
            seen["g"], seen["cohort"] = up.g, cohort
            return s

    Reduced.reduction = reduction
    machine = engine(Reduced(), problem, cohort=3, seed=2)
    machine.run_round()
    members = seen["cohort"].members
    rows = problem.at(None).grad(torch.zeros(problem.clients, problem.dim, dtype=torch.float64))[
        members
    ]
    if reduction == "pick":
        assert any(torch.allclose(seen["g"], row) for row in rows)
        assert machine.ledger.bytes_up == problem.dim * 8
    else:
        expected = {"mean": rows.mean(0), "sum": rows.sum(0), "stack": rows}[reduction]
        assert torch.allclose(seen["g"], expected, atol=1e-13)


def test_a_method_left_to_theory_or_misplaced_does_not_start():
    problem = quadratic()
    with pytest.raises(ValueError, match="lr must be set"):
        Simulate(FedAvg(lr="theory"), problem)
    with pytest.raises(ValueError, match="FedRecu needs every client"):
        Simulate(FedRecu(lr=0.1), problem, cohort=2)
    with pytest.raises(ValueError, match="epochs need mini-batches"):
        Simulate(FedAvg(lr=0.1), least_squares(), epochs=2)


def test_mini_batches_are_drawn_without_replacement_and_shared_by_engines():
    problem = least_squares()
    engine = Simulate(FedAvg(lr=0.1), problem, batch=3)
    (batch,) = engine.batches.draw([0, 4], round=2, step=1)
    assert batch.shape == (2, 3)
    assert all(len(set(row)) == 3 and max(row) < 8 for row in batch.tolist())
    assert torch.equal(batch[1], engine.batches.draw([4], round=2, step=1)[0][0])
    assert not torch.equal(batch, engine.batches.draw([0, 4], round=2, step=2)[0])
    large = Simulate(FedAvg(lr=0.1), problem, batch=10).batches.draw([1], 0, 0)[0]
    assert large.tolist() == [[*range(8)]]
    huge = Simulate(
        FedAvg(lr=0.1), problem, batch=10**10, epochs=1
    )  # takes no room for what nobody has
    assert sorted(huge.batches.draw([1], 0, 0)[0].tolist()[0]) == [*range(8)]
    whole = Simulate(FedAvg(lr=0.01), problem, batch=10, steps=2)
    plain = Simulate(FedAvg(lr=0.01), problem, steps=2)
    whole.run_round()
    plain.run_round()
    assert np.allclose(whole.x, plain.x, atol=1e-13)


def test_batches_are_drawn_at_their_own_place_of_the_stream():
    """In any order, whatever was drawn before: from (seed, round, client, step) alone."""
    problem = least_squares()
    drawn, epochs = (
        Simulate(FedAvg(lr=0.1), problem, batch=3, seed=5, **e).batches for e in ({}, {"epochs": 2})
    )
    for round, client, step in [(2, 1, 4), (0, 0, 0), (2, 1, 5), (2, 1, 1), (2, 3, 4), (1, 1, 5)]:
        want = Streams(5).at("batches", round, client, step).choice(8, 3, replace=False)
        assert drawn.draw([client], round, step)[0][0].tolist() == want.tolist()
        epoch, place = divmod(step, 3)
        order = (
            Streams(5)
            .at("batches", round, client, epoch)
            .permutation(8)[3 * place : 3 * place + 3]
            .tolist()
        )
        assert epochs.draw([client], round, step)[0][0].tolist() == order + [-1] * (3 - len(order))


def test_a_phase_of_one_client_stays_one_in_a_full_federation():
    """Its local steps and their mean are that client's."""
    seen = []

    class Lonely(Toy, abstract=True):
        who = "one"

        def merge(self, s, up, cohort):
            seen.append((cohort.members.tolist(), cohort.steps))
            return s

    machine = Simulate(Lonely(), quadratic(), steps=[1, 2, 3, 4])
    after(6, machine)
    assert all(steps == members[0] + 1 and len(members) == 1 for members, steps in seen)
    assert len({members[0] for members, _ in seen}) > 1 and machine.ledger.iterations == 24
