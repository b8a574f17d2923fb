"""A saved run is known again by its code and the values that it reads; other code is refused."""

import json
import re
import subprocess
import sys
import threading
import types
import warnings
from pathlib import Path

import numpy as np
import pytest
import torch
from tests.records.older import unseal
from torch import nn
from torch.nn import functional as F

import undrift as ud
from undrift.core.params import BadParameters
from undrift.models.net import seeded
from undrift.records.folder import BadFolder, Folder
from undrift.runs.code import code_digest
from undrift.runs.events import Measured, Unproven

HEAD = """
import dataclasses, functools, threading, types
import numpy as np, torch, undrift as ud
from torch import nn
from torch.nn import functional as F
from undrift.core import Message, Method, Positive, State, Vec

def error(o, t, k=1):
    return k * (o - t).square().mean()
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
        return self.Server(x=s.x + factor(VALUE) * up.d)
def factor(k):
    return k / 10
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
        return FORWARD
given = {"module": Net()}
"""


def network(forward, scale="1"):
    return NETWORK.replace("FORWARD", forward).replace("SCALE", scale)


OF_LOSS = {
    "a global": "K = VALUE\ndef loss(o, t): return error(o, t, K)",
    "a global of a function that it calls": """
K = VALUE
def inner(o, t): return error(o, t, K)
def middle(o, t): return inner(o, t)
def loss(o, t): return middle(o, t)
""",
    "a global of a function inside it": """
K = VALUE
def loss(o, t): return sum(error(o, t, K) for _ in range(1))
""",
    "the code of a function that it calls": """
def inner(o, t): return VALUE * error(o, t)
def loss(o, t): return inner(o, t)
""",
    "functions that call one another": """
def even(n, o, t): return error(o, t, VALUE) if n == 0 else odd(n - 1, o, t)
def odd(n, o, t): return even(n - 1, o, t)
def loss(o, t): return even(4, o, t)
""",
    "a default": "def loss(o, t, k=VALUE): return error(o, t, k)",
    "a default by keyword": "def loss(o, t, *, k=VALUE): return error(o, t, k)",
    "an attribute of the function": """
def loss(o, t): return error(o, t, loss.k)
loss.k = VALUE
""",
    "a bound method": """
class Own:
    def __init__(self, k): self.k = k
    def loss(self, o, t): return error(o, t, self.k)
loss = Own(VALUE).loss
""",
    "an object with slots": """
class Own:
    __slots__ = ("k",)
    def __init__(self, k): self.k = k
    def __call__(self, o, t): return error(o, t, self.k)
loss = Own(VALUE)
""",
    "an attribute of a class": """
class Own:
    k = VALUE
    @classmethod
    def loss(cls, o, t): return error(o, t, cls.k)
loss = Own.loss
""",
    "a property": """
class Own:
    @property
    def k(self): return VALUE
    def __call__(self, o, t): return error(o, t, self.k)
loss = Own()
""",
    "a base class": """
class Base:
    def k(self): return VALUE
class Own(Base):
    def __call__(self, o, t): return error(o, t, super().k())
loss = Own()
""",
    "a module": """
settings = types.ModuleType("settings")
settings.k = VALUE
def loss(o, t): return error(o, t, settings.k)
""",
    "a module in a module": """
settings, outer = types.ModuleType("settings"), types.ModuleType("outer")
settings.k, outer.settings, settings.outer = VALUE, settings, outer
def loss(o, t): return error(o, t, outer.settings.k)
""",
    "a module imported as it runs": """
import sys
sys.modules["late_settings"] = types.ModuleType("late_settings")
sys.modules["late_settings"].k = VALUE
def loss(o, t):
    import late_settings
    return error(o, t, late_settings.k)
""",
    "a function behind a cache": """
@functools.lru_cache
def k(): return VALUE
def loss(o, t): return error(o, t, k())
""",
    "a wrapped function": """
@torch.enable_grad()
def loss(o, t): return error(o, t, VALUE)
""",
    "a partial": "loss = functools.partial(error, k=VALUE)",
}
MADE = {
    "a dictionary": ("{'k': {'inner': VALUE}}", "k['k']['inner']"),
    "an array": ("np.full(3, VALUE)", "float(k[0])"),
    "a NumPy number": ("np.float32(VALUE)", "float(k)"),
    "a large tensor": ("torch.full((2000,), float(VALUE))", "k[0]"),
    "a dataclass": ("dataclasses.make_dataclass('Config', ['k'])(VALUE)", "k.k"),
    "a namespace": ("types.SimpleNamespace(k=VALUE)", "k.k"),
    "a set": ("{VALUE, 7}", "min(k)"),
    "a function": ("lambda: VALUE", "k()"),
    "a table that holds itself": ("held(VALUE)", "k['k']"),
}
for name, (made, read) in MADE.items():
    OF_LOSS[f"{name} in a closure"] = f"""
def held(k):
    k = {{"k": k}}
    k["itself"] = k
    return k
def closing(k):
    return lambda o, t: error(o, t, {read})
loss = closing({made})
"""
PROGRAMS = {f"loss: {name}": text + "\ngiven = {'loss': loss}" for name, text in OF_LOSS.items()}
PROGRAMS |= {
    "method: its code": METHOD,
    "method: a static method": METHOD.replace("factor(VALUE)", "self.k()").replace(
        "    def work", "    @staticmethod\n    def k(): return VALUE / 10\n    def work"
    ),
    "method: a global": METHOD.replace("factor(VALUE)", "K") + "\nK = VALUE / 10",
    "network: a dictionary": network("self.inner(x) * self.config['scale'][0]", "VALUE"),
    "network: a global": network("K * self.inner(x)") + "\nK = VALUE",
    "network: its code": network("VALUE * self.inner(x)"),
    "network: a hook": network("self.inner(x)")
    + "\ngiven['module'].register_forward_hook(lambda net, x, y: VALUE * y)",
    "metrics: a function": "given = {'metrics': {'m': lambda o, t: VALUE * o[:, 0]}}",
    "metrics: of classes": (
        "given = {'kind': 'classes', 'metrics': {'m': lambda o, t: VALUE * o[:, 0]}}"
    ),
    "metrics: added": "given = {'kind': 'classes', 'metrics': ['accuracy', 'top5'][: VALUE - 1]}",
    "loss: an objective": (
        "given = {'kind': 'classes', 'objective': [None, ud.objectives.FedLC()][VALUE > 2]}"
    ),
    "loss: a weight of an objective": (
        "given = {'kind': 'classes', 'objective': ud.objectives.FedLC(tau=VALUE / 10)}"
    ),
    "loss: an objective of one's own": """
class Own(ud.objectives.CrossEntropy):
    def loss(self, local, batch, others): return VALUE * super().loss(local, batch, others)
ud.objectives.registry.pop("Own")
given = {"kind": "classes", "objective": Own()}
""",
    "training": "given = {'training': VALUE > 2}",
    "until: its code": "given = {'until': lambda row: row['round'] >= VALUE}",
    "until: a global": "K = VALUE\ngiven = {'until': lambda row: row['round'] >= K}",
    "problem: its code": """
class Own(ud.Neural):
    def start(self): return VALUE * super().start()
given = {"problem": Own}
""",
    "schedule: its code": """
@dataclasses.dataclass(frozen=True, kw_only=True)
class Falling(ud.schedules.Schedule):
    name = "falling"
    def after(self, round): return 1 / (VALUE + round)
given = {"schedule": Falling()}
""",
}  # fmt: skip

generator = torch.Generator().manual_seed(0)
FEDAVG = ud.FedAvg(lr=0.1)
X = torch.randn(24, 4, generator=generator)
PARTS = [range(k, 24, 3) for k in range(3)]
OUTPUTS = {"numbers": 1, "classes": 2}
TARGETS = {"numbers": X[:, :1].sin(), "classes": (X[:, 0] > 0).long()}


def program(name, value=1):
    """What a program gives to a run."""
    names = {"__name__": "its_own_program"}
    exec(compile(HEAD + PROGRAMS[name].replace("VALUE", str(value)), "program", "exec"), names)
    return names["given"]


def train(
    folder,
    *,
    method=FEDAVG,
    module=None,
    kind="numbers",
    problem=ud.Neural,
    until=None,
    schedule=None,
    on_event=None,
    **given,
):
    if module is None:
        with seeded(0):
            module = nn.Sequential(nn.Linear(4, 5), nn.ReLU(), nn.Linear(5, OUTPUTS[kind]))
    if kind == "numbers":
        given.setdefault("loss", F.mse_loss)
    built = problem(module, (X, TARGETS[kind]), PARTS, test=0.25, **given)
    return ud.run(
        method, built, rounds=3, batch=4, until=until, schedule=schedule, save=folder,
        checkpoint=0, on_event=on_event,
    )  # fmt: skip


@pytest.mark.parametrize("name", PROGRAMS)
def test_other_code_and_other_values_are_refused(name, tmp_path):
    folder = tmp_path / "run"
    before = train(folder, **program(name, 2))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        again = train(folder, **program(name, 2))
    assert again.engine is None and torch.equal(again.x, before.x)
    with pytest.raises(BadFolder):
        train(folder, **program(name, 3))


class Broken(Exception):
    pass


@pytest.mark.parametrize("name", ["method: its code", "loss: a global"])
def test_nor_is_an_interrupted_run_continued_with_it(name, tmp_path):
    def breaking(event):
        if isinstance(event, Measured) and event.row["round"] == 2:
            raise Broken

    whole = train(tmp_path / "whole", **program(name))
    with pytest.raises(Broken):
        train(tmp_path / "run", **program(name), on_event=breaking)
    with pytest.raises(BadFolder):
        train(tmp_path / "run", **program(name, 3))
    assert torch.equal(train(tmp_path / "run", **program(name)).x, whole.x)


def test_what_changed_is_named(tmp_path):
    name = "metrics: a function"
    train(tmp_path / "run", **program(name))
    kept = json.loads((tmp_path / "run" / "environment.json").read_text())["code"]
    assert kept.keys() == {"network", "loss", "metrics", "training", "pipeline"}
    other = {**kept, "metrics": "other", "until": "new"}
    with pytest.raises(BadFolder, match="another metrics and until:"):
        Folder(tmp_path / "run").with_code(other)


def digests():
    return {name: code_digest(program(name), name) for name in PROGRAMS}


def test_another_process_finds_the_same_digests():
    """Whatever the order of sets, and wherever objects are in memory."""
    text = "import json; from tests.runs.test_code import digests; print(json.dumps(digests()))"
    found = [
        json.loads(
            subprocess.run(
                [sys.executable, "-c", text],
                env={"PYTHONPATH": ":".join(sys.path), "PYTHONHASHSEED": seed},
                cwd=Path(__file__).parents[2],
                capture_output=True,
                check=True,
                text=True,
            ).stdout
        )
        for seed in "12"
    ]
    assert found[0] == found[1] == digests()
    assert len(set(found[0].values())) == len(PROGRAMS)


def test_comments_and_places_do_not_count():
    def found(text):
        names = {"__name__": "its_own_program"}
        exec(compile(text, "program", "exec"), names)
        return code_digest(names["f"], "f")

    code = "K = 1\ndef f(x):\n    return K * x\n"
    assert found(code) == found("\n\n\n# one more\n" + code.replace("K * x", "K * x  # times"))
    assert found(code) == found(code + "\nL = 3\n") != found(code.replace("1", "1.0"))


def test_what_packages_wrote_is_known_by_name():
    class Same(nn.Linear):
        pass

    assert code_digest(F.mse_loss, "f") != code_digest(F.l1_loss, "f")
    assert code_digest(nn.HuberLoss(), "f") == code_digest(nn.HuberLoss(), "f")
    assert code_digest(nn.HuberLoss(), "f") != code_digest(nn.HuberLoss(delta=2), "f")
    assert code_digest(nn.Linear, "f") != code_digest(Same, "f")


OBJECTS = {
    "a recurrent layer": lambda k: nn.LSTM(2, k),
    "computed weights": lambda k: nn.utils.parametrizations.weight_norm(nn.Linear(2, k)),
    "a pattern": lambda k: re.compile(f"a{k}"),
    "a universal function": lambda k: (None, np.add, np.multiply)[k],
    "a sparse tensor": lambda k: torch.eye(k).to_sparse(),
    "objects in an array": lambda k: np.array([k, "a", None], dtype=object),
    "a script": lambda k: torch.jit.script(nn.Sequential(nn.Linear(2, k))),
    "a generator": np.random.default_rng,
}


@pytest.mark.parametrize("name", OBJECTS)
def test_objects_of_packages_count_by_their_content(name):
    def digest(k):
        with seeded(0):
            return code_digest(OBJECTS[name](k), name)

    assert digest(1) == digest(1) != digest(2)


@pytest.mark.parametrize("made", [threading.Lock, lambda: (k for k in "ab")])
def test_what_has_no_digest_is_refused_before_the_run(made, tmp_path):
    thing = types.SimpleNamespace(inner=made())

    def loss(outputs, targets):
        return F.mse_loss(outputs, targets) + 0 * isinstance(thing, int)

    assert train(None, loss=loss).status == "done"
    with pytest.raises(BadParameters) as refused:
        train(tmp_path / "run", loss=loss)
    assert refused.value.problems.keys() == {"save"}
    assert "loss.thing.inner" in refused.value.problems["save"]
    assert not (tmp_path / "run").exists()


def rewrite(folder, change):
    file = folder / "environment.json"
    about = json.loads(file.read_text())
    change(about)
    file.write_text(json.dumps(about))


EARLIER = {
    "another version of undrift": lambda about: about.pop("code"),
    "another Python": lambda about: about.update(python="3.9.1"),
}


@pytest.mark.parametrize("name", EARLIER)
def test_what_cannot_be_compared_is_said(name, tmp_path):
    folder, given = tmp_path / "run", program("loss: a global")
    whole = train(folder, **given)
    unseal(folder)
    rewrite(folder, EARLIER[name])
    with pytest.warns(UserWarning, match="other code"):
        assert torch.equal(train(folder, **given).x, whole.x)
    events = []
    train(folder, **given, on_event=events.append)
    assert [event.what for event in events if isinstance(event, Unproven)] == ["code"]


def test_a_run_without_code_of_ones_own_has_nothing_to_compare(tmp_path):
    def run(folder, **given):
        problem = ud.problems.Quadratic(torch.eye(2).expand(3, 2, 2), torch.ones(3, 2))
        return ud.run(ud.FedAvg(lr=0.1), problem, rounds=2, save=folder, **given)

    whole = run(tmp_path / "run")
    unseal(tmp_path / "run")
    rewrite(tmp_path / "run", lambda about: about.pop("code"))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert torch.equal(run(tmp_path / "run").x, whole.x)


class FedAvg(ud.FedAvg, register=False):
    """As undrift's own, by another author."""


def test_a_method_of_the_same_name_is_another_one(tmp_path):
    train(tmp_path / "run")
    with pytest.raises(BadFolder):
        train(tmp_path / "run", method=FedAvg(lr=0.1))
