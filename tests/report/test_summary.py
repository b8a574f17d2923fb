"""What each method needed, from rows."""

import pytest

from undrift.report.summary import aim, metric, print_summaries, summarise


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
    assert (s.seeds, s.reached, s.rounds, s.vectors, s.gradients) == (2, 2, 2.0, 4.0, 100.0)
    assert s.final == pytest.approx(0.03) and s.seconds == 1.25 and s.metric == "gap"


def test_a_seed_that_misses_the_target_leaves_no_mean():
    found = summarise(rows("A", 0, [1.0, 0.1]) + rows("A", 1, [1.0, 0.5]), target=0.1)
    assert (found[0].reached, found[0].rounds, found[0].final) == (1, None, 0.3)
    assert "1 of 2 seeds reached it" in print_summaries(found, 0.1)


def test_without_a_target_a_millionth_of_the_first_gap():
    high, low = summarise(rows("A", 0, [100.0, 1e-3, 5e-5]) + rows("B", 0, [1e-3, 1e-4, 1e-8]))
    assert (high.rounds, low.rounds) == (2.0, None)


def test_a_value_that_was_not_finite_is_no_end():
    (s,) = summarise(rows("A", 0, [1.0, None]), target=0.1)
    assert s.final is None and s.rounds is None
    assert "  -  " in print_summaries([s], 0.1)


def test_the_loss_where_the_optimum_is_not_known():
    found = summarise(rows("A", 0, [2.0, 1.0], column="loss"))
    assert (found[0].metric, found[0].final, found[0].rounds) == ("loss", 1.0, None)
    assert summarise(rows("A", 0, [2.0, 1.0], column="loss"), target=1.5)[0].rounds == 1
    assert "final loss" in print_summaries(found, None)


def test_labels_cannot_command_the_terminal():
    assert "\x1b" not in print_summaries(summarise(rows("A\x1b[2J", 0, [1.0])), None)


def test_an_accuracy_is_reached_from_below_and_is_percent():
    found = summarise(
        rows("A", 0, [0.1, 0.6, 0.5, 0.7], "accuracy") + rows("A", 1, [0.1, 0.2, 0.8], "accuracy"),
        0.6,
    )
    (s,) = found
    assert (s.metric, s.reached, s.rounds, s.final) == ("accuracy", 2, 1.5, 0.75)
    text = print_summaries(found, 0.6, note="JPEG q80")
    assert (
        "  accuracy (JPEG q80)" in text
        and "75.00 ± 7.07 %" in text
        and "accuracy >= 60.00 %" in text
    )


def test_the_gap_comes_first_then_the_accuracy_then_the_loss():
    both = [row | {"loss": 1.0, "accuracy": 0.5} for row in rows("A", 0, [1.0])]
    assert metric(both) == "gap"
    assert metric([row | {"gap": None} for row in both]) == "accuracy"
    assert metric(rows("A", 0, [1.0], "loss")) == "loss"
    spec = {"target": 1e-3, "target_accuracy": 0.5}
    assert (aim(spec, "gap"), aim(spec, "accuracy"), aim({}, "loss")) == (1e-3, 0.5, None)


def test_without_a_goal_what_was_spent_in_all():
    found = summarise(
        rows("A", 0, [0.1, 0.2, 0.3], "accuracy") + rows("B", 0, [0.1, 0.4], "accuracy")
    )
    assert [s.rounds for s in found] == [None, None]
    assert found[0].total == {
        "rounds": 2,
        "vectors": 4,
        "gradients": 100,
        "bytes_up": None,
        "bytes_down": None,
    }
    lines = print_summaries(found, None).splitlines()
    assert lines[2].split()[:4] == ["A", "2", "4", "100"] and "spent in all" in lines[5]
