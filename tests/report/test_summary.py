"""What each method needed, from rows."""

import dataclasses
import math

import pytest
from tests.report.recorded import against, summarise

from undrift.core.stopping import USUALLY, Goal
from undrift.records.folder import Outcome
from undrift.report.numbers import UNKNOWN
from undrift.report.summary import COUNTED, aim, partly
from undrift.report.tables import Tile, results, tiles

ACCURACY = Goal(metric="accuracy")


def printed(summaries, target, **about):
    return results(summaries, target, **about).text(math.inf)


def rows(label, seed, gaps, column="gap"):
    return [
        {
            "label": label,
            "seed": seed,
            "round": k,
            "vectors": 2 * k,
            "gradients": 50 * k,
            "seconds": 0.5 * k,
            column: g,
        }
        for k, g in enumerate(gaps)
    ]


def test_spent_until_the_target_as_means_over_seeds():
    (s,) = summarise(
        rows("A", 0, [1.0, 0.1, 0.01]) + rows("A", 1, [1.0, 0.5, 0.2, 0.05]), target=0.1
    )
    assert (s.seeds, s.reached, s.needed["rounds"].mean) == (2, 2, 2.0)
    assert (s.needed["vectors"].mean, s.needed["gradients"].mean) == (4.0, 100.0)
    assert s.end("gap").mean == pytest.approx(0.03) and s.end("seconds").mean == 1.25
    assert s.metric == "gap"


def test_a_seed_that_misses_the_target_leaves_no_mean():
    found = summarise(rows("A", 0, [1.0, 0.1]) + rows("A", 1, [1.0, 0.5]), target=0.1)
    assert (found[0].reached, found[0].needed["rounds"].mean, found[0].end("gap").mean) == (
        1,
        None,
        0.3,
    )
    assert "1 of 2 seeds reached it" in printed(found, 0.1)


def test_without_a_target_a_millionth_of_the_first_gap():
    high, low = summarise(rows("A", 0, [100.0, 1e-3, 5e-5]) + rows("B", 0, [1e-3, 1e-4, 1e-8]))
    assert (high.needed["rounds"].mean, low.needed["rounds"].mean) == (2.0, None)


def test_a_value_that_was_not_finite_is_no_end():
    (s,) = summarise(rows("A", 0, [1.0, None]), target=0.1)
    assert s.end("gap").mean is None and s.needed["rounds"].mean is None
    assert "  -  " in printed([s], 0.1)


def test_the_loss_where_the_optimum_is_not_known():
    found = summarise(rows("A", 0, [2.0, 1.0], column="loss"))
    assert (found[0].metric, found[0].end("loss").mean, found[0].needed["rounds"].mean) == (
        "loss",
        1.0,
        None,
    )
    assert (
        summarise(rows("A", 0, [2.0, 1.0], column="loss"), target=1.5)[0].needed["rounds"].mean == 1
    )
    assert "final loss" in printed(found, None)


def test_labels_cannot_command_the_terminal():
    assert "\x1b" not in printed(summarise(rows("A\x1b[2J", 0, [1.0])), None)


def test_an_accuracy_is_reached_from_below_and_is_percent():
    found = summarise(
        rows("A", 0, [0.1, 0.6, 0.5, 0.7], "accuracy") + rows("A", 1, [0.1, 0.2, 0.8], "accuracy"),
        0.6,
    )
    (s,) = found
    assert (s.metric, s.reached) == ("accuracy", 2)
    assert (s.needed["rounds"].mean, s.end("accuracy").mean) == (1.5, 0.75)
    text = printed(found, 0.6, note="JPEG q80")
    for part in ("  final accuracy (JPEG q80)", "75.0 ± 7.1 %", "accuracy >= 60.00 %"):
        assert part in text


def test_the_gap_comes_first_then_the_accuracy_then_the_loss():
    both = [row | {"loss": 1.0, "accuracy": 0.5} for row in rows("A", 0, [1.0])]
    assert USUALLY.column(*both) == "gap"
    assert USUALLY.column(*[row | {"gap": None} for row in both]) == "accuracy"
    assert USUALLY.column(*rows("A", 0, [1.0], "loss")) == "loss"
    spec = {"target": 1e-3, "target_accuracy": 0.5}
    assert (aim(spec, "gap"), aim(spec, "accuracy"), aim({}, "loss")) == (1e-3, 0.5, None)


def test_without_a_goal_what_was_spent_in_all():
    found = summarise(
        rows("A", 0, [0.1, 0.2, 0.3], "accuracy") + rows("B", 0, [0.1, 0.4], "accuracy")
    )
    assert [s.needed["rounds"].mean for s in found] == [None, None]
    assert found[0].document()["total"] == {
        "rounds": 2,
        "vectors": 4,
        "gradients": 100,
        "bytes_up": None,
        "bytes_down": None,
    }
    lines = printed(found, None).splitlines()
    assert lines[2].split()[:4] == ["A", "2", "4", "100"] and "spent in all" in lines[5]


def test_rows_of_some_clients_are_marked_and_compared_with_nothing():
    some = {"measured_clients": 2, "all_clients": 3}
    whole = rows("A", 0, [0.1, 0.5, 0.6], "accuracy")
    left = [*rows("B", 0, [0.1, 0.4], "accuracy"), rows("B", 0, [0, 0, 0.9], "accuracy")[2] | some]
    found = summarise([*whole, *left], 0.6)
    a, b = found
    assert (a.partial, a.measured, a.document()["measured"]) == (0, {}, None)
    assert (b.partial, b.measured, b.document()["measured"]) == (1, some, some)
    assert (b.reached, b.best.mean, b.end("accuracy").mean) == (0, 0.4, 0.9)
    text = printed(found, 0.6)
    assert "90.00 % (on 2 of 3 clients)" in text and len(partly(found)) == 1
    assert not partly([a]) and "clients)" not in printed([a], 0.6)
    (apart,) = against([*whole, *left], None, "accuracy", 0.6, "A")
    assert apart.final.mean is None and apart.rounds.mean is None
    (best,) = tiles(found, ACCURACY, None)
    assert best.value == "A"
    table = results(found)
    assert {cell.kind for cell in table.column("final accuracy")} == {""}
    assert partly(found)[0] in table.notes


def test_a_seed_that_did_not_end_is_unfinished_and_without_rows_nothing_is_known():
    ended = Outcome("A", "FedAvg", 0, "done", {}), Outcome("B", "GD", 0, "failed", {})
    both, none = summarise(rows("A", 0, [1.0]) + rows("A", 1, [1.0]), outcomes=ended)
    assert both.statuses == {"done": 1, "unfinished": 1}
    assert both.status == "all rounds run (1), unfinished (1)"
    document = none.document()
    assert (none.label, none.statuses, document["seconds"]) == ("B", {"failed": 1}, None)
    assert document["sd"] == dict.fromkeys(["final", "loss", "drift", *COUNTED])
    last = printed([both, none], None).splitlines()[3]
    assert (both.end("gap"), both.best) == (UNKNOWN, UNKNOWN)
    assert last.split() == ["B", "0", "of", "1", "-", "-", "-", "-", "-", "failed"]


def test_a_method_that_is_unfinished_is_compared_with_nothing():
    name = "FedAvg, calibrated"
    whole = rows("FedAvg", 0, [0.1, 0.19, 0.5, 0.7], "accuracy")
    half = rows(name, 0, [0.1, 0.36], "accuracy")
    ended = [Outcome("FedAvg", "FedAvg", 0, "done", {})]
    found = summarise([*whole, *half], 0.6, ended, rounds={"FedAvg": 3, name: 3})
    assert found[1].status == "unfinished: 1 of 3 rounds" and found[1].best == UNKNOWN
    assert found[1].end("accuracy").mean is None and found[1].end("round").mean == 1
    assert "has no end" in printed(found, 0.6)
    for baseline in ("FedAvg", name):
        for target in (0.15, 0.6):
            (one,) = against([*whole, *half], ended, "accuracy", target, baseline)
            assert one.final.mean is None and one.rounds.mean is None
    (card,) = tiles(found, ACCURACY, 0.6)
    assert card == Tile("Unfinished", f'"{name}"', "1 of 3 rounds")
    late = Outcome(name, "FedAvg", 0, "stopped", {})
    assert summarise(half, 0.6, [late], rounds={name: 3})[0].status == "stopped: 1 of 3 rounds"


def test_bytes_are_shown_where_some_vectors_travel_only_in_part():
    sent = {"bytes_up": 8000, "bytes_down": 8000}
    whole = [row | {k: v * row["round"] for k, v in sent.items()} for row in rows("A", 0, [1, 0.1])]
    part = [row | {"label": "B", "bytes_up": row["bytes_up"] // 8} for row in whole]
    assert "bytes" not in printed(summarise(whole, 0.1), 0.1)
    text = printed(summarise(whole + part, 0.1), 0.1)
    assert text.splitlines()[0].split()[:5] == ["method", "rounds", "vectors", "gradients", "bytes"]
    assert "16.0 kB" in text and "9.0 kB" in text and "bytes: those that travel" in text


def test_a_note_names_its_seed_where_there_are_several():
    ended = [Outcome("A", "FedAvg", 0, "done", {}), Outcome("A", "FedAvg", 1, "early", {}, "why")]
    both = rows("A", 0, [1.0]) + rows("A", 1, [1.0])
    assert summarise(both, None, ended)[0].note == "(seed 1) why"
    twin = dataclasses.replace(ended[1], seed=2, same_as=1)
    assert summarise(rows("A", 1, [1.0]), None, [ended[1], twin])[0].note == "why"
