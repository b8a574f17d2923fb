"""Real SuperLink, ServerApp and SuperNodes on this machine, held against one process."""

import json
import time
from pathlib import Path

import pytest

pytest.importorskip("flwr", reason="flwr is not installed: pip install undrift[flower]")

from undrift.cli import main as undrift
from undrift.federate.federation import FlowerFederation
from undrift.federate.session import Session, SuperLinkAddress, free_port, local_nodes
from undrift.runs.experiment import make
from undrift.spec.reader import parse

NEAR = 1e-10
TOP = """\
name = "mine"
rounds = {rounds}
every = {rounds}
steps = 3
seed = [3]
{more}
"""
ROWS = """\
[problem]
name = "least-squares"
clients = 2
rows = 8
dim = 5
"""
DIGITS = """\
[problem]
name = "images"
data = "digits"
train = 90
test = 30
model = "mlp"
hidden = 8
clients = 2
"""
METHODS = {
    "FedRecu": (ROWS, 'lr = "theory"', "batch = 3"),
    "Scaffold": (ROWS, "lr = 0.03", "batch = 3\ncohort = 1"),
    "FedCET": (ROWS, 'lr = "theory"\nc = "theory"', ""),
    "FedRed": (ROWS, 'p = "theory"\neta = "theory"\nlam = "theory"', ""),
    "DANEPlus": (ROWS, 'lam = "theory"\nlr = "theory"\nmu = "theory"', ""),
    "FedSpeed": (DIGITS, "lr = 0.05", "batch = 8\ndtype = 'float64'"),
    "FedACG": (DIGITS, "lr = 0.05", "batch = 8\ncohort = 1\ndtype = 'float64'"),
    "FedDyn": (ROWS, "lr = 0.02\nalpha = 0.1", "batch = 3\ncohort = 1"),
    "Scaffnew": (ROWS, 'lr = "theory"\np = "theory"', ""),
    "FedAvg": (DIGITS, "lr = 0.05", "batch = 8\ndtype = 'float64'\nobjective = 'MOON'"),
}
"""Each on a problem of its own, which everybody can build; MOON on FedAvg."""


def spec(name, rounds, flags=()):
    problem, values, more = METHODS[name]
    text = TOP.format(rounds=rounds, more=more) + problem
    return parse(f'{text}\n[[method]]\nname = "{name}"\n{values}\n', "mine.toml", flags)


@pytest.fixture(scope="module")
def session(tmp_path_factory):
    folder = tmp_path_factory.mktemp("federation")
    address = SuperLinkAddress("127.0.0.1", free_port())
    with Session(folder, address, None, print) as session, local_nodes(folder, address, 2):
        session.open()
        yield session


def far(session, name, rounds):
    """The result of a run of the federation."""
    chosen = spec(name, rounds, ["engine.name=flower"])
    federation = FlowerFederation(session, chosen, print)
    (result,) = make(chosen, federation.build).run(emit=federation.hear)
    return result


def near(name, rounds):
    (result,) = make(spec(name, rounds)).run()
    return result


def compare(session, name, rounds):
    there = far(session, name, rounds)
    here = near(name, rounds)
    assert there.outcome.status == here.outcome.status == "done"
    apart = float((there.model - here.model).norm() / here.model.norm())
    assert apart <= NEAR
    assert there.engine.ledger == here.engine.ledger
    metrics = here.engine.metrics()
    assert there.engine.metrics() == pytest.approx(metrics, rel=1e-8, abs=1e-12)
    return there


@pytest.mark.parametrize("name", ["FedRecu", pytest.param("Scaffold", marks=pytest.mark.whole)])
def test_a_real_federation_is_one_machine(session, name):
    there = compare(session, name, 3)
    assert there.engine.ledger.syncs == (6 if name == "FedRecu" else 3)


@pytest.mark.slow
@pytest.mark.parametrize("name", METHODS)
def test_ten_rounds_of_ten_methods(session, name):
    began = time.monotonic()
    compare(session, name, 10)
    print(json.dumps({name: round(time.monotonic() - began, 1)}))


@pytest.mark.slow
def test_the_example_from_the_command_line(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    example = str(Path(__file__).parents[2] / "examples" / "federation.toml")
    assert undrift(["federate", example, "--local", "3", "--json"]) == 0
    far = json.loads(capsys.readouterr().out)["runs"]
    assert undrift(["run", example, "-s", "name=simulated", "--json"]) == 0
    near = json.loads(capsys.readouterr().out)["runs"]
    assert [run["model"] for run in far] == [run["model"] for run in near]
