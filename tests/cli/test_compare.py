"""``compare`` reads folders."""

import json
import os
import subprocess
import sys

import numpy as np
import pytest
from tests.report.recorded import TARGET, record

import undrift as ud
from undrift.cli import main
from undrift.problems import Quadratic


@pytest.fixture
def runs(place, capsys):
    for name, lr in (("slow", 0.005), ("fast", 0.05)):
        flags = [f"name={name}", f"method.lr={lr}", "rounds=150", "seed=[0, 1]", 'vary=["split"]']
        main(["run", "spec.toml", *(word for flag in flags for word in ("-s", flag))])
    capsys.readouterr()
    return place


def test_runs_side_by_side(runs, capsys):
    assert main(["compare", "slow", "runs/fast", "--json", "--target", "1e-2"]) == 0
    rows = {row["label"]: row for row in json.loads(capsys.readouterr().out)["methods"]}
    assert list(rows) == ["slow: FedAvg", "slow: SCAFFOLD", "fast: FedAvg", "fast: SCAFFOLD"]
    assert rows["fast: SCAFFOLD"]["rounds"] < rows["slow: SCAFFOLD"]["rounds"]
    assert rows["fast: SCAFFOLD"]["seeds"] == 2 == rows["fast: SCAFFOLD"]["reached"]
    assert rows["fast: FedAvg"]["rounds"] is None and rows["fast: FedAvg"]["final"] > 1e-2
    assert rows["slow: FedAvg"]["final"] < rows["fast: FedAvg"]["final"]


def test_the_table_of_one_run_and_its_figure(runs, capsys):
    assert main(["compare", "fast", "--plot", "curves.svg"]) == 0
    out, err = capsys.readouterr()
    assert [line.split()[0] for line in out.splitlines()[2:4]] == ["FedAvg", "SCAFFOLD"]
    assert "gap <= 1e-06 of the first, mean over seeds" in out
    assert "seeds vary data (same random draws)" in out
    assert "curves.svg" in err and "<svg" in (runs / "curves.svg").read_text()


def test_the_target_of_the_spec(runs, capsys):
    main(["run", "spec.toml", "-s", "name=aimed", "-s", "target=0.5"])
    capsys.readouterr()
    main(["compare", "aimed"])
    assert "until gap <= 0.5" in capsys.readouterr().out
    main(["compare", "aimed", "fast"])
    assert "of the first" in capsys.readouterr().out


@pytest.fixture
def two(tmp_path, monkeypatch):
    """A run judged by its gap and one judged by its accuracy, of two seeds each."""
    monkeypatch.chdir(tmp_path)
    record(tmp_path / "runs" / "convex")
    record(tmp_path / "runs" / "network", gap=None)
    return tmp_path


def test_runs_judged_by_different_measures_get_a_table_each(two, capsys):
    assert main(["compare", "network", "convex", "--plot", "both.svg"]) == 0
    out = capsys.readouterr().out
    accuracy, gap = out.split("Judged by gap: convex")
    assert accuracy.startswith("Judged by accuracy: network")
    assert "accuracy" in accuracy and "gap" not in accuracy and "network: SCAFFOLD" in accuracy
    assert "final gap" in gap and "network" not in gap and f"until gap <= {TARGET:g}" in gap
    row = next(line for line in gap.splitlines() if line.startswith("convex: SCAFFOLD"))
    assert row.split()[2:6] == ["2", "5.50", "±", "0.71"]
    svg = (two / "both.svg").read_text()
    assert all(label in svg for label in ("convex: FedAvg", "network: SCAFFOLD"))


def test_their_json_has_the_measure_and_the_target_of_each_method(two, capsys):
    assert main(["compare", "network", "convex", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["target"] is None
    judged = [(row["metric"], row["target"]) for row in found["methods"]]
    assert judged == [("accuracy", None)] * 2 + [("gap", TARGET)] * 2


def test_runs_on_different_samples_are_remarked(tmp_path, capsys):
    folders = {of: record(tmp_path / of, gap=None) for of in ("test", "train", "also")}
    for name, folder in folders.items():
        of = {"metric_samples": "train" if name == "also" else name}
        folder.file("environment.json").write_text(json.dumps(of))
    remarks = []
    for names in (["test", "train"], ["train", "also"]):
        words = ["compare", *(str(tmp_path / name) for name in names)]
        assert main(words) == 0
        remarks.append("test, on the test samples; train, on the" in capsys.readouterr().out)
        assert main([*words, "--json"]) == 0
        found = json.loads(capsys.readouterr().out)["samples"]
        assert found == {name: "test" if name == "test" else "train" for name in names}
    assert remarks == [True, False]


def test_no_differences_are_taken_between_problems(place, capsys):
    for name, dim in (("small", 4), ("large", 5), ("alike", 5)):
        values = [f"name={name}", f"problem.dim={dim}", "rounds=2"]
        main(["run", "spec.toml", *(word for value in values for word in ("-s", value))])
    capsys.readouterr()
    assert main(["compare", "small", "large"]) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert "between problems: problem.dim is 4 in small, 5 in large" in said
    found = []
    for pair in (["small", "large"], ["large", "alike"]):
        assert main(["compare", *pair, "--json"]) == 0
        read = json.loads(capsys.readouterr().out)
        assert bool(read["mixed"]) == ("small" in pair)
        found.append([row["label"] for row in read["methods"] if row["difference"]])
    assert found == [["small: SCAFFOLD"], ["large: SCAFFOLD", "alike: FedAvg", "alike: SCAFFOLD"]]


def test_nor_between_data_that_only_a_program_has(tmp_path, capsys):
    for name, scale in (("one", 1.0), ("other", 2.0), ("alike", 2.0)):
        a = scale * np.array([[[1.0, 0.0], [0.0, 2.0]]] * 2)
        problem = Quadratic(a, np.ones((2, 2)))
        ud.run({"a": ud.FedAvg(lr=0.1)}, problem, rounds=2, save=tmp_path / name)
    found = []
    for pair in (["one", "other"], ["other", "alike"]):
        assert main(["compare", *(str(tmp_path / name) for name in pair), "--json"]) == 0
        read = json.loads(capsys.readouterr().out)
        found.append(
            (len(read["mixed"]), sum(map(bool, (m["difference"] for m in read["methods"]))))
        )
    assert found == [(1, 0), (0, 1)]


def test_one_target_for_two_measures_is_refused(two, capsys):
    with pytest.raises(SystemExit) as end:
        main(["compare", "network", "convex", "--target", "0.5"])
    assert end.value.code == 2 and "accuracy" in capsys.readouterr().err
    assert main(["compare", "convex", "--target", "0.5"]) == 0


def test_everything_wrong_is_listed(runs, capsys):
    with pytest.raises(SystemExit) as end:
        main(["compare", "fst", "runs/nothing"])
    out, err = capsys.readouterr()
    assert end.value.code == 2 and out == ""
    assert "did you mean fast?" in err and "'runs/nothing'" in err
    with pytest.raises(SystemExit):
        main(["compare", "fast", "--plot", "x.exe"])
    assert ".svg" in capsys.readouterr().err


def test_a_label_on_disk_cannot_command_the_terminal(runs, capsys):
    path = runs / "runs/fast/metrics.jsonl"
    path.write_text(path.read_text().replace("SCAFFOLD", "\\u001b[2J"))
    main(["compare", "fast"])
    out = capsys.readouterr().out
    assert "\x1b" not in out and "\\x1b[2J" in out


def test_the_figure_is_there_though_nobody_reads_the_table(runs):
    """As with: undrift compare RUN --plot FILE | head -1."""
    command = [sys.executable, "-m", "undrift", "compare", "fast", "--plot", "f.png"]
    reading, writing = os.pipe()
    os.close(reading)
    subprocess.run(command, stdout=writing, stderr=subprocess.DEVNULL, timeout=60, check=False)
    os.close(writing)
    assert (runs / "f.png").read_bytes().startswith(b"\x89PNG")
