import time
import tracemalloc

import numpy as np
import pytest
import torch

from undrift.check.federations import example, least_squares
from undrift.engines import Simulate
from undrift.engines.checkpoint import BadCheckpoint, Shelf, restore, store
from undrift.methods import FedRed, Scaffold


@pytest.fixture
def saved(tmp_path):
    problem = least_squares()
    engine = Simulate(example(FedRed, problem.constants), problem)
    engine.run_round()
    file = tmp_path / "state.safetensors"
    store(engine, file, "run-1")
    return engine, file


def fresh(engine):
    return Simulate(engine.method, engine.problem)


def test_every_damage_is_detected(saved):
    engine, file = saved
    content = file.read_bytes()
    rng = np.random.default_rng(0)
    undetected = 0
    for _ in range(2000):
        broken = bytearray(content)
        broken[rng.integers(len(broken))] ^= 1 << rng.integers(8)
        file.write_bytes(broken)
        try:
            restore(fresh(engine), file, "run-1")
            undetected += 1
        except BadCheckpoint:
            pass
    assert undetected == 0
    for length in rng.integers(0, len(content), 50):
        file.write_bytes(content[:length])
        with pytest.raises(BadCheckpoint):
            restore(fresh(engine), file, "run-1")


def test_another_run_or_another_method_is_refused(saved):
    engine, file = saved
    with pytest.raises(BadCheckpoint, match="another run"):
        restore(fresh(engine), file, "run-2")
    other = Simulate(example(Scaffold, engine.problem.constants), engine.problem)
    with pytest.raises(BadCheckpoint, match=r"not those of Scaffold.*; continue.*; remove it"):
        restore(other, file, "run-1")


@pytest.mark.parametrize("name", ["server.x", "client_members"])
@pytest.mark.parametrize(
    "change",
    [lambda v: v[:-1], lambda v: v.float(), lambda v: v.unsqueeze(0), lambda v: v.flip(0)[:2] - 9],
)
def test_states_of_other_shapes_types_and_clients_are_refused(name, change):
    """They would be loaded otherwise, and fail rounds later or not at all."""
    engine = Simulate(Scaffold(lr=0.1), least_squares(), cohort=2)
    engine.run_round()
    tensors, counters = engine.snapshot(whole=False)
    tensors = {k: v if torch.is_tensor(v) else torch.cat([*v]) for k, v in tensors.items()}
    Simulate(engine.method, engine.problem).restore(tensors, counters)
    with pytest.raises(ValueError, match="not those of Scaffold"):
        fresh(engine).restore(tensors | {name: change(tensors[name])}, counters)


def test_a_failed_write_keeps_the_previous_one(saved, monkeypatch):
    engine, file = saved
    before = file.read_bytes()
    monkeypatch.setattr("os.fsync", lambda _: (_ for _ in ()).throw(OSError("disk full")))
    with pytest.raises(OSError, match="disk full"):
        store(engine, file, "run-1")
    assert file.read_bytes() == before
    assert list(file.parent.iterdir()) == [file]


def test_notes_travel_with_the_state(saved):
    engine, file = saved
    store(engine, file, "run-1", seconds=1.5, limit=float("inf"))
    assert restore(fresh(engine), file, "run-1") == {"seconds": 1.5, "limit": float("inf")}


def test_a_shelf_keeps_two_of_its_own(saved, tmp_path):
    engine, _ = saved
    mine, other = Shelf(tmp_path / "c", "1-0", "a"), Shelf(tmp_path / "c", "11-0", "b")
    other.store(engine)
    rounds = []
    for k in range(4):
        engine.run_round()
        rounds.append(engine.round)
        mine.store(engine, k=k)
    assert [round for round, _ in mine.files()] == rounds[:-3:-1]
    assert len(other.files()) == 1
    told = []
    assert mine.restore(fresh(engine), lambda _: True, told.append) == {"k": 3} and told == []
    mine.clear()
    assert mine.files() == [] and len(other.files()) == 1
    assert mine.restore(fresh(engine), lambda _: True, told.append) is None


def test_a_shelf_passes_over_what_is_not_sound(saved, tmp_path):
    engine, _ = saved
    shelf = Shelf(tmp_path / "c", "0-0", "a")
    for k in range(2):
        engine.run_round()
        shelf.store(engine, k=k)
    (last, newest), (before, _) = shelf.files()
    told = []
    twin = fresh(engine)
    assert (
        shelf.restore(twin, lambda counters: counters["round"] < last, told.append) == {"k": 0}
        and twin.round == before
    )
    assert "rows" in told.pop()
    newest.write_bytes(newest.read_bytes()[:-1])
    twin = fresh(engine)
    assert shelf.restore(twin, lambda _: True, told.append) == {"k": 0} and twin.round == before
    assert "cannot be read" in told.pop() and not told
    assert (
        Shelf(tmp_path / "c", "0-0", "b").restore(fresh(engine), lambda _: True, told.append)
        is None
    )
    assert "belongs to another run" in told[-1]


def test_a_head_made_to_fill_the_memory_is_refused_at_once(saved):
    engine, file = saved
    empty = '"%07d":{"dtype":"F64","shape":[0],"data_offsets":[0,0]}'
    heads = [
        "{" + ",".join(empty % k for k in range(400_000)) + "}",
        "[" * 1_000_000,
        '{"x":' + "9" * 1_000_000 + "}",
        '{"x":{"dtype":"F64","shape":[0,1180591620717411303424],"data_offsets":[0,0]}}',
        '{"x":{"dtype":"F64","shape":[1125899906842624],"data_offsets":[0,9007199254740992]}}',
        '{"x":{"dtype":"F64","shape":[1],"data_offsets":[0,8]},' * 2,
        '{"__metadata__":{"digest":1}}',
        '{"__metadata__":[]}',
        "7",
    ]
    for head in heads:
        file.write_bytes(len(head).to_bytes(8, "little") + head.encode())
        tracemalloc.start()
        began = time.process_time()
        with pytest.raises(BadCheckpoint):
            restore(fresh(engine), file, "run-1")
        assert time.process_time() - began < 1
        assert tracemalloc.get_traced_memory()[1] < 2**25
        tracemalloc.stop()
