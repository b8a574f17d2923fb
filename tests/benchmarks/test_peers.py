"""The contenders of the speed comparison train the same model: undrift and the plain loop, on the
same draws.
"""

import dataclasses
import sys

import numpy as np
import pytest
import torch
from benchmarks.peers import compare, contestants, measure, report
from benchmarks.peers.contenders import plain, undrift
from benchmarks.peers.contestants import CONTESTANTS, HERE, Contestant
from benchmarks.peers.torch_parts import load, network, tensors, weights_of
from benchmarks.peers.workloads import WORKLOADS
from torch.nn.functional import cross_entropy

from undrift.models import build

SMALL = {
    "logistic": dataclasses.replace(
        WORKLOADS["logistic"], clients=12, cohort=5, samples=9, batch=9
    ),
    "mlp": dataclasses.replace(
        WORKLOADS["mlp"], clients=5, cohort=3, samples=22, batch=10, epochs=2
    ),
    "cnn": dataclasses.replace(WORKLOADS["cnn"], clients=4, cohort=2, samples=10, batch=5),
}
linux = pytest.mark.skipif(sys.platform != "linux", reason="taskset and /proc")
small = pytest.mark.parametrize("workload", SMALL.values(), ids=SMALL)


@pytest.fixture(autouse=True, scope="module")
def one_thread():
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@small
def test_undrift_and_the_plain_loop_compute_the_same(workload):
    engine, net, data = undrift.engine(workload), network(workload), workload.data()
    for number in range(3):
        members = engine.cohort.draw(engine.streams, number, workload.clients).members
        orders = [
            [
                engine.streams.at("batches", number, k, e).permutation(workload.samples)
                for e in range(workload.epochs)
            ]
            for k in members
        ]
        plain.play(net, workload, data, zip(members.tolist(), orders, strict=True))
        engine.run_round()
    assert not np.allclose(weights_of(net)[0], workload.start()[0], atol=1e-3)
    for ours, theirs in zip(undrift.weights_of(engine.x, workload), weights_of(net), strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-3, atol=2e-5)


@small
def test_the_loss_is_that_of_the_network(workload):
    x, y = workload.data()
    x, y = x[:2].reshape(-1, *workload.shape), y[:2].reshape(-1)
    with torch.no_grad():
        samples, labels = tensors(x, y)
        want = float(cross_entropy(network(workload)(samples), labels))
    assert workload.loss(workload.start(), x, y) == pytest.approx(want, rel=1e-5)


def test_the_convolutional_network_is_undrifts():
    theirs, ours = network(WORKLOADS["cnn"]), build("cnn", channels=3, size=32, classes=10)
    load(theirs, weights_of(ours))
    x = torch.rand(2, 3, 32, 32, generator=torch.Generator().manual_seed(0))
    torch.testing.assert_close(theirs(x), ours(x))


@small
def test_data_and_start_depend_on_nothing(workload):
    for first, second in zip(
        (*workload.data(), *workload.start()), (*workload.data(), *workload.start()), strict=True
    ):
        np.testing.assert_array_equal(first, second)


def answered(seconds, loss=1.0, memory=100.0):
    return {"seconds": seconds, "loss": loss, "memory": memory, "versions": {"python": "3"}}


def test_medians_leave_the_first_rounds_out_and_ratios_stay_within_a_setting():
    given = {
        ("mlp", 1, "plain"): [answered([9.0, 2.0, 4.0]), answered([7.0, 3.0, 8.0], memory=300.0)],
        ("mlp", 1, "undrift"): [answered([1.0, 0.5, 0.5], loss=1.2)],
        ("mlp", 2, "plain"): [answered([1.0, 100.0])],
    }
    rows = [compare.summary(*key, answers) for key, answers in given.items()]
    for row in rows:
        compare.compared(row, rows)
    loop, ours, other = rows
    assert (loop["median"], loop["first"], loop["memory"]) == (3.5, 8.0, 300.0)
    assert (ours["to_plain"], loop["to_undrift"], other["to_undrift"]) == (0.5 / 3.5, 7.0, None)
    assert (loop["apart"], ours["apart"]) == (False, True)
    machine = {"processor": "P", "cores": 2, "load_before": 0.1}
    result = {"taken": "2026-01-01", "commit": "c", "minutes": 1, "machine": machine, "rows": rows,
              "workloads": {"mlp": "an MLP"}, "failures": [{"what": "X", "why": "no"}]}  # fmt: skip
    text = report.table(result)
    assert "| plain PyTorch | 3.5 | 2 to 8 | 1.00x | 7.00x | 8 | 300 | 1.000 |" in text
    assert "1.200 (apart)" in text
    assert "- X: no" in text


@linux
def test_a_process_that_fails_or_hangs_says_so():
    with pytest.raises(measure.Failed, match="exit code 3: bad luck"):
        measure.run(["sh", "-c", "echo bad luck >&2; exit 3"], cores=1, limit=60)
    with pytest.raises(measure.Failed, match=r"no answer within 0\.1 s"):
        measure.run(["sleep", "60"], cores=1, limit=0.1)


@linux
def test_memory_is_that_of_the_whole_process_tree():
    child = "import time; held = b'x' * 200_000_000; time.sleep(3)"
    line = '{"seconds": [1, 1], "loss": 1, "memory": 1, "versions": {}}'
    start = f"subprocess.run([sys.executable, '-c', {child!r}])"
    parent = f"import subprocess, sys; {start}; print({line!r})"
    answer = measure.run([str(CONTESTANTS["plain"].python), "-c", parent], cores=1, limit=60)
    assert 200 < answer["memory"] < 400


@pytest.mark.parametrize("contestant", CONTESTANTS.values(), ids=CONTESTANTS)
def test_every_contestant_has_a_script_and_exact_versions(contestant):
    assert (HERE / "contenders" / f"{contestant.name}.py").is_file()
    if not contestant.ours:
        lines = contestant.requirements.read_text().split()
        assert lines and all(line.count("==") == 1 for line in lines)


INTERPRETER = """#!/bin/sh
if [ "$2" = venv ]; then
    mkdir -p "$4/bin" && cp "$0" "$4/bin/python" && echo made by "$(basename "$0")" >> "$4/log"
else
    echo "$2 $3 with $(basename "$0")" >> "$(dirname "$0")/../log"
    echo reading the index
    echo no such version >&2
    exit "$REFUSES"
fi
"""


@pytest.fixture
def peer(tmp_path, monkeypatch):
    """One whose environment is made by an interpreter of its own."""
    contestant = Contestant("blazefl", "A peer", interpreter="python9.9t", options=("-X", "dev"))
    monkeypatch.setattr(contestants, "ROOT", tmp_path)
    monkeypatch.setattr(contestants, "ENVIRONMENTS", tmp_path / ".peers")
    monkeypatch.setitem(CONTESTANTS, "peer", contestant)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    return contestant


@pytest.fixture
def interpreter(tmp_path):
    script = tmp_path / "python9.9t"
    script.write_text(INTERPRETER, encoding="utf-8")
    script.chmod(0o755)


def test_a_peer_without_its_interpreter_is_left_out(peer, tmp_path):
    able, failures = compare.prepared(["undrift", "peer"])
    assert able == ["undrift"]
    assert [failure["what"] for failure in failures] == ["A peer"]
    assert "python9.9t" in failures[0]["why"]
    assert not (tmp_path / ".peers").exists()


@linux
@pytest.mark.usefixtures("interpreter")
def test_a_peers_environment_is_made_by_its_interpreter_once(peer, tmp_path, monkeypatch):
    monkeypatch.setenv("REFUSES", "0")
    folder = tmp_path / ".peers" / "blazefl"
    for _ in range(2):
        assert compare.prepared(["peer"]) == (["peer"], [])
        log = (folder / "log").read_text(encoding="utf-8").splitlines()
        assert log == ["made by python9.9t", "pip install with python"]
    python, *options = peer.command("mlp", 3, 1)[:3]
    assert (python, options) == (str(folder / "bin" / "python"), ["-X", "dev"])


@linux
@pytest.mark.usefixtures("interpreter")
def test_a_peer_that_cannot_be_installed_is_left_out_and_tried_again(peer, monkeypatch):
    monkeypatch.setenv("REFUSES", "1")
    able, failures = compare.prepared(["peer"])
    assert able == []
    assert failures[0]["why"].endswith("no such version")
    monkeypatch.setenv("REFUSES", "0")
    assert compare.prepared(["peer"]) == (["peer"], [])


def test_the_processor_is_named_on_every_architecture():
    arm = "Architecture:   aarch64\nVendor ID:   ARM\nModel name:      Neoverse-N1\nModel:    1\n"
    x86 = "BIOS Model name:   unknown\nModel name:   AMD EPYC 9R14 96-Core Processor\nModel: 17\n"
    assert compare.processor(arm) == "Neoverse-N1"
    assert compare.processor(x86) == "AMD EPYC 9R14 96-Core Processor"
    assert compare.processor("Model name:\nModel: 1\n") == compare.processor("") != ""
    assert compare.machine()["processor"]
