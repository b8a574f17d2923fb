"""Problems, networks, data and objectives of one's own, in a spec by their files."""

import json

import pytest
import torch
from tests.cli.conftest import told
from tests.cli.stopping import after, rows

import undrift as ud
from undrift.cli import run as verb
from undrift.objectives.base import registry as losses
from undrift.problems.named import registry as problems
from undrift.records.folder import Folder
from undrift.spec.errors import BadSpec
from undrift.spec.reader import load

CODE = """\
from pathlib import Path

import torch
from torch import nn

import undrift as ud
from undrift.core import Count, Positive

Path("executed").touch()


def points(clients: Count = 4, spread: Positive = 1.0, seed: int = 0) -> ud.Problem:
    draw = torch.Generator().manual_seed(seed)
    y = torch.arange(120) % 2
    x = torch.randn(120, 3, generator=draw) + spread * y[:, None]
    net = nn.Linear(3, 2)
    return ud.Neural(net, (x, y), ud.data.iid(120, clients=clients, seed=seed), test=0.2)


def losing(objective: ud.objectives.Objective | None = None) -> ud.Problem:
    x, y = torch.randn(40, 3), torch.arange(40) % 2
    return ud.Neural(nn.Linear(3, 2), (x, y), ud.data.iid(40, clients=4), objective=objective)


def untyped(clients=3) -> ud.Problem: ...


def worded(clients: int = 3, title: str = "no") -> ud.Problem: ...


def tensors(start: torch.Tensor) -> ud.Problem: ...


def failing(clients: int = 2) -> ud.Problem:
    return {}[clients]


def nothing(clients: int = 2) -> ud.Problem:
    return None


class Net(nn.Module):
    def __init__(self, channels: int, size: int, classes: int, width: int = 8):
        super().__init__()
        self.first = nn.Linear(channels * size * size, width)
        self.last = nn.Linear(width, classes)

    def forward(self, x):
        return self.last(self.first(x.flatten(1)).relu())


def blobs(samples: int = 60) -> object:
    y = torch.arange(samples) % 3
    x = torch.randn(samples, 1, 4, 4) + y[:, None, None, None]
    return (x, y), (x[:20], y[:20])


class Warm(ud.objectives.Objective):
    title = "Warm"
    heat: Positive = 2.0

    def loss(self, local, batch, others):
        scores = local(batch.x) / self.heat
        each = nn.functional.cross_entropy(scores, batch.labels, reduction="none")
        return (batch.weights * each).sum()
"""
TOP = """\
name = "mine"
rounds = 12
steps = 2
batch = 8
"""
METHOD = """\
[[method]]
name = "FedAvg"
lr = 0.1
[[method]]
name = "Scaffold"
lr = 0.05
"""
POINTS = f"""{TOP}\
[problem]
file = "mine.py"
name = "points"
spread = 2.0
{METHOD}"""
IMAGES = f"""{TOP}\
objective = {{file = "mine.py", name = "Warm", heat = 1.5}}
[problem]
name = "images"
clients = 3
[network]
file = "mine.py"
name = "Net"
width = 5
[data]
file = "mine.py"
name = "blobs"
{METHOD}"""


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.py").write_text(CODE)
    known = dict(losses), dict(problems)
    yield
    assert (losses, problems) == known


def spec(text):
    with open("spec.toml", "w", encoding="utf-8") as file:
        file.write(text)


@pytest.mark.whole
@pytest.mark.parametrize(
    "text",
    [pytest.param(POINTS, marks=pytest.mark.slow), IMAGES],
    ids=["problem", "network and data"],
)
def test_it_runs_resumes_and_is_read_like_any_other(tmp_path, capsys, monkeypatch, text):
    spec(text)
    assert told(capsys, "run", "spec.toml", "--check")[0] == 0
    assert told(capsys, "run", "spec.toml", "--out", "whole")[0] == 0
    assert told(capsys, "run", "spec.toml", "--out", "jobs", "--jobs", "2")[0] == 0
    with monkeypatch.context() as patch:
        patch.setattr(verb, "Stop", after(8))
        assert told(capsys, "run", "spec.toml", "--checkpoint", "0")[0] == 130
    (tmp_path / "mine.py").rename("other.py")
    (tmp_path / "executed").unlink()
    code, _, err = told(capsys, "resume", "mine")
    assert code == 2 and "--trust" in err and not (tmp_path / "executed").exists()
    code, _, err = told(capsys, "resume", "mine", "--trust")
    assert code == 0 and "continues from round 7" in err
    assert rows("runs/mine") == rows("jobs/mine") == rows("whole/mine")
    assert Folder(tmp_path / "runs/mine").outcomes() == Folder(tmp_path / "whole/mine").outcomes()
    assert told(capsys, "report", "mine")[0] == 0
    code, out, _ = told(capsys, "export", "mine", "FedAvg", "--best", "-o", "best.safetensors")
    assert code == 0 and out == "best.safetensors\n"
    found = ud.load("runs/mine")
    with pytest.raises(BadSpec, match="trust=True"):
        found.module("FedAvg")
    weights = found.module("FedAvg", trust=True).state_dict()
    assert all(torch.equal(weights[k], v) for k, v in found.models["FedAvg", 0]["last"].items())


def test_a_network_of_changed_code_is_told(tmp_path, capsys):
    spec(IMAGES)
    assert told(capsys, "run", "spec.toml")[0] == 0
    brought = tmp_path / "runs/mine/mine.py"
    brought.write_text(brought.read_text() + "\n# changed\n")
    with pytest.warns(UserWarning, match=r"mine\.py changed"):
        ud.load("runs/mine").module("FedAvg", trust=True)


def test_a_file_that_was_changed_is_another_run(tmp_path, capsys, monkeypatch):
    spec(POINTS)
    with monkeypatch.context() as patch:
        patch.setattr(verb, "Stop", after(8))
        assert told(capsys, "run", "spec.toml", "--checkpoint", "0")[0] == 130
    before = load("spec.toml").identity
    (tmp_path / "mine.py").write_text(CODE + "\n# changed\n")
    assert load("spec.toml").identity != before
    code, _, err = told(capsys, "run", "spec.toml")
    assert code == 2 and "mine.py" in err
    brought = tmp_path / "runs/mine/mine.py"
    brought.write_text(brought.read_text() + "\n# changed\n")
    code, _, err = told(capsys, "resume", "mine", "--trust")
    assert code == 2 and "mine.py" in err


OTHER = 'name = "points"\nspread = 2.0'


@pytest.mark.parametrize(
    ("text", "old", "new", "line"),
    [
        (POINTS, "spread = 2.0", "spread = -2.0", 8),
        (POINTS, "spread = 2.0", "spred = 2.0", 8),
        (POINTS, "spread = 2.0", "clients = 'four'", 8),
        (POINTS, OTHER, 'name = "point"', 7),
        (POINTS, OTHER, 'name = "untyped"', 7),
        (POINTS, OTHER, 'name = "tensors"', 7),
        (POINTS, OTHER, 'name = "worded"', 7),
        (POINTS, OTHER, 'name = "failing"', 5),
        (POINTS, OTHER, 'name = "nothing"', 5),
        (POINTS, 'name = "points"\n', "", 5),
        (POINTS, '"mine.py"', '"none.py"', 6),
        (POINTS, "spread = 2.0", '[network]\nfile = "mine.py"\nname = "Net"', 7),
        (POINTS, "[problem]", 'objective = "FedLC"\n[problem]', 5),
        (POINTS, "[problem]", "target = 1e-3\n[problem]", 5),
        (IMAGES, "width = 5", "width = 5.5", 12),
        (IMAGES, "width = 5", "size = 4", 12),
        (IMAGES, 'name = "Net"\n', "", 9),
        (IMAGES, 'name = "blobs"', 'name = "Blob"', 15),
        (IMAGES, "heat = 1.5", "heat = 0.0", 5),
        (IMAGES, 'name = "Warm"', 'name = "Cold"', 5),
        (IMAGES, "clients = 3", 'model = "mlp"', 8),
        (IMAGES, "clients = 3", "hidden = 8", 8),
        (IMAGES, 'name = "blobs"', 'name = "blobs"\nsamples = "all"', 16),
    ],
)
def test_what_is_wrong_is_told_with_its_line(text, old, new, line):
    assert old in text
    spec(text.replace(old, new))
    with pytest.raises(BadSpec) as error:
        ud.run_spec("spec.toml")
    assert [complaint.line for complaint in error.value.complaints] == [line]


def test_an_error_of_the_function_is_told_with_its_own_line(capsys):
    spec(POINTS.replace('"points"\nspread = 2.0', '"failing"'))
    code, _, err = told(capsys, "run", "spec.toml")
    line = CODE[: CODE.index("return {}[clients]")].count("\n") + 1
    assert code == 2 and f"spec.toml:5: mine.py:{line}: KeyError" in err


def test_an_error_of_a_network_is_told_with_its_table_and_in_one_line(tmp_path):
    text = IMAGES.replace('file = "mine.py"\nname = "Net"', 'file = "net.py"\nname = "wide"')
    assert text != IMAGES
    spec(text)
    (tmp_path / "net.py").write_text("def wide(width: int = 1):\n    raise OSError('one\\ntwo')\n")
    with pytest.raises(BadSpec) as error:
        ud.run_spec("spec.toml")
    (found,) = error.value.complaints
    assert "net.py:2: OSError: one two" in found.text
    assert text.split("\n")[found.line - 1] == "[network]"


def test_seeds_flags_and_objectives_reach_it(capsys):
    spec(POINTS)
    flags = ["-s", "problem.spread=1.0", "-s", "seed=[0,1]", "-s", 'vary=["split"]']
    code, out, _ = told(capsys, "run", "spec.toml", "--json", *flags)
    assert code == 0 and "data" in json.loads(out)["varied"]
    found = Folder.of_run("runs/mine")
    assert found.document()["problem"]["spread"] == 1.0
    first = {row["seed"]: row["loss"] for row in found.rows() if row["round"] == 0}
    assert first[0] != first[1]
    spec(
        POINTS.replace("spread = 2.0\n", "").replace('"points"', '"losing"') + 'objective = "FedLC"'
    )
    runs = ud.run_spec("spec.toml")
    kinds = [type(run.problem.objective).__name__ for run in runs.values()]
    assert kinds == ["CrossEntropy", "FedLC"]


def test_the_weights_of_a_network_follow_from_the_seeds_of_a_spec():
    spec(IMAGES)
    torch.manual_seed(1)
    first = ud.run_spec("spec.toml", overrides=["rounds=1"])
    torch.manual_seed(2)
    again = ud.run_spec("spec.toml", overrides=["rounds=1"])
    other = ud.run_spec("spec.toml", overrides=["rounds=1", "problem.start_seed=5"])
    starts = [runs["FedAvg", 0].problem.start() for runs in (first, again, other)]
    assert torch.equal(starts[0], starts[1]) and not torch.equal(starts[0], starts[2])
