"""The example app runs on a SuperLink and SuperNodes of Flower's, and in its simulation."""

import json
import os
import subprocess
import time
from contextlib import ExitStack
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path

import pytest
import torch

pytest.importorskip("flwr", reason="flwr is not installed: pip install undrift[flower]")

from safetensors.torch import load_file
from torch.nn import functional as F

import undrift as ud
from undrift.engines import Simulate
from undrift.federate.session import SuperLinkAddress, free_port
from undrift.federate.supervise import Process
from undrift.flower.compat import environment as flower_environment
from undrift.flower.compat import tool, write_connection
from undrift.methods import Scaffold

APP = Path(__file__).parents[2] / "examples/flower_app"
PATIENCE = 180.0


def flower(folder, stack, *mode, nodes=0):
    """A SuperLink and its nodes, which end with the test."""
    address = SuperLinkAddress("127.0.0.1", free_port())
    environment = {**flower_environment(folder / "home"), "OMP_NUM_THREADS": "1"}
    link = [tool("flower-superlink"), "--insecure", "--host", address.host]
    link += ["--port", str(address.port), "--disable-runtime-dependency-installation", *mode]
    home = {**environment, "FLWR_HOME": str(folder / "link")}
    stack.callback(Process(link, folder / "link.log", home).end)
    until = time.monotonic() + PATIENCE
    while not address.answers():
        assert time.monotonic() < until, (folder / "link.log").read_text(encoding="utf-8")
        time.sleep(0.1)
    for part in range(nodes):
        node = [tool("flower-supernode"), "--insecure", "--superlink", address.place]
        node += ["--host", "127.0.0.1", "--port", str(free_port())]
        node += ["--node-config", f"partition-id={part} states='{folder / 'states'}'"]
        home = {**environment, "FLWR_HOME": str(folder / f"node-{part}")}
        stack.callback(Process(node, folder / f"node-{part}.log", home).end)
    write_connection(folder / "home", address.place, None)
    return {**os.environ, **environment}


def task():
    """The file of the example with its model and data."""
    found = spec_from_file_location("example_task", APP / "task.py")
    module = module_from_spec(found)
    found.loader.exec_module(module)
    return module


@pytest.mark.slow
@pytest.mark.parametrize(("clients", "simulated"), [(2, False), (3, True)])
def test_the_app_is_what_simulate_computes(clients, simulated, tmp_path):
    if simulated:
        pytest.importorskip("ray", reason="ray is not installed: pip install undrift[simulation]")
    saved = tmp_path / "model.safetensors"
    with ExitStack() as stack:
        if simulated:
            environment = flower(tmp_path, stack, "--simulation")
        else:
            environment = flower(tmp_path, stack, nodes=clients)
        command = [tool("flwr"), "run", str(APP), "undrift", "--format", "json", "--run-config"]
        command += [f"clients={clients} rounds=2 fraction-evaluate=0.0 save='{saved}'"]
        command += ["--federation-config", f"num-supernodes={clients}"] if simulated else []
        run = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60)
        assert json.loads(run.stdout)["success"], run.stdout + run.stderr
        until = time.monotonic() + PATIENCE
        while not saved.exists() and time.monotonic() < until:
            time.sleep(0.2)
        logs = "\n".join(path.read_text(encoding="utf-8") for path in tmp_path.glob("*.log"))
        assert saved.exists(), logs[-5000:]
        time.sleep(0.5)  # until it is whole
    example = task()
    torch.manual_seed(0)
    net = example.Net()
    together = ud.Neural(
        example.Net(), [*map(example.samples, range(clients))], loss=F.cross_entropy
    )
    first = torch.nn.utils.parameters_to_vector(net.parameters()).detach()
    near = Simulate(Scaffold(lr=0.1), together, steps=5, batch=16, x0=first)
    for _ in range(2):
        near.run_round()
    net.load_state_dict(load_file(saved))
    x = torch.nn.utils.parameters_to_vector(net.parameters()).detach()
    assert float((x - near.x).norm() / near.x.norm()) < 1e-6
