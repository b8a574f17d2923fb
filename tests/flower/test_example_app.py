"""The app of docs/flower-app.md: on SuperNodes of Flower's, in its simulation, in this process."""

import json
import os
import subprocess
import time
import tomllib
from contextlib import ExitStack
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path

import pytest
import torch

pytest.importorskip("flwr", reason="flwr is not installed: pip install undrift[flower]")

from flwr.app import Context, RecordDict
from safetensors.torch import load_file
from torch.nn import functional as F

import undrift as ud
from tests.docs.test_blocks import parts
from tests.flower.own_app import InProcess
from undrift.engines import Simulate
from undrift.federate.session import SuperLinkAddress, free_port
from undrift.federate.supervise import Process
from undrift.flower.compat import environment as flower_environment
from undrift.flower.compat import tool, write_connection
from undrift.methods import Scaffold

PAGE = Path(__file__).parents[2] / "docs/flower-app.md"
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


@pytest.fixture
def app(tmp_path):
    """The folder of the app, with the two files of the page."""
    folder = tmp_path / "mine"
    folder.mkdir()
    for part in parts(PAGE):
        if part.word == "file":
            (folder / part.about).write_text(part.code, encoding="utf-8")
    return folder


def loaded(app):
    """The app as a module."""
    found = spec_from_file_location("example_app", app / "app.py")
    module = module_from_spec(found)
    found.loader.exec_module(module)
    return module


def assert_simulates(example, clients, rounds, saved):
    """The saved weights are those of the same run by the engine ``simulate``."""
    data = [*map(example.samples, range(clients))]
    together = ud.Neural(example.network(), data, loss=F.cross_entropy)
    first = torch.nn.utils.parameters_to_vector(example.network().parameters()).detach()
    near = Simulate(Scaffold(lr=0.1), together, steps=5, batch=16, x0=first)
    for _ in range(rounds):
        near.run_round()
    net = example.network()
    net.load_state_dict(load_file(saved))
    x = torch.nn.utils.parameters_to_vector(net.parameters()).detach()
    assert float((x - near.x).norm() / near.x.norm()) < 1e-6


@pytest.mark.usefixtures("task", "no_waiting")
def test_the_app_of_the_page(app):
    example, saved = loaded(app), app / "model.safetensors"
    config = tomllib.loads((app / "pyproject.toml").read_text(encoding="utf-8"))
    config = config["tool"]["flwr"]["app"]["config"] | {"save": str(saved)}
    grid = InProcess([example.client] * config["clients"])
    example.server(grid, Context(1, 0, {}, RecordDict(), config))
    assert_simulates(example, config["clients"], config["rounds"], saved)


@pytest.mark.slow
@pytest.mark.parametrize(("clients", "simulated"), [(2, False), (3, True)])
def test_the_app_is_what_simulate_computes(clients, simulated, app, tmp_path):
    if simulated:
        pytest.importorskip("ray", reason="ray is not installed: pip install undrift[simulation]")
    saved = tmp_path / "model.safetensors"
    with ExitStack() as stack:
        if simulated:
            environment = flower(tmp_path, stack, "--simulation")
        else:
            environment = flower(tmp_path, stack, nodes=clients)
        command = [tool("flwr"), "run", str(app), "undrift", "--format", "json", "--run-config"]
        command += [f"clients={clients} rounds=2 save='{saved}'"]
        command += ["--federation-config", f"num-supernodes={clients}"] if simulated else []
        run = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60)
        assert json.loads(run.stdout)["success"], run.stdout + run.stderr
        until = time.monotonic() + PATIENCE
        while not saved.exists() and time.monotonic() < until:
            time.sleep(0.2)
        logs = "\n".join(path.read_text(encoding="utf-8") for path in tmp_path.glob("*.log"))
        assert saved.exists(), logs[-5000:]
        time.sleep(0.5)  # until it is whole
    assert_simulates(loaded(app), clients, 2, saved)
