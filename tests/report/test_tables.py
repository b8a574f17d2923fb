"""Numbers and tables of a report."""

import dataclasses
import math

import pytest
from tests.report.recorded import ROUNDS, TARGET, against, record, summarise

from undrift.core.stopping import Goal
from undrift.report import tables
from undrift.report.numbers import Spread
from undrift.report.summary import Summary

GAP, ACCURACY = Goal(metric="gap"), Goal(metric="accuracy")
PLANNED = {"FedAvg": [0, 1], "SCAFFOLD": [0, 1]}


@pytest.fixture
def folder(tmp_path):
    return record(tmp_path / "known")


def found(folder, target=TARGET, planned=PLANNED):
    return summarise(folder.rows(), target, folder.outcomes(), planned)


def column(sheet, name):
    return [cell.text for cell in sheet.column(name)]


def test_means_and_deviations_over_seeds(folder):
    fedavg, scaffold = found(folder)
    first = 0.7**ROUNDS
    assert fedavg.ends["gap"].mean == pytest.approx(1.5 * first)
    assert fedavg.ends["gap"].sd == pytest.approx(first / math.sqrt(2))
    assert fedavg.best == fedavg.ends["gap"] and fedavg.statuses == {"done": 2}
    assert (fedavg.reached, fedavg.needed["rounds"].mean) == (0, None)
    assert scaffold.reached == 2 and scaffold.needed["rounds"].mean == 5.5  # 1e-5, and 2e-6
    assert scaffold.needed["bytes"].mean == 400 * 5.5 and scaffold.needed["vectors"].mean == 4 * 5.5
    assert scaffold.needed["seconds"].mean == (0.5 * 5 + 1.0 * 6) / 2
    assert fedavg.end("round").mean == ROUNDS and fedavg.end("gradients").mean == 12 * ROUNDS


def test_the_best_need_not_be_the_last():
    rows = [
        {"label": "a", "seed": 0, "round": k, "accuracy": value, "vectors": k, "gradients": k}
        for k, value in enumerate((0.1, 0.9, None, 0.4))
    ]
    (found,) = summarise(rows, 0.8)
    assert found.best == Spread(0.9) and found.ends["accuracy"] == Spread(0.4)
    assert found.needed["rounds"].mean == 1 and found.needed["bytes"].mean is None


def test_what_was_planned_and_not_run_is_unfinished(tmp_path):
    folder = record(tmp_path / "half", ended=False)
    fedavg, scaffold, third = found(folder, planned=PLANNED | {"third": [0, 1, 2]})
    assert fedavg.statuses == {"done": 1, "unfinished": 1}
    assert scaffold.statuses == {"unfinished": 2} and third.statuses == {"unfinished": 3}
    sheet = tables.results([fedavg, scaffold, third], TARGET)
    assert column(sheet, "outcome") == [
        "all rounds run (1), unfinished (1)",
        "unfinished",
        "unfinished",
    ]
    assert [cell.kind for cell in sheet.column("outcome")] == ["open"] * 3
    assert column(sheet, "seeds") == ["2", "2", "0 of 3"]


def test_the_worst_end_is_the_one_that_is_seen():
    mixed = Summary("a", statuses={"done": 2, "diverged": 1})
    assert mixed.status == "all rounds run (2), diverged (1)"
    assert tables.kind(mixed.statuses) == "bad"
    assert tables.kind(["reached"]) == "good" and tables.kind(["done", "stopped"]) == "open"


def test_only_the_best_of_different_values_is_marked(folder):
    table = tables.results(found(folder), TARGET, wide=True)
    assert "until gap <= 1.5e-05" in table.notes[0]
    assert column(table, "vectors") == ["-", "22"] and column(table, "time") == ["7.5 s", "4.2 s"]
    assert not any(cell.kind for cell in table.column("rounds"))  # only one has a value
    table = tables.results(found(folder, target=0.5), 0.5)
    assert [cell.kind for cell in table.column("rounds")] == ["", "best"]


def test_the_winners(folder):
    tiles = {
        tile.title: (tile.value, tile.detail) for tile in tables.tiles(found(folder), GAP, TARGET)
    }
    assert tiles["Fewest rounds"] == ("SCAFFOLD", "6 until gap <= 1.5e-05")
    assert tiles["Did not reach"] == ("FedAvg", "gap <= 1.5e-05")
    three = {"rounds": Spread(3)}
    several = [Summary(label, seeds=1, needed=three, reached=1) for label in "abcd"]
    assert tables.tiles(several, GAP, TARGET)[0].value == "a, b and 2 more"
    ends = [
        Summary(label, seeds=1, ends={"accuracy": Spread(value)})
        for label, value in (("a", 0.2), ("b", 0.3))
    ]
    (tile,) = tables.tiles(ends, ACCURACY, None)
    assert (tile.title, tile.value, tile.detail) == ("Best final accuracy", "b", "30.00 %")


def test_what_seeds_vary_is_said_where_there_are_several(folder):
    several = found(folder)
    notes = " ".join(tables.results(several, TARGET, varied=["cohorts (same split)"]).notes)
    assert "standard deviation" in notes and "seeds vary cohorts (same split)" in notes
    rows = [row for row in folder.rows() if row["seed"] == 0]
    one = summarise(rows, TARGET, folder.outcomes()[:2])
    table = tables.results(one, TARGET, varied=["cohorts (same split)"])
    assert not any("means" in note or "±" in note or "cohorts" in note for note in table.notes)


def test_methods_with_several_exchanges_a_round_are_named():
    ends = {name: {"round": Spread(10), "syncs": Spread(n)} for name, n in (("a", 10), ("b", 20))}
    summaries = [Summary(label, seeds=1, ends=end) for label, end in ends.items()]
    notes = tables.results(summaries).notes
    assert "b: 2 exchanges a round" in notes and not any("a: " in note for note in notes)
    assert not any("a round" in note for note in tables.results(summaries[:1]).notes)


def test_what_no_seed_changes_has_no_deviation(folder):
    first, *_ = folder.outcomes()
    twin = dataclasses.replace(first, seed=1, same_as=0)
    rows = [row for row in folder.rows() if (row["label"], row["seed"]) == ("FedAvg", 0)]
    (found,) = summarise(rows, TARGET, [first, twin])
    sheet = tables.results([found], TARGET, varied=["cohorts"])
    assert "seeds" not in sheet.head and "±" not in column(sheet, "final gap")[0]
    assert "run once, for no seed changes it: FedAvg" in sheet.notes
    assert column(sheet, "outcome") == ["all rounds run"]


def test_a_method_that_diverged_wins_nothing_by_the_rows_before(folder):
    outcomes = [
        dataclasses.replace(one, status="diverged") if one.key == ("SCAFFOLD", 1) else one
        for one in folder.outcomes()
    ]
    rows = [{n: v for n, v in row.items() if n != "gap"} for row in folder.rows()]
    found = summarise(rows, None, outcomes, PLANNED)
    fedavg, scaffold = found
    assert fedavg.end("accuracy").mean is not None and scaffold.end("accuracy").mean is None
    assert (scaffold.end("loss").mean, scaffold.end("drift").mean) == (None, None)
    assert scaffold.end("round").mean == 5.5 and scaffold.end("bytes").mean == 400 * 5.5
    (tile,) = tables.tiles(found, ACCURACY, None)
    assert tile.value == "FedAvg"
    assert column(tables.results(found), "final accuracy")[1] == "-"
    for baseline in ("FedAvg", "SCAFFOLD"):
        (one,) = against(rows, outcomes, "accuracy", None, baseline)
        assert (one.final.seeds, one.final.mean, one.final.low) == (2, None, None)


def test_runs_without_the_measure_have_not_missed_the_target(folder):
    other = [
        {n: v for n, v in row.items() if n != "gap"} | {"label": "a network"}
        for row in folder.rows()
        if row["label"] == "FedAvg"
    ]
    known = summarise([*folder.rows(), *other], TARGET)
    (late,) = (t for t in tables.tiles(known, GAP, TARGET) if t.title == "Did not reach")
    assert late.value == "FedAvg"
