"""What is run next."""

import json

import pytest

from undrift.cli import main
from undrift_papers.reproduce import queue
from undrift_papers.reproduce.cache import Cache
from undrift_papers.reproduce.perform import ItemOptions


@pytest.fixture
def everywhere(monkeypatch):
    """As if all data were here."""
    monkeypatch.setattr(queue, "missing", lambda spec: "")


def test_every_entry_has_runs_that_end(tmp_path, everywhere):
    left = list(queue.due(Cache(tmp_path), ItemOptions(device="cuda")))
    asked = [(one.panel.name, one.item.name, one.label) for one in left]
    assert len(asked) == len(set(asked)) > 100
    assert all(1 < one.minutes <= 9 for one in left if one.item.name != "fedacg/figure-a")
    assert all("cifar" in one.runs[0].spec.problem.data for one in left)


def test_the_first_that_fit_are_taken_and_those_that_are_kept_left_out(
    tmp_path, everywhere, monkeypatch
):
    cache, options = Cache(tmp_path), ItemOptions(device="cuda")
    every = list(queue.due(cache, options))
    taken = queue.following(cache, options, minutes=9)
    assert taken[:2] == every[:2] and sum(one.minutes for one in taken) <= 9
    left = [one for one in every if one not in taken]
    assert all(sum(one.minutes for one in taken) + other.minutes > 9 for other in left)
    kept = {want.key for want in every[0].runs}
    monkeypatch.setattr(Cache, "serves", lambda self, want: want.key in kept)
    assert queue.following(cache, options, None)[0].label == every[1].label


def test_without_the_data_nothing_is_run_and_the_reason_is_told(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(queue, "missing", lambda spec: "no such file")
    assert not queue.following(Cache(tmp_path), ItemOptions(), None)
    with pytest.raises(SystemExit):
        main(["reproduce", "--next", "--out", str(tmp_path)])
    assert capsys.readouterr().err.count("no such file") == 1
    assert main(["reproduce", "--next", "--list", "--json", "--out", str(tmp_path)]) == 0
    assert {row["data"] for row in json.loads(capsys.readouterr().out)} == {"not here"}


def test_the_queue_is_listed(tmp_path, capsys, everywhere):
    assert main(["reproduce", "--next", "--list", "--json", "--out", str(tmp_path)]) == 0
    rows = json.loads(capsys.readouterr().out)
    assert len(rows) > 100 and {row["data"] for row in rows} == {"here"}
    assert set(rows[0]) == {"panel", "method", "rounds", "minutes", "data"}


@pytest.mark.parametrize("words", (["fedacg"], ["--kept"], ["--only", "FedAvg"], ["--rounds", "9"]))
def test_what_the_queue_decides_is_refused_beside_it(words, tmp_path, capsys):
    with pytest.raises(SystemExit) as end:
        main(["reproduce", "--next", *words, "--out", str(tmp_path / "out")])
    assert end.value.code == 2 and "--next takes what the queue says" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()
