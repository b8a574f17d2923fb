"""``export``: a model of a run as a file of its own."""

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from tests.cli import conftest

from undrift.cli import main
from undrift.records.folder import BadFolder, Folder
from undrift.records.models import find, read


def told(capsys, *words):
    return conftest.told(capsys, "export", *words)


def load(*which, **best):
    return read(find(Folder(Path("runs/mine")), *which, **best)[1])


@pytest.fixture
def run(place, capsys):
    main(["run", "spec.toml", "-s", "cohort=2", "-s", "seed=[0, 3]", "-s", "method.FedAvg.lr=0.1"])
    capsys.readouterr()
    return place


def test_a_model_becomes_a_file(run, capsys):
    code, out, _ = told(capsys, "mine", "SCAFFOLD", "--seed", "3", "-o", "deep/er.safetensors")
    assert code == 0 and out == "deep/er.safetensors\n"
    assert torch.equal(load_file("deep/er.safetensors")["x"], load("SCAFFOLD", 3)["x"])
    words = ["runs/mine", "FedAvg", "--seed", "0", "--best", "-o", "best.safetensors", "--json"]
    code, out, _ = told(capsys, *words)
    answer = json.loads(out)
    assert code == 0 and (answer["which"], answer["seed"], answer["metric"]) == ("best", 0, "gap")
    assert torch.equal(load_file("best.safetensors")["x"], load("FedAvg", 0, best=True)["x"])


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (["mne", "FedAvg", "--seed", "0"], "did you mean mine"),
        (["mine", "FedAvgg", "--seed", "0"], "did you mean FedAvg?"),
        (["mine", "FedAvg"], "seeds 0, 3: add --seed N"),
        (["mine", "FedAvg", "--seed", "1"], "seeds 0, 3: add --seed N"),
    ],
)
def test_what_is_not_there_is_refused(run, capsys, words, reason):
    code, out, err = told(capsys, *words, "-o", "x.safetensors")
    assert code == 2 and out == "" and reason in err and not (run / "x.safetensors").exists()


@pytest.mark.parametrize("name", ["x.txt", "x.pt", "x"])
def test_other_formats_are_refused(run, capsys, name):
    code, out, err = told(capsys, "mine", "FedAvg", "--seed", "0", "-o", name)
    assert code == 2 and out == "" and ".safetensors" in err and not (run / name).exists()


def test_nothing_is_replaced_unasked(run, capsys):
    (run / "x.safetensors").write_text("precious")
    words = ["mine", "FedAvg", "--seed", "0", "-o", "x.safetensors"]
    code, _, err = told(capsys, *words)
    assert code == 2 and "--overwrite" in err and (run / "x.safetensors").read_text() == "precious"
    assert told(capsys, *words, "--overwrite")[0] == 0
    assert told(capsys, *words[:-1], "runs")[0] == 2


def test_a_method_that_no_seed_changes_needs_none(place, capsys):
    main(["run", "spec.toml", "-s", "seed=[0, 3]"])
    for words in ([], ["--seed", "0"], ["--seed", "3"]):
        out = f"x{len(words)}.safetensors"
        assert told(capsys, "mine", "FedAvg", *words, "-o", out, "--overwrite")[0] == 0
    assert (place / "x0.safetensors").read_bytes() == (place / "x2.safetensors").read_bytes()


@pytest.mark.parametrize(
    "damage", [lambda b: b[:-3] + bytes([b[-3] ^ 1]) + b[-2:], lambda b: b + b"x", lambda b: b""]
)
def test_a_damaged_model_is_refused(run, capsys, damage):
    (file,) = (run / "runs/mine/models").glob("*-SCAFFOLD-3-last.safetensors")
    file.write_bytes(damage(file.read_bytes()))
    code, out, err = told(capsys, "mine", "SCAFFOLD", "--seed", "3", "-o", "x.safetensors")
    assert code == 2 and out == "" and file.name in err and not (run / "x.safetensors").exists()
    with pytest.raises(BadFolder):
        load("SCAFFOLD", 3)


def test_that_a_method_diverged_is_said(place, capsys):
    main(["run", "spec.toml", "-s", "method.FedAvg.lr=1e6"])
    capsys.readouterr()
    code, _, err = told(capsys, "mine", "FedAvg", "-o", "x.safetensors")
    assert code == 0 and "diverged" in err
