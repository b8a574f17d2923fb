"""``compare`` reads folders."""

import json

import pytest

from undrift.cli import main


@pytest.fixture
def runs(place, capsys):
    for name, lr in (("slow", 0.005), ("fast", 0.05)):
        main(
            [
                "run",
                "spec.toml",
                "-s",
                f"name={name}",
                "-s",
                f"method.lr={lr}",
                "-s",
                "rounds=150",
                "-s",
                "seeds=[0, 1]",
                "-s",
                'vary=["split"]',
            ]
        )
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
    assert [line.split()[:2] for line in out.splitlines()[2:4]] == [["FedAvg", "2"], ["SCAFFOLD", "2"]]
    assert "gap <= 1e-06 of the first, mean over seeds" in out
    assert "seeds: of data (same coins)" in out
    assert "Drawn to curves.svg" in err and "<svg" in (runs / "curves.svg").read_text()


def test_the_target_of_the_spec(runs, capsys):
    main(["run", "spec.toml", "-s", "name=aimed", "-s", "target=0.5"])
    capsys.readouterr()
    main(["compare", "aimed"])
    assert "until gap <= 0.5" in capsys.readouterr().out
    main(["compare", "aimed", "fast"])
    assert "of the first" in capsys.readouterr().out


def test_everything_wrong_is_listed(runs, capsys):
    with pytest.raises(SystemExit) as end:
        main(["compare", "fst", "runs/nothing", "--plot", "x.exe"])
    out, err = capsys.readouterr()
    assert end.value.code == 2 and out == ""
    assert "did you mean fast?" in err and "'runs/nothing'" in err and ".svg" in err


def test_a_folder_that_is_no_run(runs, capsys):
    (runs / "empty").mkdir()
    with pytest.raises(SystemExit):
        main(["compare", "empty"])
    assert "is not the folder of a run" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        main(["compare", "fast", "--target", "-1"])
    assert "--target" in capsys.readouterr().err


def test_a_label_on_disk_cannot_command_the_terminal(runs, capsys):
    path = runs / "runs/fast/metrics.jsonl"
    path.write_text(path.read_text().replace("SCAFFOLD", "\\u001b[2J"))
    main(["compare", "fast"])
    out = capsys.readouterr().out
    assert "\x1b" not in out and "\\x1b[2J" in out
