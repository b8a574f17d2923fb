"""A saved run is known again by its code: source text, fields, weights; other code is refused."""

import importlib.util
import json
import sys
import threading
import types
import warnings

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import undrift as ud
from undrift.models.net import seeded
from undrift.records.folder import BadFolder, Folder
from undrift.runs.code import code_digest
from undrift.runs.events import Notice

HEAD = """
import dataclasses, functools
import torch, undrift as ud
from torch import nn
from undrift.core import Message, Method, Positive, State, Vec

def error(o, t, k=1):
    return k * (o - t).square().mean()
def closing(k):
    return lambda o, t: error(o, t, k)
"""
METHOD = """
class Mine(Method, register=False):
    lr: Positive
    class Down(Message):
        x: Vec
    class Up(Message):
        d: Vec
    def work(self, me, got, f):
        return me, self.Up(d=f.sgd(got.x, self.lr) - got.x)
    def merge(self, s, up, cohort):
        return self.Server(x=s.x + VALUE / 10 * up.d)
given = {"method": Mine(lr=0.1)}
"""
NETWORK = """
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner, self.config = nn.Linear(4, 1), {"scale": [SCALE]}
        nn.init.constant_(self.inner.weight, 0.1)
        nn.init.constant_(self.inner.bias, 0.1)
    def forward(self, x):
        return FACTOR * self.inner(x) * self.config["scale"][0]
given = {"module": Net()}
"""
PROGRAMS = {
    "loss: its code": "def loss(o, t): return error(o, t, VALUE)\ngiven = {'loss': loss}",
    "loss: a default": "def loss(o, t, k=VALUE): return error(o, t, k)\ngiven = {'loss': loss}",
    "loss: a closure": "given = {'loss': closing(VALUE)}",
    "loss: a tensor in a closure": "given = {'loss': closing(torch.tensor(float(VALUE)))}",
    "loss: a partial": "given = {'loss': functools.partial(error, k=VALUE)}",
    "loss: a module": "given = {'loss': nn.HuberLoss(delta=VALUE / 10)}",
    "loss: a bound method": """
class Own:
    def __init__(self, k): self.k = k
    def loss(self, o, t): return error(o, t, self.k)
given = {"loss": Own(VALUE).loss}
""",
    "method: its code": METHOD,
    "network: its code": NETWORK.replace("FACTOR", "VALUE").replace("SCALE", "1"),
    "network: a setting": NETWORK.replace("FACTOR", "1").replace("SCALE", "VALUE"),
    "metrics": "given = {'metrics': {'m': lambda o, t: VALUE * o[:, 0]}}",
    "problem": """
class Own(ud.Neural):
    def start(self): return VALUE * super().start()
given = {"problem": Own}
""",
    "schedule": """
@dataclasses.dataclass(frozen=True, kw_only=True)
class Falling(ud.schedules.Schedule):
    name = "falling"
    def after(self, round): return 1 / (VALUE + round)
given = {"schedule": Falling()}
""",
}
X = torch.randn(24, 4, generator=torch.Generator().manual_seed(0))
PARTS = [range(k, 24, 3) for k in range(3)]


def program(path, name, value=2):
    """What a program gives to a run."""
    file = path / f"program_{value}.py"
    file.write_text(HEAD + PROGRAMS[name].replace("VALUE", str(value)))
    spec = importlib.util.spec_from_file_location(f"its_own_program_{value}", file)
    module = sys.modules[spec.name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.given


def train(folder, *, method=None, module=None, problem=ud.Neural, loss=F.mse_loss, **given):
    if module is None:
        with seeded(0):
            module = nn.Linear(4, 1)
    run = {name: given.pop(name) for name in ("schedule", "callbacks") if name in given}
    built = problem(module, (X, X[:, :1].sin()), PARTS, test=0.25, loss=loss, **given)
    return ud.run(method or ud.FedAvg(lr=0.1), built, rounds=3, batch=4, save=folder, **run)


@pytest.mark.parametrize("name", PROGRAMS)
def test_other_code_and_other_values_are_refused(name, tmp_path):
    folder = tmp_path / "run"
    before = train(folder, **program(tmp_path, name))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        again = train(folder, **program(tmp_path, name))
    assert again.engine is None and torch.equal(again.x, before.x)
    with pytest.raises(BadFolder):
        train(folder, **program(tmp_path, name, 3))


def test_what_changed_is_named(tmp_path):
    train(tmp_path / "run", **program(tmp_path, "metrics"))
    about = json.loads((tmp_path / "run" / "environment.json").read_text())
    assert about["code"].keys() == {"network", "loss", "metrics", "train_metrics", "pipeline"}
    other = {**about["code"], "metrics": "other", "loss": "new"}
    with pytest.raises(BadFolder, match="other loss and metrics: its code or data have changed"):
        Folder(tmp_path / "run").refuse_other(about["data"], other)


@pytest.mark.parametrize("made", [threading.Lock, lambda: types.SimpleNamespace(a=iter(()))])
def test_what_has_no_digest_runs_and_is_said_to_be_incomparable(made, tmp_path):
    thing = made()

    def loss(outputs, targets):
        return F.mse_loss(outputs, targets) + 0 * isinstance(thing, int)

    assert code_digest(loss) is None
    train(tmp_path / "run", loss=loss)
    events = []
    train(tmp_path / "run", loss=loss, callbacks=ud.Events(events.append))
    (said,) = [event for event in events if isinstance(event, Notice) and event.warning]
    assert "loss cannot be compared" in said.text


class FedAvg(ud.FedAvg, register=False):
    """As undrift's own, by another author."""


def test_a_method_of_the_same_name_is_another_one(tmp_path):
    train(tmp_path / "run")
    with pytest.raises(BadFolder):
        train(tmp_path / "run", method=FedAvg(lr=0.1))
