"""With many clients and small cohorts, memory is what the clients that took part remember, and it
does not grow.
"""

import json
import os
import subprocess
import sys

import pytest

CODE = """
import gc, json, resource, tempfile, torch
from pathlib import Path
from undrift.core import Oracle, Problem
from undrift.engines import Simulate
from undrift.methods import FedAvg, FedDC, Scaffold
from undrift.engines import checkpoint

class Centres(Oracle):
    def __init__(self, members):
        self.centres = torch.as_tensor(members).to(torch.float64).unsqueeze(1)
    def grad(self, y, batch=None):
        return y - self.centres

class Many(Problem):
    clients, dim, samples = 1000, 4000, [1] * 1000
    dtype, device = torch.float64, torch.device("cpu")
    def at(self, members=None):
        return Centres(members)
    def metrics(self, x):
        return {"loss": float(x.square().sum())}
    def to(self, dtype, device):
        return self

def held():
    gc.collect()
    lines = dict(line.split(":") for line in open("/proc/self/status"))
    return int(lines["RssAnon"].split()[0]) / 1000

def peak():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1000

torch.set_num_threads(1)
found = []
for method, store in ((FedAvg, "auto"), (Scaffold, "auto"), (FedDC, "auto"), (FedDC, "file")):
    grown, before = [], held()
    engine = Simulate(method(lr=0.1), Many(), steps=1, cohort=10, store=store)
    for rounds in (2, 20, 700, 1400):
        while engine.round < rounds:
            engine.run_round()
        grown.append(held() - before)
    before = peak()
    with tempfile.TemporaryDirectory() as folder:
        checkpoint.store(engine, Path(folder) / "state", "run")
    found.append([*grown, peak() - before])
    del engine
print(json.dumps(found))
"""
VECTOR = 1000 * 4000 * 8 / 1e6
"""One vector of every client: 32 MB."""


@pytest.mark.whole
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="memory is read from /proc")
def test_memory_follows_the_declared_state(tmp_path):
    environment = {**os.environ, "TMPDIR": str(tmp_path)}
    result = subprocess.run(
        [sys.executable, "-c", CODE], capture_output=True, text=True, check=True, env=environment
    )
    room = 0.3 * VECTOR  # the cohort's own vectors, and what Python and torch load
    for vectors, (few, some, most, all_rounds, writing) in zip(
        (0, 1, 2, 0), json.loads(result.stdout), strict=True
    ):
        assert few < room
        assert some < 0.2 * vectors * VECTOR + room  # at most 200 of the 1000 clients took part
        assert 0.9 * vectors * VECTOR < most + room / 2 and most < vectors * VECTOR + room
        assert abs(all_rounds - most) < 0.2 * VECTOR  # what malloc keeps for itself comes and goes
        assert (
            writing < room or vectors == 0
        )  # pages of a file count as long as there is memory for them
