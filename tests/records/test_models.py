"""Finished runs keep their models."""

import json

import pytest
import torch
from safetensors import safe_open
from tests.cli.stopping import after
from tests.trials import trial

import undrift as ud
from undrift.check.federations import quadratic
from undrift.cli import main
from undrift.cli import run as verb
from undrift.engines import Simulate
from undrift.methods import registry
from undrift.problems.named import Images
from undrift.records.folder import MODELS, BadFolder, Folder
from undrift.records.models import Best, find, read, stem

SPEC = """\
name = "mine"
rounds = 9
steps = 2
seed = [0, 1]
batch = 4
every = 2
[problem]
name = "least-squares"
clients = 3
rows = 8
[[method]]
name = "FedAvg"
label = "a/b"
lr = 0.06
[[method]]
name = "Scaffold"
label = "a b"
lr = 0.01
"""
NET = """\
name = "net"
rounds = 3
batch = 8
[problem]
name = "images"
train = 60
test = 20
model = "mlp"
hidden = 4
clients = 3
[[method]]
name = "FedAvg"
lr = 0.1
"""


def load(folder, *which, **best):
    return read(find(folder, *which, **best)[1])


@pytest.fixture(autouse=True)
def quick(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(verb, "draw", lambda *about: None)  # takes longer than the run
    (tmp_path / "spec.toml").write_text(SPEC)
    (tmp_path / "net.toml").write_text(NET)


def alone(lr, seed, rounds):
    setting = {"clients": 3, "rows": 8, "steps": 2, "batch": 4, "every": 2, "seed": seed}
    return ud.run(ud.FedAvg(lr=lr), "least-squares", rounds=rounds, **setting)


def test_the_last_and_the_best_are_those_the_library_finds(tmp_path):
    assert main(["run", "spec.toml"]) == 0
    folder = Folder(tmp_path / "runs/mine")
    for seed in (0, 1):
        rows = [row for row in folder.rows() if (row["label"], row["seed"]) == ("a/b", seed)]
        top = min(rows, key=lambda row: row["gap"])
        outcome, path = find(folder, "a/b", seed, best=True)
        assert outcome.best == {"metric": "gap", "value": top["gap"], "round": top["round"]}
        assert torch.equal(load(folder, "a/b", seed)["x"], alone(0.06, seed, 9).x)
        assert torch.equal(
            load(folder, "a/b", seed, best=True)["x"], alone(0.06, seed, top["round"]).x
        )
        with safe_open(path, "pt") as file:
            about = file.metadata()
        assert (about["label"], about["seed"], about["round"]) == (
            "a/b",
            str(seed),
            str(top["round"]),
        )
    assert any(
        outcome.best["round"] < 9 for outcome in folder.outcomes()
    )  # else nothing is said above
    files = {name for outcome in folder.outcomes() for name in outcome.files.values()}
    assert files == {f"{MODELS}/{f.name}" for f in (folder.path / MODELS).iterdir()}
    assert folder.outcomes()[0].best["metric"] == "gap"


def test_networks_have_the_names_and_shapes_of_their_module(tmp_path):
    main(["run", "net.toml"])
    problem = Images(train=60, test=20, model="mlp", hidden=4, clients=3).build()
    found, expected = load(Folder(tmp_path / "runs/net"), "FedAvg"), problem.net.state_dict()
    assert {k: v.shape for k, v in found.items()} == {k: v.shape for k, v in expected.items()}
    problem.net.load_state_dict(found)
    images = torch.rand(5, *problem.data.images.shape[1:])
    run = ud.run(
        ud.FedAvg(lr=0.1),
        "images",
        train=60,
        test=20,
        model="mlp",
        hidden=4,
        clients=3,
        rounds=3,
        batch=8,
    )
    with torch.no_grad():
        assert torch.equal(problem.net(images), run.module()(images))
    outcome = find(Folder(tmp_path / "runs/net"), "FedAvg")[0]
    assert outcome.best["metric"] == "accuracy" and outcome.best["value"] == max(
        run.history["accuracy"]
    )


@pytest.mark.parametrize("rounds", [3, 7])
def test_the_best_survives_a_stop_bit_by_bit(tmp_path, monkeypatch, rounds):
    main(["run", "spec.toml", "--out", "whole"])
    monkeypatch.setattr(verb, "Stop", after(rounds))
    codes = [main(["run", "spec.toml"])]
    while codes[-1] == 130 and len(codes) < 40:
        codes.append(main(["resume", "mine"]))
    assert len(codes) > 4 and codes[-1] == 0
    one, other = tmp_path / "whole/mine" / MODELS, tmp_path / "runs/mine" / MODELS
    names = sorted(f.name for f in one.iterdir())
    assert names == sorted(f.name for f in other.iterdir())
    assert all((one / name).read_bytes() == (other / name).read_bytes() for name in names)


def test_the_best_is_by_gap_then_accuracy_then_loss():
    def best(*rows):
        found = Best(quadratic())
        for k, row in enumerate(rows):
            found.see({"round": k, **row}, torch.tensor([float(k)]))
        return found.metric, found.round, found.x.item()

    nan = float("nan")
    rows = [{"accuracy": a, "loss": loss} for a, loss in ((0.1, 1), (0.3, 2), (0.3, 0))]
    assert best(*rows) == ("accuracy", 1, 1.0)
    untrained = [{"accuracy": 0.0, "loss": 1}] * 3  # the first is no model worth having
    assert best(*untrained) == ("accuracy", 1, 1.0)
    assert best({"gap": 3, "loss": 1}, {"gap": 1, "loss": 2}, {"gap": nan, "loss": 0}) == (
        "gap",
        1,
        1.0,
    )
    assert best({"gap": 3, "loss": 1, "accuracy": 0.9}, {"gap": 1, "loss": 2, "accuracy": 0.1}) == (
        "gap",
        1,
        1.0,
    )
    assert best({"loss": nan}, {"loss": 2}, {"loss": 1}, {"loss": 3}) == ("loss", 2, 2.0)


def test_overwriting_removes_what_was_kept(tmp_path):
    main(["run", "spec.toml"])
    main(["run", "spec.toml", "-s", "seed=[7]", "--overwrite"])
    names = {f.name for f in (tmp_path / "runs/mine" / MODELS).iterdir()}
    assert names and all("-7-" in name for name in names)


def test_what_is_not_there_is_said(tmp_path):
    main(["run", "spec.toml", "-s", "rounds=2"])
    folder = Folder(tmp_path / "runs/mine")
    for words, reason in (
        (("a/c", 0), "a/b"),
        (("a/b",), "'a/b' was run with seeds 0, 1"),
        (("a/b", 5), "'a/b' was run with seeds 0, 1"),
    ):
        with pytest.raises(BadFolder, match=reason):
            load(folder, *words)
    summary = json.loads(folder.file("summary.json").read_text())
    for entry in summary["outcomes"]:
        del entry["files"], entry["best"]
    folder.file("summary.json").write_text(json.dumps(summary))
    with pytest.raises(BadFolder, match="none was kept"):
        load(folder, "a/b", 0)
    summary["outcomes"][0]["files"] = {"last": "../../spec.toml"}
    folder.file("summary.json").write_text(json.dumps(summary))
    with pytest.raises(BadFolder, match="cannot be read"):
        load(folder, "a/b", 0)


def test_file_names_are_safe():
    for label in ("a/b", "..", "ü", "x" * 40, "FedAvg+"):
        name = stem(0, label)
        assert name.isascii() and "/" not in name and not name.startswith(".")


def test_no_checkpoint_holds_a_model_that_is_not_finite():
    engine = Simulate(
        registry["FedAvg"](lr=1e6), quadratic(), steps=5, x0=torch.ones(quadratic().dim)
    )
    kept = []
    going = trial(engine, 10_000, every=10_000)
    going.keep = lambda: kept.append(bool(engine.x.isfinite().all()))
    assert going.train(pause=0.0) == "diverged"
    assert all(kept) and engine.round < 5 and bool(engine.x.isfinite().all())


def test_the_last_model_that_is_the_best_is_one_file(tmp_path):
    setting = {"clients": 3, "rows": 8, "steps": 2, "rounds": 4, "save": tmp_path / "run"}
    history = ud.run(ud.FedAvg(lr=0.01), "least-squares", **setting).history
    assert min(history["gap"]) == history["gap"][-1]
    (outcome,) = Folder(tmp_path / "run").outcomes()
    assert outcome.best["round"] == 4 and outcome.files["best"] == outcome.files["last"]
    (file,) = (tmp_path / "run" / MODELS).iterdir()
    assert file.name.endswith("-last.safetensors")
