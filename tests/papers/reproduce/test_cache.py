"""Runs are kept by what decides them, found again, and gone on with."""

import dataclasses
import json

import pytest

from undrift.core.schedules import Exponential
from undrift.engines.engine import Engine
from undrift_papers.reproduce.cache import Cache, KeptRun, Want
from undrift_papers.reproduce.items import item
from undrift_papers.reproduce.perform import ItemOptions, carry_out, perform, plan, wants
from undrift_papers.reproduce.results import collect


class After:
    """Asks to stop once so many rounds have been looked at."""

    def __init__(self, rounds=10**9):
        self.left = rounds

    @property
    def asked(self):
        self.left -= 1
        return self.left < 0


def wanted(options=ItemOptions(), panel=0):  # noqa: B008
    it = item("toy/figure-1")
    return wants(it, it.panel[panel], options)


def go(cache, runs, stop=None):
    return [(want, why) for want, why in perform(plan(runs), cache, stop or After()) if why]


def rows(cache, want):
    return [{k: v for k, v in row.items() if k != "seconds"} for row in cache.found(want).rows]


@pytest.fixture
def rounds(monkeypatch):
    """Counts the rounds that are run."""
    counted, real = [], Engine.run_round
    monkeypatch.setattr(Engine, "run_round", lambda self: (counted.append(1), real(self))[1])
    return counted


def test_what_is_kept_is_not_run_again(papers, tmp_path, rounds, seeded):
    cache = Cache(tmp_path)
    assert go(cache, wanted()) == [] and len(rounds) == 80
    assert go(cache, wanted()) == [] and len(rounds) == 80
    assert go(cache, wanted(ItemOptions(rounds=20))) == [] and len(rounds) == 80
    assert go(cache, wanted(ItemOptions(seeds=2))) == [] and len(rounds) == 160


def test_what_no_seed_changes_is_run_once(papers, tmp_path, rounds):
    cache = Cache(tmp_path)
    assert go(cache, wanted(ItemOptions(seeds=3))) == [] and len(rounds) == 80
    report = collect(item("toy/figure-1"), ItemOptions(), cache)
    assert report.seeds == 1 and report.unseeded == ["FedAvg", "SCAFFOLD"]
    assert [*map(len, report.shown[0].runs.values())] == [1, 1]
    for want in wanted():
        assert not cache.found(want).seeded
        longer = dataclasses.replace(want, rounds=41, seed=1)
        assert cache.serves(dataclasses.replace(want, seed=1)) and not cache.serves(longer)


def test_runs_on_other_images_are_not_gone_on_with(tmp_path, monkeypatch):
    monkeypatch.delenv("UNDRIFT_DATA", raising=False)
    cache, it = Cache(tmp_path), item("fedspeed/table-7")
    only = ItemOptions(quick=True, only=["none", "prox"], rounds=2)
    one, other = wants(it, it.panel[0], only)
    assert go(cache, [one]) == []
    folder = cache.folder(one.key)
    about = json.dumps(folder.environment | {"note": "JPEG q80"})
    folder.write("environment.json", about.encode())
    assert go(cache, [one]) == []
    longer = dataclasses.replace(one, rounds=3)
    for want in (other, longer):
        ((_, why),) = go(cache, [want])
        assert "other images of digits (JPEG q80, here originals)" in why and "--out" in why
    assert cache.found(other) is None and cache.found(longer).last == 2


def test_rounds_that_come_first_may_draw(papers, tmp_path):
    cache = Cache(tmp_path)
    (want, _) = wanted()
    want = dataclasses.replace(want, start=(want.entry, 1))
    assert go(cache, [want]) == [] and cache.found(want).seeded


def test_a_key_is_all_that_decides_a_run_and_nothing_else(papers):
    want = wanted()[1]
    spec, entry = want.spec, want.entry
    same = [
        dataclasses.replace(want, rounds=7),
        dataclasses.replace(want, entry=dataclasses.replace(entry, label="another", rounds=99)),
        dataclasses.replace(
            want, spec=dataclasses.replace(spec, name="x", device="cuda", target=1e-3, seed=[3])
        ),
    ]
    assert {w.key for w in same} == {want.key}

    def changed(**options):
        new = dataclasses.replace(entry.options, **options)
        return dataclasses.replace(want, entry=dataclasses.replace(entry, options=new))

    other = [
        dataclasses.replace(want, seed=1),
        dataclasses.replace(
            want,
            entry=dataclasses.replace(entry, method=dataclasses.replace(entry.method, lr=0.03)),
        ),
        changed(steps=4),
        changed(schedule=Exponential(rate=0.9)),
        changed(batch=2),
        dataclasses.replace(want, spec=dataclasses.replace(spec, every=1)),
        dataclasses.replace(
            want, spec=dataclasses.replace(spec, problem=dataclasses.replace(spec.problem, seed=1))
        ),
        wanted()[0],
    ]
    assert len({w.key for w in (want, *other)}) == 9


def test_an_interrupted_run_ends_as_if_it_had_not_been(papers, tmp_path, rounds):
    whole, broken = Cache(tmp_path / "whole"), Cache(tmp_path / "broken")
    want = wanted()[1]
    go(whole, [want])
    rounds.clear()
    for k in (13, 11, 10**6):
        go(broken, [want], After(k))
    assert len(rounds) == 40
    assert rows(broken, want) == rows(whole, want)
    one, other = whole.found(want).outcome, broken.found(want).outcome
    assert one.model == other.model != "" and one == other


def test_a_shorter_run_is_continued(papers, tmp_path, rounds):
    whole, cache = Cache(tmp_path / "whole"), Cache(tmp_path / "parts")
    short, want = wanted(ItemOptions(rounds=15))[1], wanted()[1]
    go(whole, [want])
    rounds.clear()
    go(cache, [short])
    assert len(rounds) == 15 and cache.serves(short) and not cache.serves(want)
    go(cache, [want])
    assert len(rounds) == 40 and rows(cache, want) == rows(whole, want)
    assert not list((tmp_path / "parts").rglob("*.safetensors"))


def test_a_run_that_begins_anew_says_when_and_where(papers, tmp_path, rounds, capsys):
    """As the rows of a pack, which has no checkpoints; a run that goes on keeps what it says."""
    here, there = Cache(tmp_path / "here"), Cache(tmp_path / "there")
    short, want = wanted(ItemOptions(rounds=15))[1], wanted()[1]
    go(here, [short])
    folder = here.folder(want.key)
    old = folder.environment | {"date": "2001-01-01"}
    folder.write("environment.json", json.dumps(old))
    folder.conclude(folder.outcomes())
    here.pack(tmp_path / "runs.zip")
    there.unpack(tmp_path / "runs.zip")
    for cache, ran, goes_on in ((there, 40, False), (here, 25, True)):
        rounds.clear()
        assert go(cache, [want]) == [] and len(rounds) == ran and cache.serves(want)
        assert (cache.folder(want.key).environment["date"] == "2001-01-01") is goes_on
        assert ("begins anew" in capsys.readouterr().err) is not goes_on
    assert rows(here, want) == rows(there, want)


def test_what_another_process_has_just_finished_stays(papers, tmp_path, rounds):
    cache, want = Cache(tmp_path), wanted()[1]
    go(cache, [want])
    before = cache.found(want).rows
    carry_out(want, want.spec.problem.build(), cache, After(), "[1/1]")
    assert len(rounds) == 40 and cache.found(want).rows == before


def test_any_precision_serves_unless_one_is_asked_for():
    it = item("fedrecu/figure-1")
    gpu, cpu, exact = (
        wants(it, it.panel[0], ItemOptions(device=device, precision=precision))[0]
        for device, precision in (("cuda", None), ("cpu", None), ("cpu", "f32"))
    )
    assert gpu.key != cpu.key == exact.key
    assert gpu.key == cpu.key_at("bf16")
    assert exact.strict and not cpu.strict


@pytest.mark.filterwarnings("error:.* changed since")
def test_packs_travel(papers, tmp_path, rounds):
    """With whose work was left out, without a user's code; a run that is longer here stays."""
    file = papers / "toy" / "figure-1.toml"
    file.write_text(file.read_text().replace("lr = 0.02", "lr = 1e200", 1))
    here, there = Cache(tmp_path / "here"), Cache(tmp_path / "there")
    go(here, wanted())
    go(there, wanted(ItemOptions(rounds=20))[1:])
    pack = tmp_path / "runs.zip"
    (here.folder(wanted()[1].key).path / "own.py").write_text("")
    here.folder(wanted()[1].key).conclude(here.folder(wanted()[1].key).outcomes())
    assert here.pack(pack) == 2 and here.folder(wanted()[0].key).record().left_out
    rounds.clear()
    assert there.unpack(pack) == 2 and there.unpack(pack) == 0
    assert go(there, wanted()) == [] and not rounds
    for want in wanted():
        one, other = (cache.folder(want.key).record() for cache in (here, there))
        assert one == other


def test_a_run_that_diverges_is_over(papers, tmp_path, rounds):
    text = (papers / "toy" / "figure-1.toml").read_text().replace("lr = 0.02", "lr = 5.0")
    (papers / "toy" / "figure-1.toml").write_text(text)
    cache, runs = Cache(tmp_path), wanted()
    go(cache, runs)
    count = len(rounds)
    assert count < 80 and all(cache.serves(want) for want in runs)
    assert {KeptRun(cache.folder(want.key)).outcome.status for want in runs} == {"diverged"}
    go(cache, runs)
    assert len(rounds) == count


def test_a_run_in_the_hands_of_another_process_is_left_to_it(papers, tmp_path, rounds):
    cache, want = Cache(tmp_path), wanted()[1]
    busy = cache.folder(want.key)
    busy.path.mkdir(parents=True)
    busy.lock()
    assert go(cache, [want]) == [] and not rounds
    busy.close()
    assert go(cache, [want]) == [] and len(rounds) == 40


def test_runs_of_one_problem_come_together_and_once(papers):
    a, b = wanted(), wanted(panel=1)
    groups = plan([*a, *b, *a])
    assert [len(group) for group in groups] == [3]
    assert all(isinstance(want, Want) for group in groups for want in group)
