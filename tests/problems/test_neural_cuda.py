"""The captured GPU path against the reference on the CPU."""

import subprocess
import sys

import pytest
import torch

from undrift.core.streams import Streams
from undrift.data.augment import Augmentation, Normalise, Pipeline
from undrift.data.images import load_images
from undrift.data.partition import dirichlet
from undrift.engines import Simulate, Wire
from undrift.methods import FedAvg, FedRecu, FedSpeed, Scaffold
from undrift.models import build
from undrift.problems.neural import Neural

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device here")
METHODS = [FedAvg(lr=0.1), FedSpeed(lr=0.1, server_dual="all"), Scaffold(lr=0.1)]


def problem(**options):
    data = load_images("digits")
    parts = dirichlet(data.labels.numpy(), 6, Streams(0).at("data"), 0.5)
    pipeline = Pipeline(Augmentation(padding=1, flip=True, rotation=10), Normalise((0.3,), (0.4,)))
    return Neural(build("cnn-small", 1, 8, 10), data, parts, pipeline=pipeline, **options)


@pytest.mark.parametrize(("compiled", "scope"), [(False, "reference"), (True, "reference"), (True, "whole")])
@pytest.mark.parametrize("method", METHODS, ids=lambda m: type(m).__name__)
def test_captured_follows_wire_in_double_precision(method, compiled, scope):
    setting = {"steps": 3, "batch": 8, "cohort": 4, "weight_decay": 1e-3, "clip": 10.0, "clip_scope": scope}
    fast = Simulate(method, problem(compiled=compiled).to(torch.float64, torch.device("cuda")), **setting)
    slow = Wire(method, problem().to(torch.float64, torch.device("cpu")), **setting)
    for _ in range(5):
        fast.run_round()
        slow.run_round()
    assert fast.problem._captured and all(fast.problem._captured.values())
    assert float((fast.x.cpu() - slow.x).abs().max()) < 1e-10


def test_single_precision_stays_near_the_cpu():
    gpu = Simulate(FedRecu(lr=0.05), problem().to(torch.float32, torch.device("cuda")), steps=4, batch=16)
    cpu = Simulate(FedRecu(lr=0.05), problem().to(torch.float32, torch.device("cpu")), steps=4, batch=16)
    for _ in range(20):
        gpu.run_round()
        cpu.run_round()
    assert float((gpu.x.cpu() - cpu.x).norm() / cpu.x.norm()) < 1e-3  # 2.6e-4 on an H200: rounding grows in 80 steps


def test_memory_is_flat():
    engine = Simulate(Scaffold(lr=0.1), problem().to(torch.float32, torch.device("cuda")), epochs=1, batch=32, cohort=3)
    for _ in range(5):
        engine.run_round()
    before = torch.cuda.memory_allocated()
    for _ in range(30):
        engine.run_round()
    assert torch.cuda.memory_allocated() <= before * 1.05 + 2**20


def test_deterministic_runs_are_bit_equal():
    code = (
        "from undrift.runs.environment import deterministic; deterministic()\n"
        "import torch\n"
        "from tests.problems.test_neural_cuda import problem\n"
        "from undrift.engines import Simulate\n"
        "from undrift.methods import Scaffold\n"
        "ends = []\n"
        "for _ in range(2):\n"
        "    task = problem(precision='bf16').to(torch.float32, torch.device('cuda'))\n"
        "    engine = Simulate(Scaffold(lr=0.1), task, epochs=1, batch=32, cohort=3)\n"
        "    for _ in range(5):\n"
        "        engine.run_round()\n"
        "    assert {captured.way for captured in task._captured.values()} == {'stacked'}\n"
        "    ends.append(engine.x)\n"
        "print(bool((ends[0] == ends[1]).all()))\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=300)
    assert done.stdout.split() == ["True"], done.stderr[-2000:]
