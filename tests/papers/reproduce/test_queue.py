"""What is run next."""

import json

import pytest

from undrift.cli import main
from undrift_papers.reproduce import queue
from undrift_papers.reproduce.cache import Cache
from undrift_papers.reproduce.items import item, names
from undrift_papers.reproduce.perform import ItemOptions, wants


@pytest.fixture
def everywhere(monkeypatch):
    """As if all data were here."""
    monkeypatch.setattr(queue, "missing", lambda spec: "")


def test_every_run_on_cifar_is_in_the_queue_once(tmp_path, everywhere):
    options, listed = ItemOptions(device="cuda"), {}
    for one in queue.due(Cache(tmp_path), options):
        assert 0.5 < one.minutes < 15, one
        for want in one.runs:
            assert "cifar" in want.spec.problem.data
            assert want.rounds > listed.get(want.key, 0), f"{one.item.name} {want} is there twice"
            listed[want.key] = want.rounds
    for name in (name for name in names() if item(name).runs):
        for panel in item(name).panel:
            for want in wants(item(name), panel, options):
                if vars(want.spec.problem).get("data") in ("cifar10", "cifar100"):
                    assert listed.get(want.key, 0) >= want.rounds, f"{name} {want} is not there"


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


def test_what_another_process_runs_is_not_next(tmp_path, everywhere):
    """Else the minutes of one are kept for the work of the other."""
    cache, options = Cache(tmp_path), ItemOptions(device="cuda")
    first, second = queue.following(cache, options, None)[:2]
    busy = cache.folder(first.runs[0].key)
    busy.path.mkdir(parents=True)
    assert not cache.at_work(first.runs[0])
    busy.lock()
    (now, *_) = queue.following(cache, options, None)
    assert (now.panel.name, now.label) == (second.panel.name, second.label)
    busy.close()
    assert queue.following(cache, options, None)[0].runs == first.runs


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
