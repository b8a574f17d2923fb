"""The examples run, and show what their comments say."""

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from undrift.cli import main
from undrift.spec.reader import load

EXAMPLES = Path(__file__).parents[1] / "examples"


def test_the_first_spec_compares_at_equal_steps():
    spec = load(EXAMPLES / "first.toml")
    by_hand = {
        entry.label: entry.given["lr"] for entry in spec.entries if entry.given["lr"] != "theory"
    }
    assert list(by_hand) == ["FedAvg", "SCAFFOLD", "FedRecu", "FedCET"] and set(
        by_hand.values()
    ) == {0.1}


def test_what_the_first_spec_shows(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main(["run", str(EXAMPLES / "first.toml"), "--json"]) == 0
    rows = {row["label"]: row for row in json.loads(capsys.readouterr().out)["methods"]}
    assert rows.pop("FedAvg")["final"] > 1e-5
    assert all(row["final"] <= 1e-10 for row in rows.values())
    equal = [rows[label] for label in ("SCAFFOLD", "FedRecu", "FedCET")]
    assert max(row["rounds"] for row in equal) <= 1.05 * min(row["rounds"] for row in equal)
    assert rows["FedCET"]["vectors"] <= 0.55 * rows["SCAFFOLD"]["vectors"]


def test_what_the_spec_of_failing_clients_shows(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main(["run", str(EXAMPLES / "faults.toml"), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    rows = {row["label"]: row for row in found["methods"]}
    assert rows["Scaffold"]["final"] <= 1e-6 < rows["FedAvg"]["final"]
    left_out = [row for row in found["left_out"] if row["label"] == "FedAvg"]
    assert len(left_out) == 10
    (third,) = (row for row in left_out if row["client"] == 3)
    assert third["times"] == max(row["times"] for row in left_out) and len(third["reasons"]) == 3


def test_the_spec_of_a_network_is_good():
    assert load(EXAMPLES / "images.toml").problem_name == "images"


def shown(name, folder):
    """What an example prints."""
    file = shutil.copy(EXAMPLES / name, folder)
    done = subprocess.run(
        [sys.executable, file], cwd=folder, capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr
    assert not done.stderr
    return done.stdout


def test_own_data_and_own_loop(tmp_path):
    fedavg, scaffold = shown("own_data.py", tmp_path).split("Scaffold")
    last = [
        float(text.splitlines()[7].split()[1]) for text in (fedavg.strip(), "\n" + scaffold.strip())
    ]
    assert last[0] > 1e-5 > 1e-12 > last[1]


LEARNT = {
    "own_tensors.py": (r"(?:loss|->) (\d\S+)", lambda first, last: last < 0.1 * first),
    "given_weights.py": (r"accuracy (\S+)%", lambda first, last: last > 80 > first > 30),
    "regression.py": (r"error (\S+),", lambda first, *_, last: last < 0.7 * first),
    "text.py": (r"right (\S+)%", lambda first, *_, last: last > 20 > first),
    "text_classification.py": (r"right (\S+)%", lambda first, *_, last: last > 50 > 30 > first),
    "fine_tuning.py": (r"(\S+)%", lambda first, last: last > 65 > first),
    "low_rank.py": (r"(\S+)%", lambda first, last: last > 60 > 20 > first),
    "local_adamw.py": (r"accuracy (\S+)%", lambda first, *_, last: last > 85 > 30 > first),
    "per_client.py": (r"tenth (\S+)%", lambda fedavg, last: last > fedavg + 10),
    "early_stopping.py": (r"loss (\d\S+),", lambda ended, last: last < ended - 0.005),
    "resume.py": (r"accuracy (\S+)%, same bits: True", lambda last: last > 90),
    "dataset_per_client.py": (r"(\S+) %", lambda fedavg, last: min(fedavg, last) > 90),
}
"""How numbers are found in what an example prints, and what they show."""


OFTEN = ("own_tensors.py", "text.py", "per_client.py", "resume.py")


@pytest.mark.covering(1)
@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=() if n in OFTEN else pytest.mark.whole) for n in LEARNT]
)
def test_own_networks_learn(name, tmp_path):
    pattern, learnt = LEARNT[name]
    *others, last = map(float, re.findall(pattern, shown(name, tmp_path)))
    assert learnt(*others, last=last)


@pytest.mark.parametrize("name", LEARNT)
def test_an_example_is_short(name):
    code = (EXAMPLES / name).read_text(encoding="utf-8").split('"""\n', 1)[1]
    assert sum(bool(line.strip()) for line in code.splitlines()) <= 30


def test_all_methods_on_four_hospitals(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    words = ["--all", "--json", "-s", "rounds=12"]
    assert main(["advise", str(EXAMPLES / "hospitals.toml"), *words]) == 0
    found = json.loads(capsys.readouterr().out)
    assert len(found["methods"]) == 36 and not found["refused"]
    gaps = {one["method"]: one["value"] for one in found["methods"]}
    assert gaps["FedDyn"] < 0.1 * gaps["FedAvg"]
