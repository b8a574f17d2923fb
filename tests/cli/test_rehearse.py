"""``run --check``: two rounds of everything, nothing written."""

import json

import pytest
from tests.cli import conftest

from undrift.engines import Engine


def told(capsys, *words):
    return conftest.told(capsys, "run", "spec.toml", "--check", *words)


@pytest.fixture
def counted(monkeypatch):
    """How many rounds were run."""
    rounds, run_round = [], Engine.run_round
    monkeypatch.setattr(
        Engine, "run_round", lambda self: rounds.append(self.round) or run_round(self)
    )
    return rounds


def test_what_it_would_take(place, capsys, counted):
    code, out, err = told(
        capsys, "--json", "-s", "rounds=1000000", "-s", "problem.dim=50", "-s", "seed=[0, 1, 2]"
    )
    answer = json.loads(out)
    fedavg, scaffold = answer["methods"]
    assert code == 0 and counted == [0, 1, 0, 1] and "nothing is kept" in err
    assert fedavg["parameters"] == 50 and fedavg["state_bytes"] == 0
    assert scaffold["state_bytes"] == 4 * 1 * 50 * 8 == answer["state_bytes"]
    assert (fedavg["vectors"], scaffold["vectors"]) == (2, 4)
    assert scaffold["full_seconds"] == pytest.approx(
        1e6 * scaffold["round_seconds"] + 1e6 * scaffold["row_seconds"], rel=1e-3
    )
    assert [f.name for f in place.iterdir()] == ["spec.toml"]


@pytest.mark.parametrize(("words", "times"), [([], 1), (["-s", "cohort=2"], 3)])
def test_methods_that_no_seed_changes_are_run_once(place, capsys, words, times):
    _, out, _ = told(capsys, "--json", "-s", "seed=[0, 1, 2]", *words)
    answer = json.loads(out)
    assert answer["seconds"] == pytest.approx(
        times * sum(method["full_seconds"] for method in answer["methods"])
    )


def test_the_table(place, capsys):
    code, out, _ = told(capsys, "-s", "rounds=1")
    lines = out.splitlines()
    assert code == 0 and lines[0].split()[:3] == ["method", "parameters", "client"]
    assert lines[3].startswith("SCAFFOLD") and "160 B" in lines[3] and lines[3].endswith("runs")
    assert lines[-1].startswith("In all: about ") and "160 B of client states" in lines[-1]


@pytest.mark.parametrize("every", [1, 1000])
def test_rows_that_take_most_of_the_time_are_told(place, capsys, monkeypatch, every):
    def seconds(work, number):  # not by a clock: machines stall
        work()
        return 0.001 if work.__name__ == "run_round" else 0.05

    monkeypatch.setattr("undrift.runs.rehearsal.timeit", seconds)
    _, out, _ = told(capsys, "-s", "rounds=1000", "-s", f"every={every}")
    assert ("recording rows takes most" in out) == (every == 1)


def test_what_diverges_or_fails_is_told(place, capsys, monkeypatch):
    code, out, _ = told(capsys, "-s", "method.lr=1e300")
    assert code == 1 and "diverges: try a smaller lr" in out

    def broken(self):
        raise ValueError("there is no such round")

    monkeypatch.setattr(Engine, "run_round", broken)
    code, out, err = told(capsys)
    assert code == 1 and "fails: there is no such round" in out and "Traceback" not in err


def test_a_bad_spec_is_refused_as_ever(place, capsys):
    code, out, err = told(capsys, "-s", "rounds=0")
    assert code == 2 and out == "" and "rounds = 0 is not allowed" in err
