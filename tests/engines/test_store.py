"""Where the clients' vectors are kept changes nothing but memory."""

import errno
import os

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from tests.rounds import after

from undrift.check.federations import example, least_squares, uneven
from undrift.core import registry
from undrift.core.params import BadParameters
from undrift.engines import Simulate, Wire, checkpoint
from undrift.engines import store as stores
from undrift.engines.site import WRITTEN
from undrift.engines.store import FileStore, Store
from undrift.methods import CELGD, FedDC, FedDyn, FedRecu, FedSpeed, MimeMVR, Scaffold
from undrift.runs.api import prepare

PROBLEM = least_squares()
METHODS = [Scaffold, FedDyn, FedSpeed, FedDC, MimeMVR, CELGD, FedRecu]
"""Partial cohorts; phases with scratch vectors; phases of one client; full cohorts."""
each = pytest.mark.parametrize("cls", METHODS, ids=lambda cls: cls.__name__)


@pytest.fixture(autouse=True)
def place(tmp_path, monkeypatch):
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    return tmp_path


def engine(cls, store, kind=Simulate, **options):
    method = example(cls, PROBLEM.constants)
    setting = {**uneven(method, PROBLEM.clients), "batch": 3, "seed": 4, **options}
    return kind(method, PROBLEM, **setting, **({"store": store} if kind is Simulate else {}))


def same(one, other):
    (mine, bill), (theirs, other_bill) = one.snapshot(), other.snapshot()
    assert mine.keys() == theirs.keys() and bill == other_bill and one.drift == other.drift
    for name in mine:
        assert torch.equal(mine[name], theirs[name]), name


@pytest.mark.covering(12)
@pytest.mark.parametrize("name", sorted(registry))
def test_every_place_gives_the_same_numbers(name):
    cls = registry[name]
    options = {"batch": None} if cls.solves else {}
    device, apart, wire = (engine(cls, store, kind, **options) for store, kind in
                           (("device", Simulate), ("file", Simulate), ("", Wire)))  # fmt: skip
    assert type(device.store) is Store and isinstance(apart.store, FileStore) == bool(
        device.memory.states
    )
    while device.round < 12:
        device.run_round()
        apart.run_round()
        same(device, apart)
    while wire.round < 12:
        wire.run_round()
    assert torch.allclose(apart.x, wire.x, rtol=1e-10, atol=1e-12)


@each
@pytest.mark.parametrize(
    "places", [("device", "file"), ("file", "device"), ("file", "file")], ids="-".join
)
def test_a_run_goes_on_anywhere(cls, places, place):
    whole = engine(cls, "device")
    first = engine(cls, places[0])
    for _ in range(4):
        first.run_round()
        checkpoint.store(first, place / "state", "run")
        second = engine(cls, places[1])
        second.run_round()  # what it held before is forgotten
        checkpoint.restore(second, place / "state", "run")
        after(2, second)
    while whole.round < second.round:
        whole.run_round()
    same(whole, second)


@each
@pytest.mark.parametrize("where", ["device", "file"])
def test_nothing_handed_out_is_written_to_later(cls, where):
    machine, seen = engine(cls, where), []

    def remember(tensors):
        seen.extend((v, v.clone()) for v in tensors)

    gather, scatter = machine.store.gather, machine.store.scatter

    def gathering(*given):
        rows = gather(*given)
        remember(rows.values())
        return rows

    def scattering(members, rows):
        remember(rows.values())
        scatter(members, rows)

    machine.store.gather, machine.store.scatter = gathering, scattering
    for _ in range(12):
        machine.run_round()
        remember(machine.snapshot()[0].values())
        remember(v for _, v in machine.clients.items())
    assert len(seen) > 24 and all(torch.equal(v, copy) for v, copy in seen)


@pytest.mark.parametrize("kind", ["device", "file"])
def test_any_sequence_of_cohorts(kind, place):
    """Against an array per vector; whoever was expected may not come, and a cohort may renew some
    vectors only.
    """
    rng, n, d = np.random.default_rng(0), 6, 3
    start = {"a": torch.zeros(d), "b": torch.arange(1.0, d + 1)}
    store = Store(start, n) if kind == "device" else FileStore(start, n, str(place))
    truth = {name: v.repeat(n, 1) for name, v in start.items()}
    out = []

    def handed(tensors):
        out.extend((v, v.clone()) for v in tensors.values())
        return tensors

    def cohort():
        return np.sort(rng.choice(n, rng.integers(1, 5), replace=False))

    following = cohort()
    for _ in range(400):
        members = None if rng.random() < 0.1 else following if rng.random() < 0.6 else cohort()
        ahead = rng.random() < 0.7
        following = cohort() if ahead else following
        rows = handed(store.gather(members, (lambda who=following: who) if ahead else None))
        who = np.arange(n) if members is None else members
        assert all(torch.equal(rows[name], truth[name][who]) for name in start)
        if rng.random() < 0.8:
            new = {
                name: torch.from_numpy(rng.normal(size=(len(who), d))).float()
                for name in start
                if rng.random() < 0.7
            }
            store.scatter(members, handed(new))
            for name in new:
                truth[name][who] = new[name]
        if rng.random() < 0.1:
            truth = {
                name: torch.where(torch.from_numpy(rng.random((n, 1)) < 0.5), start[name], v)
                for name, v in truth.items()
            }
            store.load(handed(dict(truth)))
            truth = {name: v.clone() for name, v in truth.items()}
        if rng.random() < 0.2:
            found = handed(store.gather(None))
            assert all(torch.equal(found[name], truth[name]) for name in start)
    assert all(torch.equal(v, copy) for v, copy in out)


def test_the_file_has_no_name_and_goes_with_the_engine(place):
    machine = engine(Scaffold, "file")
    machine.run_round()
    assert list(place.iterdir()) == []
    before = len(os.listdir("/proc/self/fd")) if os.path.isdir("/proc/self/fd") else None
    del machine
    assert before is None or len(os.listdir("/proc/self/fd")) < before


def full(*_):
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def test_a_full_disk_is_an_error_that_names_the_place(place, monkeypatch):
    """Without a reservation the process would die of SIGBUS."""
    monkeypatch.setattr("os.posix_fallocate", full)
    with pytest.raises(OSError, match="No space left") as raised:
        engine(Scaffold, "file")
    assert raised.value.filename == str(place)


@pytest.mark.parametrize("where", ["device", "file"])
@pytest.mark.parametrize("block", [1, 100, 2**28])
def test_a_checkpoint_is_written_in_blocks(where, block, place, monkeypatch):
    monkeypatch.setattr(stores, "BLOCK", block)
    machine = engine(FedDC, where)
    machine.run_round()
    sizes = [len(part) for part in machine.snapshot(whole=False)[0]["client.h"]]
    taken = machine.clock.at(0, 0).cohort.members.tolist()
    assert sum(sizes) == len(taken) < PROBLEM.clients and (max(sizes) == 1) == (block < 100)
    checkpoint.store(machine, place / "state", "run")
    written = load_file(place / "state")
    tensors = machine.snapshot()[0]
    assert written.pop(WRITTEN).tolist() == taken
    assert written.keys() == tensors.keys()
    for name, v in tensors.items():
        assert torch.equal(written[name], v[taken] if name.startswith("client.") else v)


@pytest.mark.parametrize("one", ["device", "file", Wire])
@pytest.mark.parametrize("other", ["device", "file", Wire])
def test_a_checkpoint_has_only_clients_that_took_part(one, other, place):
    """Of 400, at most two; where it is continued everything is as if it had not been broken off."""
    many = least_squares(clients=400, rows=4, dim=3)

    def made(where):
        kind = Simulate if isinstance(where, str) else Wire
        options = {"store": where} if kind is Simulate else {}
        return kind(Scaffold(lr=0.05), many, steps=2, batch=2, cohort=1, **options)

    first, second, whole = made(one), made(other), made(other)
    after(2, first, whole)
    checkpoint.store(first, place / "state", "run")
    assert (place / "state").stat().st_size < 2000
    taken = sorted({first.clock.at(k, 0).cohort.members.item() for k in range(2)})
    assert load_file(place / "state")[WRITTEN].tolist() == taken
    for _ in range(5):  # what others have done by then is undone
        second.run_round()
    checkpoint.restore(second, place / "state", "run")
    after(3, second, whole)
    (mine, bill), (theirs, other_bill) = second.snapshot(), whole.snapshot()
    assert bill == other_bill
    for name, v in mine.items():
        if (one is Wire) == (other is Wire):
            assert torch.equal(v, theirs[name])
        assert torch.allclose(v, theirs[name], rtol=0, atol=1e-13)


def test_numbers_of_two_sizes_are_aligned(place):
    single = least_squares(clients=5, dim=3).to(torch.float32, torch.device("cpu"))
    machine = Simulate(Scaffold(lr=0.1), single, steps=2, cohort=3)
    machine.run_round()
    checkpoint.store(machine, place / "state", "run")
    written = load_file(place / "state")
    assert {v.dtype for v in written.values()} == {torch.float32, torch.int64}
    assert torch.equal(written["server.x"], machine.x)


def test_a_checkpoint_makes_no_second_copy(place):
    machine = engine(Scaffold, "device")
    machine.run_round()
    kept = machine.store._all["c"].data_ptr()
    for _ in range(2):
        checkpoint.store(machine, place / "state", "run")
        machine.run_round()
    assert machine.store._all["c"].data_ptr() == kept
    machine.snapshot()
    machine.run_round()
    assert machine.store._all["c"].data_ptr() != kept


def test_the_place_is_an_argument_of_prepare():
    machine = prepare(Scaffold(lr=0.1), PROBLEM, cohort=2, engine={"store": "file"})
    assert machine.memory.place == "file" and isinstance(machine.store, FileStore)
    assert prepare(Scaffold(lr=0.1), PROBLEM, cohort=2).memory.place == "device"
    with pytest.raises(BadParameters) as caught:
        prepare(Scaffold(lr=0.1), PROBLEM, engine={"name": "wire", "store": "file"})
    assert set(caught.value.problems) == {"engine.store"}
    with pytest.raises(ValueError, match="auto, device, file"):
        prepare(Scaffold(lr=0.1), PROBLEM, engine={"store": "host"})
