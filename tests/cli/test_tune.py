"""``tune``: from a spec to tuned values, and on to the run and its table."""

import json

from tests.cli.conftest import told


def test_to_the_end(place, capsys):
    code, out, err = told(capsys, "tune", "spec.toml", "-s", "method.lr=[0.01, 0.04]", "--run")
    assert code == 0 and "runs/mine-tuning/tuned.toml" in err
    assert "best" in out.splitlines()[0] and "tuned over" in out
    assert (place / "runs/mine-tuned/summary.json").exists()
    code, out, _ = told(capsys, "compare", "runs/mine-tuned")
    assert code == 0 and "lr 0.0" in out and "settings" in out
    code, _, _ = told(capsys, "report", "runs/mine-tuned")
    page = (place / "runs/mine-tuned/report.html").read_text()
    assert code == 0 and "tuned over" in page


def test_the_same_command_goes_on_and_another_one_is_refused(place, capsys):
    first = told(capsys, "tune", "spec.toml")
    assert told(capsys, "tune", "spec.toml")[:2] == first[:2]
    code, _, err = told(capsys, "tune", "spec.toml", "-s", "rounds=5")
    assert code == 2 and "--overwrite" in err
    assert told(capsys, "tune", "spec.toml", "-s", "rounds=5", "--overwrite")[0] == 0


def test_for_programs(place, capsys):
    code, out, _ = told(capsys, "tune", "spec.toml", "--json", "-s", "tune.gradients=500")
    found = json.loads(out)
    assert code == 0 and found.keys() == {"FedAvg", "SCAFFOLD"}
    assert found["FedAvg"]["best"].keys() == {"lr"}


def test_unequal_tuning_is_told(place, capsys):
    told(capsys, "tune", "spec.toml", "-s", "method.FedAvg.lr=[0.01, 0.04]", "--run")
    tuned = place / "runs/mine-tuning/tuned.toml"
    text = tuned.read_text()
    lines = [line for line in text.splitlines() if not line.startswith("tuned = ")]
    keeping = text.splitlines()
    first = next(k for k, line in enumerate(keeping) if line.startswith("tuned = "))
    (place / "half.toml").write_text("\n".join([*keeping[:first], *keeping[first + 1 :]]))
    (place / "none.toml").write_text("\n".join(lines))
    _, out, _ = told(capsys, "run", "half.toml", "-s", "name=half")
    assert "unequal tuning: 0 settings of FedAvg, others had up to 7" in out
    _, out, _ = told(capsys, "run", "none.toml", "-s", "name=none")
    assert "tun" not in out
