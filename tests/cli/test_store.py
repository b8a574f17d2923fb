"""Where client states are kept: chosen with --store, refused where there is no room."""

import json

import pytest
from tests.cli.conftest import told
from tests.cli.stopping import rows

from undrift.engines import Simulate
from undrift.engines import memory as room


@pytest.fixture(autouse=True)
def temporary(tmp_path_factory, monkeypatch):
    monkeypatch.setenv("TMPDIR", str(tmp_path_factory.mktemp("scratch")))


def test_the_place_changes_no_number_and_may_change_on_the_way(place, capsys, monkeypatch):
    small = ["spec.toml", "-s", "cohort=2", "-s", "rounds=20"]
    assert told(capsys, "run", *small, "--out", "a")[0] == 0
    code, *_ = told(capsys, "run", *small, "--out", "b", "--store", "file")
    assert code == 0 and rows("a/mine") == rows("b/mine")

    run_round = Simulate.run_round
    kinds = []

    def stopping(self):
        kinds.append(self.memory.place)
        if len(kinds) == 30:
            raise KeyboardInterrupt
        run_round(self)

    monkeypatch.setattr(Simulate, "run_round", stopping)
    assert (
        told(capsys, "run", *small, "--out", "c", "--store", "file", "--checkpoint", "0")[0] == 130
    )
    assert told(capsys, "resume", "c/mine", "--store", "device")[0] == 0
    assert (
        {*kinds[:20]} == {"device"} and {*kinds[20:30]} == {"file"} and {*kinds[30:]} == {"device"}
    )
    assert rows("c/mine") == rows("a/mine")


def test_what_does_not_fit_is_refused_before_it_starts(place, capsys, monkeypatch):
    monkeypatch.setattr(room, "SMALL", 0)
    monkeypatch.setattr(room, "free", lambda where, device: {"device": 700, "file": 100}[where])
    for words in (["--check"], []):
        code, out, err = told(capsys, "run", "spec.toml", "-s", "cohort=2", *words)
        assert (code, out) == (2, "") and "spec.toml:4: SCAFFOLD: what 4 clients remember" in err
        assert "TMPDIR" in err and not (place / "runs").exists()
    code, _, err = told(capsys, "run", "spec.toml", "--store", "host")
    assert (
        code == 2 and "engine.store=host: store = 'host' is not allowed: auto, device, file" in err
    )
    code, _, err = told(capsys, "run", "spec.toml", "--store", "file", "-s", "engine=wire")
    assert code == 2 and "engine.store=file: unknown parameter of wire 'store'" in err


def test_check_says_where(place, capsys):
    code, out, _ = told(
        capsys, "run", "spec.toml", "--check", "--json", "-s", "cohort=2", "--store", "file"
    )
    fedavg, scaffold = json.loads(out)["methods"]
    assert code == 0 and (fedavg["place"], scaffold["place"]) == ("device", "file")
    assert scaffold["work_bytes"] == 2 * 12 * 40
    assert (
        "160 B, file"
        in told(capsys, "run", "spec.toml", "--check", "-s", "cohort=2", "--store", "file")[1]
    )
    assert [f.name for f in place.iterdir()] == ["spec.toml"]
