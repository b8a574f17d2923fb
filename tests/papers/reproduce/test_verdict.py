"""Numbers read off curves, and the rules they are judged by."""

import dataclasses
import math
from types import SimpleNamespace

import pytest

from undrift_papers.reproduce.items import Column, Panel
from undrift_papers.reproduce.readouts import readout, smoothed, trained
from undrift_papers.reproduce.results import Shown, cells
from undrift_papers.reproduce.verdict import (
    LITTLE,
    NOT,
    NOTHING,
    ORDER,
    REPRODUCED,
    UNTOLD,
    Judgement,
    cell,
    judge,
)

ROWS = [
    {
        "round": 10 * k,
        "accuracy": a,
        "gap": 0.5**k,
        "vectors": 20 * k,
        "seconds": 5.0 + 2 * k if k else 0.0,
    }
    for k, a in enumerate((0.1, 0.5, 0.7, 0.6, 0.8, 0.75))
]


def test_accuracies_are_in_percent():
    assert readout(Column("final"), ROWS, True) == pytest.approx(75)
    assert readout(Column("best"), ROWS, True) == pytest.approx(80)
    assert readout(Column("at", at=20), ROWS, True) == pytest.approx(70)
    assert readout(Column("final", smooth=2), ROWS, True) == pytest.approx(77.5)
    assert smoothed(ROWS, "accuracy", 3)[:3] == pytest.approx([0.1, 0.3, 1.3 / 3])


def test_a_run_that_is_too_short_says_nothing():
    assert readout(Column("final"), ROWS, False) is None
    assert readout(Column("best"), ROWS, False) is None
    assert readout(Column("at", at=1000), ROWS, False) is None
    assert readout(Column("rounds", to=0.9), ROWS, False) is None
    assert readout(Column("rounds", to=0.6), ROWS, False) == 20
    assert readout(Column("slope", of="gap"), ROWS, False) is None


def test_a_run_that_ended_early_stays_where_it_was():
    assert readout(Column("at", at=1000), ROWS, True) == pytest.approx(75)


def test_targets():
    assert readout(Column("rounds", to=0.9), ROWS, True) == math.inf
    assert readout(Column("rounds", of="gap", to=0.2), ROWS, True) == 30
    assert readout(Column("rounds", to=0.55, smooth=2), ROWS, True) == 20
    assert readout(Column("pace"), ROWS, True) == pytest.approx(0.2)
    assert readout(Column("total", to=0.6), ROWS, True) == pytest.approx(4.0)
    with pytest.raises(ValueError, match="to = VALUE"):
        readout(Column("rounds"), ROWS, True)


def test_slopes_jitter_and_savings():
    assert readout(Column("slope", of="gap"), ROWS, True) == pytest.approx(0.5**0.1)
    twice = [row | {"vectors": 3 * row["vectors"]} for row in ROWS]
    assert readout(
        Column("saving", of="gap", to=0.2, than="GD"), ROWS, True, twice
    ) == pytest.approx(3)
    flat = [{"round": k, "accuracy": 0.5 + 0.01 * (k % 2)} for k in range(4)]
    assert readout(Column("jitter", smooth=2), flat, True) == pytest.approx((0 + 3 * 0.5**2) / 4)


def verdict(printed, ours, **more):
    column = Column("final", printed=printed, **more)
    return judge(column, {label: cell(label, column, [value], 1) for label, value in ours.items()})


def test_the_rules():
    printed = {"A": 80, "B": 75, "C": 70.5, "D": 70}
    assert verdict(printed, {"A": 81, "B": 74, "C": 71, "D": 71.5}).verdict == REPRODUCED
    low = verdict(printed, {"A": 71, "B": 66, "C": 60, "D": 61})
    assert low.verdict == ORDER and low == Judgement(0, 4, 4, 5, 5, 5, -10.5)
    assert verdict(printed, {"A": 60, "B": 66, "C": 60, "D": 61}).verdict == NOT
    assert verdict(printed, {"C": 60}).verdict == NOT  # no pair to go by
    assert verdict(printed, {}).verdict == NOTHING
    assert verdict(printed, {"A": 60}, judged=False).verdict == NOTHING
    assert verdict(printed, {"A": 83, "B": 78}, tolerance=3.0).verdict == REPRODUCED


def test_the_order_of_the_rows_does_not_matter():
    """270 and 218 are one, by a fifth of the larger; a tie of ours is not the paper's order,
    whichever comes first.
    """
    column = {"read": "rounds", "to": 0.8}
    for printed, ours, found in (
        ({"A": 270, "B": 218}, {"A": 300.0, "B": 200.0}, (0, 0)),
        ({"A": 280, "B": 218}, {"A": 300.0, "B": 200.0}, (1, 1)),
        ({"A": 280, "B": 218}, {"A": 200.0, "B": 300.0}, (0, 1)),
        ({"A": "-", "B": 218}, {"A": math.inf, "B": math.inf}, (0, 1)),
    ):
        for labels in ("AB", "BA"):
            kept = Column(printed={k: printed[k] for k in labels}, **column)
            judged = judge(kept, {k: cell(k, kept, [ours[k]], 1) for k in labels})
            assert (judged.ordered, judged.pairs) == found


def test_never_is_late_and_agrees_with_never():
    column = {"of": "accuracy"}
    found = Column("rounds", to=0.8, printed={"A": "-", "B": 100, "C": "-"}, **column)
    cells = {k: cell(k, found, [v], 1) for k, v in {"A": math.inf, "B": 115.0, "C": 900.0}.items()}
    assert judge(found, cells) == Judgement(2, 3, 3, ordered=2, pairs=2, stated=2)


def test_a_target_that_is_long_overdue_does_not_agree():
    """Otherwise numbers would count as soon as they agree, and else only at the end of a run."""
    column = Column("rounds", to=0.8, printed={"A": 100, "B": 100, "C": "-", "D": 100})
    run = {"A": (110.0, 500), "B": (None, 119), "C": (None, 500), "D": (None, 121)}
    cells = {label: cell(label, column, [ours], rounds) for label, (ours, rounds) in run.items()}
    assert [label for label, c in cells.items() if c.late] == ["D"]
    assert judge(column, cells) == Judgement(agree=1, numbers=2, printed=4, stated=3)
    assert {label: c.seeds for label, c in cells.items()} == {"A": 1, "B": 0, "C": 0, "D": 1}


def test_runs_that_end_at_chance_are_told_and_not_in_the_mean():
    column = Column("at", at=20, chance=12.0, printed={"A": 70.0})
    flat = [row | {"accuracy": 0.1} for row in ROWS]
    assert trained(column, ROWS) and not trained(column, flat)
    assert trained(Column("at", at=20), flat)  # where it is not looked at
    mixed = cell("A", column, [70.0, 10.0, 72.0], 50, [True, False, True])
    assert (mixed.ours, mixed.seeds, mixed.untrained) == (71.0, 3, 1)
    none = cell("A", column, [10.0, 12.0], 50, [False, False])
    assert (none.ours, none.untrained) == (11.0, 2)
    assert judge(column, {"A": none}) == Judgement(0, 1, 1, worst=-59.0)


def test_claims_without_numbers():
    ours = {"A": 3.0, "B": 2.0, "C": 2.5}
    said = verdict({}, ours, above={"A": ["B", "C"], "B": ["C", "D"]})
    assert said == Judgement(ordered=2, pairs=3, stated=3, claimed=3, held=2, failed=1)
    assert verdict({}, ours, first="A").verdict == REPRODUCED
    assert verdict({}, ours, first="B").verdict == NOT
    assert verdict({}, ours, first="B", ties=True).verdict == REPRODUCED  # within two points
    level = verdict({}, ours | {"C": 4.5}, first="B", ties=True)
    assert (level.ordered, level.pairs, level.stated, level.failed) == (1, 2, 2, 1)


def test_a_claim_may_have_a_value_between_the_two():
    """One diverges and the other does not: above 1, and below."""
    for ours, ordered in (((1.2, 0.9), 1), ((0.9, 0.8), 0), ((1.2, 1.1), 0), ((0.9, 1.2), 0)):
        found = verdict({}, dict(zip("AB", ours, strict=True)), above={"A": ["B"]}, between=1.0)
        assert (found.ordered, found.pairs) == (ordered, 1)


def test_much_is_more_than_counts_as_no_difference():
    for ours, ordered in (((82.8, 81.4), 0), ((84.0, 81.4), 1), ((81.4, 84.0), 0)):
        there = dict(zip("AB", ours, strict=True))
        for said in ({"above": {"A": ["B"]}}, {"first": "A"}):
            assert verdict({}, there, much=True, **said).ordered == ordered
    column = Column("rounds", to=0.8, above={"A": ["B"]}, much=True)
    never = {"A": cell("A", column, [math.inf], 1), "B": cell("B", column, [100.0], 1)}
    assert judge(column, never).ordered == 1


def test_what_was_not_run_is_counted_too():
    """Two of four numbers, and the one pair of these out of all that the paper tells apart."""
    ours = {"A": [79.0], "B": [], "C": [70.0], "D": []}
    for more, stated in (({}, 5), ({"above": {"D": ["A"]}}, 6), ({"first": "C"}, 8)):
        column = Column("final", printed={"A": 80, "B": 75, "C": 70.5, "D": 70}, **more)
        found = judge(column, {label: cell(label, column, v, 1) for label, v in ours.items()})
        assert (found.numbers, found.printed) == (2, 4)
        assert (found.pairs, found.stated) == (1 + ("first" in more), stated)
        assert "(4 in all)" in str(found) and f"({stated} in all)" in str(found)


def test_rounds_beyond_those_of_the_paper_are_not_counted():
    """A run may be longer for another item; what is shown is of the first 500 rounds."""

    def kept(last):
        return SimpleNamespace(last=last, over=lambda rounds: True, until=lambda rounds: ROWS)

    runs = {"A": [kept(1000), kept(2000)], "B": [kept(1000), kept(30)], "C": []}
    rounds = dict.fromkeys(runs, 500)
    column = Column("best")
    shown = Shown(Panel("p", "P"), rounds, runs, [(column, cells(column, runs, rounds))], [])
    assert [shown.reached(label) for label in runs] == [500, 500, 0]
    assert [c.rounds for c in shown.columns[0][1].values()] == [500, 500, 0]


class Short:
    """A run that was stopped after its last row."""

    def __init__(self, *accuracies, seeded=True):
        self.rows = [{"round": 10 * k, "accuracy": a} for k, a in enumerate(accuracies)]
        self.last, self.final, self.seeded = self.rows[-1]["round"], False, seeded

    def over(self, rounds):
        return self.last >= rounds

    def until(self, rounds):
        return [row for row in self.rows if row["round"] <= rounds]


def test_each_number_is_of_the_seeds_that_are_long_enough_for_it():
    runs = {"A": [Short(0.1, 0.4, 0.5, 0.8), Short(0.1, 0.6, 0.7), Short(0.1, 0.2)]}

    def found(read, **more):
        c = cells(Column(read, of="accuracy", **more), runs, {"A": 30})["A"]
        return c.ours, c.seeds

    assert found("at", at=10) == (pytest.approx(40), 3)
    assert found("at", at=20) == (pytest.approx(60), 2)
    assert found("best") == (pytest.approx(80), 1)
    columns = [
        (column, cells(column, runs, {"A": 30}))
        for column in (Column("at", at=10, of="accuracy"), Column("best", of="accuracy"))
    ]
    shown = Shown(Panel("p", "P"), {"A": 30}, runs, columns, [])
    assert shown.seeds("A") == (1, 3)
    assert shown.over("A") and shown.reached("A") == 30


def test_a_seed_that_is_not_over_is_not_at_chance_nor_are_all_of_them():
    poor, good, open_ = Short(0.1, 0.1, 0.1), Short(0.1, 0.4, 0.5), Short(0.1, 0.1)
    column = Column("final", of="accuracy", chance=11)

    def at_chance(*runs, columns=(column,)):
        found = [(column, cells(column, {"A": runs}, {"A": 20})) for column in columns]
        return Shown(Panel("p", "P"), {"A": 20}, {"A": [*runs]}, found, []).at_chance("A")

    assert at_chance(poor, good, open_) == [poor]
    assert at_chance(good, poor, columns=(Column("final", of="accuracy"), column)) == [poor]
    assert at_chance(poor) == at_chance(poor, poor) == at_chance(open_, good) == at_chance() == []
    assert at_chance(poor, good, columns=(Column("final", of="accuracy"),)) == []


def test_a_target_is_asked_of_the_longest_seeds_alone():
    """Of the shorter ones only the early would have an answer."""
    runs = {"A": [Short(0.1, 0.4, 0.5, 0.8), Short(0.1, 0.7, 0.8), Short(0.1, 0.2, 0.6)]}
    column = Column("rounds", of="accuracy", to=0.65, printed={"A": 12})
    found = cells(column, runs, {"A": 100})["A"]
    assert (found.ours, found.seeds, found.late) == (30, 1, False)
    runs["A"].append(Short(0.1, 0.7, 0.8, 0.8))
    found = cells(column, runs, {"A": 100})["A"]
    assert (found.ours, found.seeds) == (20, 2)
    late = cells(dataclasses.replace(column, to=0.9), runs, {"A": 100})["A"]
    assert (late.late, late.seeds, late.rounds) == (True, 2, 30)


def test_seeds_are_a_mean_and_a_deviation():
    column = Column("final", printed={"A": 2.0})
    found = cell("A", column, [1.0, 3.0, None], 7)
    assert (found.ours, found.seeds, found.rounds, found.difference) == (2.0, 2, 7, 0.0)
    assert found.deviation == pytest.approx(math.sqrt(2))


def test_a_pair_that_numbers_and_text_tell_apart_counts_once():
    column = Column("final", printed={"A": 80.0, "B": 70.0, "C": 79.0}, first="A")
    ours = {"A": 80.0, "B": 71.0, "C": 82.0}
    shown = {label: cell(label, column, [ours[label]], 10) for label in ours}
    found = judge(column, shown)  # A over B by both, C over B by numbers, A over C by the text
    assert (found.ordered, found.pairs, found.stated) == (2, 3, 3)


def test_a_quarter_is_the_least_that_is_judged():
    """One pair in order of four is a verdict, of five it is told alone; numbers likewise."""
    for methods, found in ((3, REPRODUCED), (4, LITTLE)):
        cells = {"A": [2.0], "B": [1.0]} | {f"M{k}": [] for k in range(methods)}
        few = judge(*columned({}, cells, first="A"))
        assert (few.pairs, few.stated, few.verdict) == (1, methods + 1, found)
    assert (few.ran, few.coverage) == ("1 of 5 pairs run: agrees", 0.2)
    one = judge(*columned({"A": 1.0} | {f"M{k}": 1.0 for k in range(4)}, cells))
    assert (one.verdict, one.ran) == (LITTLE, "1 of 5 numbers run: agrees")
    assert judge(*columned({"A": 9.0}, {"A": [70.0]})).ran == "1 of 1 numbers run: does not agree"
    both = Judgement(3, 10, 50, 1, 2, 60)
    assert both.ran == "10 of 50 numbers and 2 of 60 pairs run: 4 of 12 agree"


def test_what_one_standard_error_would_turn_cannot_be_told():
    """The same three runs, printed 1.99 and 2.01 points above their mean; the error is 0.29."""
    runs = [83.2133, 83.7133, 84.2133]
    error = 0.5 / math.sqrt(3)
    for printed in (85.70, 85.72):
        found = judge(*columned({"A": printed}, {"A": runs}))
        assert (found.agree, found.unsure, found.numbers, found.verdict) == (0, 1, 1, UNTOLD)
        assert "0 of 1 numbers agree, 1 cannot be told" in str(found)
    mean = 83.7133
    for off, found in ((2 - 1.01 * error, REPRODUCED), (2 + 1.01 * error, NOT)):
        assert judge(*columned({"A": mean + off}, {"A": runs})).verdict == found
    assert judge(*columned({"A": 85.72}, {"A": [mean]})).verdict == NOT  # of one seed


def test_nor_the_order_of_two_means_that_near():
    runs = [83.2, 83.7, 84.2]
    for other, ordered, level in ((83.6, 0, 1), (83.0, 1, 0), (84.4, 0, 0)):
        found = judge(*columned({}, {"A": runs, "B": [other]}, first="A"))
        assert (found.ordered, found.level, found.open) == (ordered, level, level)
    assert judge(*columned({}, {"A": runs, "B": [83.6]}, first="A")).verdict == UNTOLD
    many = {f"M{k}": 10.0 + 5 * k for k in range(12)}
    sure = columned(many, {label: [v + 20] for label, v in many.items()} | {"M0": [27.0, 39.0]})
    assert judge(*sure).level == 1 and judge(*sure).verdict == ORDER  # one pair of 66


def test_a_claim_is_not_outvoted():
    """All but one of 55 pairs are in order: the paper's order, unless its text speaks of that."""
    printed = {f"M{k}": 30.0 + 5 * k for k in range(11)}
    ours = {label: [v - 20] for label, v in printed.items()} | {"M9": [70.0]}
    for more, found, answer in (({}, ORDER, ""), ({"first": "M10"}, NOT, "no")):
        judged = judge(*columned(printed, ours, **more))
        assert (judged.ordered, judged.pairs) == (54, 55)
        assert (judged.verdict, judged.answer) == (found, answer)


def test_answers_to_a_claim():
    said = {"above": {"A": ["B", "C"]}}
    for ours, answer in (
        ({"A": [3.0], "B": [2.0], "C": [1.0]}, "yes"),
        ({"A": [3.0], "B": [4.0], "C": []}, "no"),
        ({"A": [3.0], "B": [2.0], "C": []}, UNTOLD),
        ({"A": [3.0, 4.0], "B": [3.4], "C": [1.0]}, UNTOLD),
        ({"A": [], "B": [2.0], "C": [1.0]}, "not run"),
    ):
        assert judge(*columned({}, ours, **said)).answer == answer


def test_level_is_not_enough_where_the_numbers_are_apart():
    column = {"first": "A", "ties": True}
    for printed, held in (({"A": 80.0, "B": 79.0}, 1), ({"A": 80.0, "B": 75.0}, 0)):
        found = judge(*columned(printed, {"A": [70.0], "B": [71.0]}, **column))
        assert (found.held, found.failed) == (held, 1 - held)


def columned(printed, ours, **more):
    column = Column("final", of="accuracy", printed=printed, **more)
    return column, {label: cell(label, column, found, 1) for label, found in ours.items()}
