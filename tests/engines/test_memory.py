"""With many clients and small cohorts, memory is what the method declares."""

import json
import subprocess
import sys

CODE = """
import gc, json, torch
from undrift.core import Oracle, Problem
from undrift.engines import Simulate
from undrift.methods import FedAvg, FedDC, Scaffold

class Centres(Oracle):
    def __init__(self, members):
        self.centres = torch.as_tensor(members).to(torch.float64).unsqueeze(1)
    def grad(self, y, batch=None):
        return y - self.centres

class Many(Problem):
    clients, dim, samples = 1000, 10_000, [1] * 1000
    dtype, device = torch.float64, torch.device("cpu")
    def at(self, members=None):
        return Centres(members)
    def metrics(self, x):
        return {"loss": float(x.square().sum())}
    def to(self, dtype, device):
        return self

def resident():
    gc.collect()
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * 4096 / 1e6

found = {}
for method in (FedAvg(lr=0.1), Scaffold(lr=0.1), FedDC(lr=0.1)):
    before = resident()
    engine = Simulate(method, Many(), steps=2, cohort=10)
    for _ in range(20):
        engine.run_round()
    found[type(method).__name__] = resident() - before
    del engine
print(json.dumps(found))
"""


def test_memory_follows_the_declared_state():
    if not sys.platform.startswith("linux"):
        import pytest

        pytest.skip("resident memory is read from /proc")
    result = subprocess.run([sys.executable, "-c", CODE], capture_output=True, text=True, check=True)
    grown = json.loads(result.stdout)
    vector = 1000 * 10_000 * 8 / 1e6  # one vector of every client: 80 MB
    assert grown["FedAvg"] < 0.3 * vector
    assert 0.9 * vector < grown["Scaffold"] < 1.4 * vector
    assert 1.9 * vector < grown["FedDC"] < 2.4 * vector
