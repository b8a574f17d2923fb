"""The drift of local models: measured where a round has made some, absent everywhere else."""

import json

import numpy as np
import pytest
import torch

import undrift as ud
from undrift.check.federations import quadratic
from undrift.cli import main
from undrift.core import registry
from undrift.engines import Simulate, Wire
from undrift.records.folder import Folder

EVERY = pytest.mark.parametrize("engine", [Simulate, Wire])
SPEC = """\
name = "{name}"
rounds = 3
[problem]
name = "quadratic"
clients = 4
dim = 5
"""
GD = '[[method]]\nname = "GD"\nlr = 0.02\n'
FEDAVG = '[[method]]\nname = "FedAvg"\nlr = 0.02\nsteps = 3\n'


class EverySecond(ud.FedAvg):
    """Trains locally in rounds 1, 3, ... only; sends gradients in the others."""

    def work(self, me, got, f):
        return (
            super().work(me, got, f)
            if f.round % 2 == 0
            else (me, self.Up(**{self.Up.vectors[0]: 0 * got.x}))
        )


registry.pop("EverySecond")


@EVERY
def test_it_is_the_distance_of_this_rounds_models(engine):
    problem = quadratic()
    machine = engine(ud.FedAvg(lr=0.02), problem, steps=2)
    assert machine.drift is None and machine.ends is None
    machine.run_round()
    y = np.zeros((problem.clients, problem.dim))
    for _ in range(2):
        y = y - 0.02 * problem.at(None).grad(torch.as_tensor(y)).numpy()
    assert machine.drift == pytest.approx(np.square(y - y.mean(0)).sum(-1).mean(), rel=1e-12)


@EVERY
@pytest.mark.parametrize(
    "method", [ud.GD(lr=0.02), ud.FedRecu(lr=0.02)], ids=lambda m: type(m).__name__
)
def test_rounds_without_local_models_have_none(engine, method):
    machine = engine(method, quadratic())
    for _ in range(3):
        machine.run_round()
        assert machine.drift is None


@EVERY
def test_models_of_an_earlier_round_are_not_measured(engine):
    machine, seen = engine(EverySecond(lr=0.02), quadratic(), steps=2), []
    for _ in range(4):
        machine.run_round()
        seen.append(machine.drift is None)
    assert seen == [False, True, False, True]


@EVERY
def test_a_restored_engine_has_none_until_its_next_round(engine):
    one, other = (engine(EverySecond(lr=0.02), quadratic(), steps=2) for _ in range(2))
    one.run_round()
    other.run_round()
    other.restore(*one.snapshot())
    assert one.drift is not None and other.drift is None
    one.run_round()
    other.run_round()
    assert one.drift == other.drift
    one.run_round()
    other.run_round()
    assert one.drift is not None and one.drift == other.drift


def test_histories_have_no_zero_in_its_place():
    run = ud.run(ud.FedAvg(lr=0.02), quadratic(), rounds=2, steps=2)
    assert ["drift" in row for row in run.history.rows] == [False, True, True]
    assert np.isnan(run.history["drift"]).tolist() == [True, False, False]
    run = ud.run(ud.GD(lr=0.02), quadratic(), rounds=2)
    assert "drift" not in list(run.history)
    with pytest.raises(KeyError, match="drift was not recorded; there are"):
        run.history["drift"]


def test_folders_reports_and_tables_leave_it_out(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    for name, methods in (("none", GD), ("some", GD + FEDAVG)):
        (tmp_path / f"{name}.toml").write_text(SPEC.format(name=name) + methods)
        assert main(["run", f"{name}.toml"]) == 0
    capsys.readouterr()
    rows = Folder(tmp_path / "runs/some").rows()
    assert [row["round"] for row in rows if "drift" in row and row["method"] == "GD"] == []
    assert [row["round"] for row in rows if "drift" in row and row["method"] == "FedAvg"] == [
        1,
        2,
        3,
    ]
    with pytest.raises(SystemExit) as end:
        main(["compare", "none", "--y", "drift", "--plot", "x.png"])
    assert end.value.code == 2 and "drift: was not measured" in capsys.readouterr().err
    assert (
        main(["compare", "some", "--y", "drift", "--plot", "x.png"]) == 0
        and (tmp_path / "x.png").exists()
    )
    capsys.readouterr()
    assert main(["compare", "some", "--json"]) == 0
    found = {s["label"]: s["drift"] for s in json.loads(capsys.readouterr().out)["methods"]}
    assert found["GD"] is None and found["FedAvg"] > 0
    assert main(["report", "none"]) == 0
    assert 'id="drift"' not in (tmp_path / "runs/none/report.html").read_text()
