"""Where client states go, and when a run is refused."""

from types import SimpleNamespace

import pytest
import torch

from undrift.core.cohort import Sampling
from undrift.engines import memory as room
from undrift.engines.memory import SPARE, WORK, NoRoom, plan
from undrift.methods import CELGD, FedAvg, FedDC, Scaffold

GB = 10**9
MODEL = GB // 100
SCAFFOLD = Scaffold(lr=0.1)


def problem(device="cuda", clients=100, remembers=False, dtype=torch.float32):
    """A model of 10 MB in single precision."""
    dim = MODEL // dtype.itemsize
    return SimpleNamespace(
        dim=dim,
        clients=clients,
        remembers=remembers,
        dtype=dtype,
        device=torch.device(device),
        samples=[1] * clients,
    )


@pytest.fixture
def free(monkeypatch):
    """Bytes that are free, by place."""
    sizes = {"device": 100 * GB, "host": 100 * GB, "file": 100 * GB}
    monkeypatch.setattr(room, "free", lambda place, device: sizes[place])
    monkeypatch.setattr(room, "folder", lambda: "/scratch")
    return sizes


def test_what_a_run_needs(free):
    needs = plan(SCAFFOLD, problem(), Sampling(10))
    assert (needs.vectors, needs.model, needs.states, needs.work) == (
        1,
        MODEL,
        100 * MODEL,
        10 * WORK * MODEL,
    )
    assert (needs.place, needs.free) == ("device", 100 * GB)
    assert plan(FedDC(lr=0.1), problem(remembers=True), Sampling(10)).states == 3 * 100 * MODEL
    assert plan(FedAvg(lr=0.1), problem(), Sampling(10)).states == 0


def test_the_first_place_with_room(free):
    """States of 1 GB and a cohort at work of 1.2 GB; a tenth of what is free is left alone."""
    need = (100 + 10 * WORK) * MODEL / (1 - SPARE)
    free["device"] = need + 1
    assert plan(SCAFFOLD, problem(), Sampling(10)).place == "device"
    free["device"] = need - 10
    assert plan(SCAFFOLD, problem(), Sampling(10)).place == "host"
    assert plan(SCAFFOLD, problem("cpu"), Sampling(10)).place == "file"
    free["host"] = GB
    assert plan(SCAFFOLD, problem(), Sampling(10)).place == "file"
    assert plan(SCAFFOLD, problem(), Sampling(10), "host").place == "host"
    assert plan(SCAFFOLD, problem(), Sampling(10), "device").place == "device"


def test_states_of_clients_at_work_are_on_the_device(free):
    """No other place saves anything where everyone takes part."""
    free["device"] = 5 * GB
    assert plan(SCAFFOLD, problem(), Sampling(100)).place == "device"
    free["device"] = 3.9 * GB  # 1 GB of states, and of new ones, iterates and gradients
    with pytest.raises(NoRoom, match=r"takes 1\.0 GB, but 3\.9 GB are free on the GPU"):
        plan(SCAFFOLD, problem(), Sampling(100))


def test_what_does_not_fit_anywhere_is_refused_with_every_place(free):
    free |= {"device": 1.1 * GB, "host": GB, "file": 0.5 * GB}
    with pytest.raises(NoRoom) as refused:
        plan(SCAFFOLD, problem(), Sampling(10))
    for words in (
        "what 100 clients remember takes 1.0 GB",
        "1.1 GB are free on the GPU, 1.0 GB are free in memory",
        "0.5 GB are free in /scratch",
    ):  # fmt: skip
        assert words in str(refused.value)
    free["device"] = 1.5 * GB
    with pytest.raises(NoRoom):
        plan(SCAFFOLD, problem(), Sampling(10))
    assert plan(SCAFFOLD, problem(), Sampling(10), "device").place == "device"


@pytest.mark.parametrize("place", ["device", "host", "file"])
def test_a_place_that_is_asked_for_is_the_only_one(free, place):
    free[place] = 0.9 * GB
    with pytest.raises(NoRoom) as refused:
        plan(SCAFFOLD, problem(), Sampling(10), place)
    assert str(refused.value).count("free") == 1


def test_a_cohort_that_cannot_work_is_refused(free):
    free["device"] = 0.3 * GB
    with pytest.raises(NoRoom, match=r"10 clients at work need at least 0\.3 GB.*smaller cohort"):
        plan(SCAFFOLD, problem(), Sampling(10), "file")
    assert plan(SCAFFOLD, problem(), Sampling(9), "file").place == "file"


def test_phases_of_everyone_count_everyone(free):
    class All(Scaffold, abstract=True):
        who = "all"

    assert plan(All(lr=0.1), problem(), Sampling(10)).work == 100 * WORK * MODEL
    assert plan(CELGD(lr=0.1), problem(), Sampling(100)).work == 100 * WORK * MODEL


def test_small_runs_do_not_look(monkeypatch):
    monkeypatch.setattr(room, "free", lambda *_: pytest.fail("looked"))
    tiny = SimpleNamespace(
        dim=5, clients=4, remembers=False, dtype=torch.float64, device=torch.device("cpu")
    )
    needs = plan(SCAFFOLD, tiny, Sampling(2))
    assert (needs.place, needs.free, needs.states) == ("device", None, 4 * 5 * 8)


def test_free_is_what_the_machine_and_its_container_say(tmp_path, monkeypatch):
    everything = room.free("device", torch.device("cpu"))
    assert 0 < everything == pytest.approx(room._memory(), rel=0.2)
    for name, text in (
        ("memory.max", "5000"),
        ("memory.current", "4000"),
        ("memory.stat", "anon 1\ninactive_file 700\n"),
    ):
        (tmp_path / name).write_text(text)
    monkeypatch.setattr(room, "GROUPS", [(str(tmp_path), "memory.max", "memory.current")])
    assert room._memory() == 1700
    (tmp_path / "memory.max").write_text("max\n")
    assert room._memory() > 1e6
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    assert room.folder() == str(tmp_path) and room.free("file", torch.device("cpu")) > 0
    monkeypatch.delenv("TMPDIR")
    assert room.folder() != str(tmp_path)


def test_unknown_places_are_refused(free):
    with pytest.raises(ValueError, match="store = 'disk' is not allowed: auto, device, host, file"):
        plan(SCAFFOLD, problem(), Sampling(10), "disk")
    with pytest.raises(ValueError, match="store = 'host' is not allowed: auto, device, file"):
        plan(SCAFFOLD, problem("cpu"), Sampling(10), "host")
