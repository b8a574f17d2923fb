"""Networks that only the nodes of a federation can build, and what becomes of their models."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch

pytest.importorskip("flwr", reason="flwr is not installed: pip install undrift[flower]")

from safetensors.torch import load_file
from torch.nn import functional as F

import undrift as ud
from tests.federate import nets
from tests.federate.in_process import SPEC, Session, draw, run
from undrift.cli import main as undrift
from undrift.data.images import load_images
from undrift.engines.messages.format import dump, parse
from undrift.engines.messages.packet import Packet
from undrift.federate.federation import FlowerFederation
from undrift.federate.node import NodeConfig
from undrift.federate.worker import ClientWorker
from undrift.flower.compat import NoFederation
from undrift.flower.network import described, known, state_of
from undrift.records.folder import Folder
from undrift.runs.experiment import make
from undrift.runs.run_experiment import run_in_folder
from undrift.spec.reader import load

FILE = '[network]\nfile = "nets.py"\nname = "Net"'
MLP = 'model = "mlp"\nhidden = 4'


@pytest.fixture
def clinics(tmp_path):
    """Three folders with images, beside a file with a network."""
    rng = np.random.default_rng(0)
    for k, (train, test) in enumerate([(40, 4), (10, 60), (16, 22)]):
        draw(tmp_path / f"data{k}" / "pets", {"train": train, "test": test}, rng)
    (tmp_path / "nets.py").write_bytes(Path(nets.__file__).read_bytes())
    return tmp_path


def spec(folder, more="", end=FILE, rounds=2):
    text = SPEC.format(
        method="Scaffold", top="batch = 4", problem="images", more=f'data = "pets"\n{more}'
    )
    text = text.replace("rounds = 4", f"rounds = {rounds}").replace("0.002", "0.2")
    (folder / "spec.toml").write_text(f"{text}\n{end}\n")
    return load(folder / "spec.toml", ["engine.name=flower"])


def nodes(folder):
    places = [
        NodeConfig(f"h{k}", folder / f"s{k}", folder / f"data{k}", methods=folder) for k in range(3)
    ]
    return Session(*map(ClientWorker, places))


def kept(session, chosen, folder):
    """The folder of a run, and what the server has told of it."""
    told = []
    federation = FlowerFederation(session, chosen, told.append)
    folder.mkdir(exist_ok=True)
    run_in_folder(make(chosen, federation.build), Folder(folder), emit=federation.hear)
    return ud.load(folder), " ".join(told)


def assert_measured(net, row, folder):
    """A network has the loss and the accuracy of a row, on the test images of all clinics."""
    sets = [load_images("pets", folder / f"data{k}") for k in range(3)]
    x = torch.cat([one.test_images for one in sets]).float() / 255
    y = torch.cat([one.test_labels for one in sets])
    with torch.no_grad():
        outputs = net(x)
    assert F.cross_entropy(outputs, y).item() == pytest.approx(row["loss"], rel=1e-5)
    assert (outputs.argmax(1) == y).double().mean().item() == pytest.approx(row["accuracy"])


def in_hello(change):
    """Changes what node h1 says of its network."""

    def spoil(asked, reply):
        if asked.table["do"] != "hello" or reply.table["name"] != "h1":
            return [reply]
        table = json.loads(json.dumps(reply.table))
        change(table["network"])
        return [Packet(table)]

    return spoil


@pytest.mark.usefixtures("no_waiting")
def test_the_model_is_exported_as_the_state_dict_of_the_network(clinics):
    found, _ = kept(nodes(clinics), spec(clinics, rounds=30), clinics / "run")
    out = clinics / "model.safetensors"
    assert undrift(["export", str(clinics / "run"), "Scaffold", "-o", str(out)]) == 0
    tensors, net = load_file(out), nets.Net(2)
    assert not torch.equal(tensors["fixed.weight"], net.fixed.weight)
    net.load_state_dict(tensors)
    assert_measured(net, found.records[-1], clinics)
    assert found.records[-1]["accuracy"] > 0.8
    (state,) = found.models.values()
    assert all(torch.equal(tensors[name], v) for name, v in state["last"].items())


def problem_of(net):
    rng = torch.Generator().manual_seed(0)
    data = torch.rand(8, 1, 8, 8, generator=rng), torch.arange(8) % 2
    return ud.Neural(net, data, [range(8)])


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_vector_becomes_the_state_dict_that_the_problem_makes_of_it(dtype):
    problem = problem_of(nets.Net(2)).to(dtype, torch.device("cpu"))
    state, x = known(problem), torch.randn(problem.dim, dtype=dtype)
    found, wanted = state.at(x), problem.tensors(x)
    assert [*found] == [*wanted] and {*state.frozen} == {"centre", "fixed.weight"}
    assert all(found[name].dtype == v.dtype for name, v in wanted.items())
    assert all(torch.equal(found[name], v) for name, v in wanted.items())


def test_a_network_whose_state_dict_is_not_its_weights_is_not_described():
    class Scaled(nets.Net):
        def state_dict(self, *given, **named):
            return {name: 2 * v for name, v in super().state_dict(*given, **named).items()}

    assert known(problem_of(Scaled(2))) is None


@pytest.mark.usefixtures("no_waiting")
@pytest.mark.parametrize("field", ["names", "tied", "digest"])
def test_nodes_with_another_network_are_refused(clinics, field):
    session = nodes(clinics)
    session.spoil = in_hello(lambda about: about.update({field: "other"}))
    with pytest.raises(NoFederation, match=r"client 1 \(node h1\) do not have the same network"):
        run(session, spec(clinics))


def test_digests_of_networks_are_of_all_that_must_be_the_same():
    def digest(change):
        torch.manual_seed(0)
        net = nets.Net(2)
        with torch.no_grad():
            change(net)
        return described(known(problem_of(net)))["digest"]

    assert digest(lambda net: net.first.weight.add_(1)) == digest(lambda net: None)  # trained
    assert digest(lambda net: net.centre.add_(1)) != digest(lambda net: None)


WRONG = {
    "nothing": {},
    "no list": {"names": 3},
    "a name that is not there": {"names": ["nowhere"]},
    "a name twice": {"names": ["last.bias", "last.bias"]},
    "tied to nothing": {"tied": {"last.bias": "nowhere"}},
    "no digest": {"digest": None},
}


@pytest.mark.parametrize("case", WRONG)
def test_a_state_dict_is_that_of_the_network_that_was_described(case):
    state = known(problem_of(nets.Net(2)))
    assert state_of(described(state), state.initial).layout == state.layout
    with pytest.raises(ValueError, match="those of the nodes"):
        state_of({**described(state), **WRONG[case]} if WRONG[case] else {}, state.initial)


@pytest.mark.usefixtures("no_waiting")
def test_frozen_tensors_that_were_not_described_are_asked_for_again(clinics):
    session = nodes(clinics)
    left = [{"centre": torch.zeros(64)}, {"more": torch.zeros(64)}]

    def spoil(asked, reply):
        if asked.table["do"] == "start" and left:
            return [Packet({}, dump(parse(reply.content, 2**16) | left.pop()))]
        return [reply]

    session.spoil = spoil
    assert run(session, spec(clinics)).outcome.status == "done" and not left
