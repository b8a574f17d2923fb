"""Networks: accuracy instead of a gap, objectives, and what is to be said of the data."""

import dataclasses
import json

import pytest
from tests.cli.stopping import after, rows

from undrift.cli import main
from undrift.cli import run as verb
from undrift.problems.named import registry as problems
from undrift.records.folder import Folder
from undrift.report import figures

SPEC = """\
name = "net"
rounds = 12
epochs = 1
batch = 16
schedule = 0.99
target_accuracy = 0.3
smooth = 4
cohort = {size = 3, dropout = 0.1}
[problem]
name = "images"
train = 150
test = 40
model = "linear"
clients = 5
[[method]]
name = "FedAvg"
lr = 0.5
[[method]]
name = "FedAvg"
label = "calibrated"
lr = 0.5
objective = "FedLC"
[[method]]
name = "FedDyn"
lr = 0.5
alpha = 0.01
objective = {name = "FedLC"}
rounds = 2
"""


@pytest.fixture
def net(place, monkeypatch):
    (place / "spec.toml").write_text(SPEC)
    return place


@pytest.fixture
def noted(monkeypatch):
    """The images are said to be of a lesser kind."""
    from undrift.data import images

    load = images.load_images

    def lesser(*args):
        return dataclasses.replace(load(*args), note="JPEG q80")

    monkeypatch.setattr(images, "load_images", lesser)


def test_a_run_is_judged_by_its_accuracy(net, drawn, capsys):
    assert main(["run", "spec.toml", "--json"]) == 0
    out, err = capsys.readouterr()
    answer = json.loads(out)
    mine = [row for row in Folder(net / "runs/net").rows() if row["label"] == "FedAvg"]
    fedavg = answer["methods"][0]
    first = next(row for row in mine if row["accuracy"] >= 0.3)
    assert answer["target"] == 0.3 and fedavg["metric"] == "accuracy"
    assert (fedavg["rounds"], fedavg["vectors"]) == (first["round"], first["vectors"])
    assert fedavg["final"] == mine[-1]["accuracy"] and fedavg["loss"] == mine[-1]["loss"]
    # No method stops at an accuracy.
    assert first["round"] < 12 and fedavg["status"] == "all rounds run"
    assert f"accuracy {100 * mine[-1]['accuracy']:.2f} %" in err
    assert (net / "runs/net/accuracy.png").exists() and not (net / "runs/net/gap.png").exists()


def test_problems_are_built_once_per_objective(net, capsys, monkeypatch):
    kind, built = problems["images"], []
    build = kind.build
    monkeypatch.setattr(
        kind, "build", lambda self, loss=None: built.append(loss) or build(self, loss)
    )
    main(["run", "spec.toml", "-s", "seed=[0, 1]", "-s", "rounds=1"])
    assert [type(objective).__name__ for objective in built] == ["NoneType", "FedLC"]
    measured = Folder(net / "runs/net").rows()
    start = {(row["label"], row["seed"]): row["loss"] for row in measured if row["round"] == 0}
    assert len(start) == 6 and len(set(start.values())) == 1
    ends = {row["label"]: row["loss"] for row in measured if row["round"] == 1}
    assert ends["FedAvg"] != ends["calibrated"]


def test_an_objective_the_network_cannot_serve_is_blamed(net, capsys):
    with pytest.raises(SystemExit) as end:
        main(["run", "spec.toml", "-s", "problem.model=linear", "-s", "method.objective=FedMLB"])
    err = capsys.readouterr().err
    assert end.value.code == 2 and "-s method.objective=FedMLB: " in err


def test_what_is_to_be_said_of_the_data_stands_beside_every_accuracy(
    net, noted, drawn, capsys, monkeypatch
):
    labels = []
    panels = figures.panels
    monkeypatch.setattr(
        figures, "panels", lambda *a, **k: labels.append(panels(*a, **k)) or labels[-1]
    )
    assert main(["run", "spec.toml", "-s", "rounds=2"]) == 0
    out, err = capsys.readouterr()
    assert "final accuracy (JPEG q80)" in out
    lines = [line for line in err.splitlines() if "accuracy" in line and "round" in line]
    assert all("% (JPEG q80)" in line for line in lines)
    label = labels[0].axes[0].get_ylabel()
    assert label == "test accuracy, % (JPEG q80)"
    assert main(["compare", "net", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["note"] == "JPEG q80"


def test_curves_of_loss_and_drift(net, capsys, monkeypatch):
    main(["run", "spec.toml", "-s", "rounds=3", "-s", "problem.train_metrics=true"])
    drawn = []
    monkeypatch.setattr(figures, "save", lambda figure, path: drawn.append(figure))
    for words, label, scale in (
        (["--y", "drift"], "mean squared distance of the local models", "log"),
        (["--y", "loss"], "test loss", "linear"),
        (["--y", "train_loss"], "training loss", "linear"),
        ([], "test accuracy, %", "linear"),
    ):
        assert main(["compare", "net", "--plot", "x.png", *words]) == 0
        assert drawn[-1].axes[0].get_ylabel() == label and drawn[-1].axes[0].get_yscale() == scale
    capsys.readouterr()
    measured = "loss, accuracy, top5, train_loss, train_accuracy, train_top5, drift"
    for words, text in (
        (["--y", "gap"], f"--y gap: was not measured in these runs; there are {measured}"),
        (["--target", "80"], "at most 1"),
    ):
        with pytest.raises(SystemExit) as end:
            main(["compare", "net", *words])
        assert end.value.code == 2 and text in capsys.readouterr().err


def test_a_network_goes_on_where_it_stopped(net, capsys, monkeypatch):
    (net / "spec.toml").write_text(SPEC.replace('"FedLC"\n', '"MOON"\n', 1))
    main(["run", "spec.toml", "--out", "whole"])
    monkeypatch.setattr(verb, "Stop", after(8))
    code, count = main(["run", "spec.toml"]), 0
    while code == 130 and count < 9:
        code, count = main(["resume", "net"]), count + 1
    assert code == 0 and count > 2 and rows("runs/net") == rows("whole/net")
    assert Folder(net / "runs/net").outcomes() == Folder(net / "whole/net").outcomes()
