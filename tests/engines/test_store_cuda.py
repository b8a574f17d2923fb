"""On a GPU: states on it, in memory beside it and in a file give the same numbers, and rows travel
while it works.
"""

import gc

import pytest
import torch
from tests.rounds import after

from undrift._device import upload
from undrift.check.federations import example, least_squares, uneven
from undrift.core import Oracle, Problem
from undrift.engines import Simulate, checkpoint
from undrift.methods import CELGD, FedDC, FedDyn, FedSpeed, MimeMVR, Scaffold

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device here")
GPU = torch.device("cuda")
METHODS = [Scaffold, FedDyn, FedSpeed, FedDC, MimeMVR, CELGD]
each = pytest.mark.parametrize("cls", METHODS, ids=lambda cls: cls.__name__)


class Centres(Oracle):
    def __init__(self, members):
        self.centres = upload(members, GPU).to(torch.float32).unsqueeze(1)

    def grad(self, y, batch=None):
        for _ in range(20):  # work enough for rows to travel meanwhile
            y = y.sin()
        return y - self.centres / 50


class Large(Problem):
    """Rows of 8 MB."""

    clients, dim, samples = 50, 2_000_000, [1] * 50
    dtype, device = torch.float32, GPU

    def at(self, members=None):
        return Centres(members)

    def metrics(self, x):
        return {"loss": float(x.square().sum())}

    def to(self, dtype, device):
        return self


def same(one, other):
    (mine, bill), (theirs, other_bill) = one.snapshot(), other.snapshot()
    assert mine.keys() == theirs.keys() and bill == other_bill
    for name in mine:
        assert torch.equal(mine[name].cpu(), theirs[name].cpu()), name


@each
def test_every_place_gives_the_same_numbers(cls):
    problem = least_squares().to(torch.float64, GPU)
    method = example(cls, least_squares().constants)
    setting = {**uneven(method, problem.clients), "batch": 3, "seed": 4}
    device, host, file = (
        Simulate(method, problem, store=store, **setting) for store in ("device", "host", "file")
    )
    while device.round < 12:
        for engine in (device, host, file):
            engine.run_round()
        same(device, host)
        same(device, file)


@pytest.mark.parametrize("cls", [Scaffold, FedDyn, FedSpeed, FedDC], ids=lambda cls: cls.__name__)
@pytest.mark.parametrize("cohort", [5, 30])
def test_rows_that_travel_meanwhile_arrive_whole(cls, cohort):
    """Nobody looks at the states between rounds: a copy not ordered by events would show."""
    device, host = (
        Simulate(cls(lr=0.1), Large(), steps=3, cohort=cohort, store=store)
        for store in ("device", "host")
    )
    after(40, device)
    after(40, host)
    same(device, host)


@each
@pytest.mark.parametrize(
    "places", [("host", "device"), ("device", "host"), ("host", "file")], ids="-".join
)
def test_a_run_goes_on_anywhere(cls, places, tmp_path):
    problem = least_squares().to(torch.float64, GPU)
    method = example(cls, least_squares().constants)
    setting = {**uneven(method, problem.clients), "batch": 3}
    whole, first = (
        Simulate(method, problem, store=store, **setting) for store in ("device", places[0])
    )
    for _ in range(3):
        first.run_round()
        checkpoint.store(first, tmp_path / "state", "run")
        second = Simulate(method, problem, store=places[1], **setting)
        second.run_round()
        checkpoint.restore(second, tmp_path / "state", "run")
        after(2, second)
    while whole.round < second.round:
        whole.run_round()
    same(whole, second)


@pytest.mark.parametrize("store", ["device", "host"])
def test_the_host_waits_for_nothing_but_the_judgement(store, monkeypatch):
    engine = Simulate(FedDC(lr=0.1), Large(), steps=3, cohort=5, store=store)
    engine.judge = lambda order, down, work: {}
    monkeypatch.setattr(engine, "_check_server", lambda order, server: None)
    after(3, engine)
    torch.cuda.synchronize()
    torch.cuda.set_sync_debug_mode("error")
    try:
        after(5, engine)
    finally:
        torch.cuda.set_sync_debug_mode("default")


@pytest.mark.parametrize("store", ["device", "host", "file"])
def test_memory_stays_flat(store):
    gc.collect()
    before, used = torch.cuda.memory_allocated(), []
    engine = Simulate(FedDC(lr=0.1), Large(), steps=1, cohort=5, store=store)
    for _ in range(4):
        after(50, engine)
        torch.cuda.synchronize()
        gc.collect()
        used.append((torch.cuda.memory_allocated() - before, torch.cuda.memory_reserved()))
    for _, first, *_, last in zip(*used, strict=True):
        assert last <= first + 2**25
    states = 2 * Large.clients * 4 * Large.dim
    assert used[-1][0] > states if store == "device" else used[-1][0] < states / 2


def test_memory_beside_the_gpu_is_given_back():
    engine = Simulate(Scaffold(lr=0.1), Large(), steps=1, cohort=5, store="host")
    engine.run_round()
    block = engine.store._block
    assert block.is_pinned()
    del engine
    gc.collect()
    assert not block.is_pinned()
