"""What the convex items add: warm starts, searches, slopes and measured rates."""

import dataclasses
import math
from types import SimpleNamespace

import numpy as np
import pytest

import undrift as ud
from undrift.cli import main
from undrift.problems import build
from undrift.theory import fedcet
from undrift_papers.fedred import rates
from undrift_papers.reproduce import grid as search
from undrift_papers.reproduce import results
from undrift_papers.reproduce.cache import Cache
from undrift_papers.reproduce.items import Column, item
from undrift_papers.reproduce.page import text
from undrift_papers.reproduce.perform import ItemOptions, wants
from undrift_papers.reproduce.readouts import readout
from undrift_papers.reproduce.results import Report, collect
from undrift_papers.reproduce.verdict import NOT, NOTHING, ORDER, REPRODUCED

from .test_cache import go as performed

GRID = """
name = "grid"
rounds = 20
steps = 2

[problem]
name = "quadratic"
clients = 4
dim = 3

[[method]]
name = "GD"
lr = 0.01

[[method]]
name = "Scaffnew"
lr = 0.01
p = 0.5

[item]
title = "A search"
shows = "The best step."
quick = ["rounds=4"]
draw = ["gap"]
over = ["round", "vectors"]

[item.grid]
GD = [{ lr = 0.001 }, { lr = 0.01 }, { lr = 0.1 }, { lr = 1000.0 }]
Scaffnew = [{ lr = 0.05, p = 0.5 }, { lr = 0.01, p = 0.25 }]

[[item.panel]]
name = "main"
title = "Quadratics"

[[item.panel.column]]
read = "final"
of = "gap"
above = { GD = ["Scaffnew"] }
"""


def go(cache, lot):
    assert performed(cache, lot) == []


# Warm starts.


def test_figure_14_starts_where_fedrecu_is_after_eight_rounds(tmp_path):
    it = item("fedrecu/figure-14")
    [recu, lin, *_] = wants(it, it.panel[0], ItemOptions(rounds=3))
    cache = Cache(tmp_path)
    go(cache, [recu, lin])
    gaps = ud.run(ud.FedRecu(lr="theory"), build("least-squares"), rounds=11, steps=4).history[
        "gap"
    ]
    assert [row["gap"] for row in cache.found(recu).rows] == pytest.approx(gaps[8:], rel=1e-9)
    assert cache.found(lin).rows[0]["gap"] == pytest.approx(gaps[8], rel=1e-9)
    cold = dataclasses.replace(recu, start=None)
    assert len({recu.key, cold.key, dataclasses.replace(recu, start=(recu.entry, 9)).key}) == 3


# Searches.


@pytest.fixture
def grid(undrawn):
    (undrawn / "toy" / "figure-2.toml").write_text(GRID)
    return item("toy/figure-2")


def test_a_search_finds_the_best_and_repeats_it_alone(grid, tmp_path):
    cache = Cache(tmp_path)
    wanted = wants(grid, grid.panel[0], ItemOptions(seeds=2))
    assert len(wanted) == 2 * 6
    sizes = []
    for batch in search.batches([(grid, wanted)], cache):
        sizes.append(sorted((want.entry.label, want.rounds, want.seed) for want in batch))
        go(cache, batch)
    assert sizes == [
        [("GD", 20, 0)] * 4 + [("Scaffnew", 20, 0)] * 2,
        [("GD", 20, 1), ("Scaffnew", 20, 1)],
    ]
    chosen = {want.entry.label: want for want in search.best(wanted, cache)}
    assert chosen["GD"].entry.method.lr == 0.1
    assert (chosen["Scaffnew"].entry.method.lr, chosen["Scaffnew"].entry.method.p) == (0.05, 0.5)
    diverged = next(want for want in wanted if getattr(want.entry.method, "lr", 0) == 1000.0)
    assert search.loss(diverged, cache) == math.inf
    assert search.tried(wanted, cache) == {"GD": 4, "Scaffnew": 2}
    assert search.tried(wanted, Cache(tmp_path / "none")) == {}


def test_the_best_network_is_that_with_the_highest_accuracy():
    def kept(**row):
        return SimpleNamespace(final=False, last=20, until=lambda rounds: [row])

    def loss(run):
        return search.loss(SimpleNamespace(rounds=20), SimpleNamespace(found=lambda want: run))

    assert loss(kept(accuracy=0.7)) < loss(kept(accuracy=0.6)) < math.inf
    assert loss(kept(gap=0.1, accuracy=0.1)) < loss(kept(gap=0.2, accuracy=0.9))
    assert loss(kept(gap=math.nan)) == loss(kept()) == loss(None) == math.inf


def test_a_search_that_was_not_finished_says_so(grid, tmp_path):
    cache = Cache(tmp_path)
    wanted = wants(grid, grid.panel[0], ItemOptions())
    go(cache, [wanted[0], wanted[-1]])  # one setting of each method
    report = collect(grid, ItemOptions(), cache)
    assert report.judgement.pairs == 1 and not report.complete
    assert "(1 of 4 run)" in text(report, "")
    go(cache, wanted)
    assert collect(grid, ItemOptions(), cache).complete


def test_a_search_from_the_command_line(grid, tmp_path, capsys):
    words = ["reproduce", "toy/figure-2", "--out", str(tmp_path)]
    assert main(words) == 0
    said = capsys.readouterr().err
    assert "6 runs: 0 kept, 6 to do" in said
    page = (tmp_path / "pages" / "toy" / "figure-2.md").read_text()
    assert "| GD | 20 | lr = 0.1 (of 4) |" in page
    assert "lr = 0.05*, p = 0.5* (of 2)" in page
    assert main([*words, "--seeds", "2"]) == 0
    said = capsys.readouterr().err
    assert "6 runs: 6 kept, 0 to do" in said and "2 runs: 1 kept, 1 to do" in said


# Slopes and savings.


def test_savings_are_of_what_is_spent():
    mine = [{"round": k, "gap": 0.5**k, "vectors": 4 * k, "gradients": 30 * k} for k in range(6)]
    theirs = [
        {"round": 10 * k, "gap": 0.5**k, "vectors": 20 * k, "gradients": 10 * k} for k in range(6)
    ]
    for spent, saving in (("round", 10.0), ("vectors", 5.0), ("gradients", 1 / 3)):
        column = Column("saving", of="gap", to=0.1, than="GD", spent=spent)
        assert readout(column, mine, True, theirs) == pytest.approx(saving)
        assert column.title.startswith(spent.removesuffix("s"))


def test_a_saving_over_a_run_that_is_not_over_is_not_known():
    """It may yet reach the target; one that is over and has not is saved without end."""
    mine = [{"round": k, "gap": 0.5**k, "vectors": 4 * k} for k in range(6)]
    theirs = [{"round": k, "gap": 1.0, "vectors": 2 * k} for k in range(3)]
    column = Column("saving", of="gap", to=0.1, than="GD")
    assert readout(column, mine, True, theirs, False) is None
    assert readout(column, mine, True, theirs, True) == math.inf
    assert readout(column, mine, True) is None
    reached = [*theirs, {"round": 3, "gap": 0.1, "vectors": 6}]
    assert readout(column, mine, True, reached, False) == pytest.approx(6 / 16)


def test_the_factors_of_fedcet_are_those_of_gradient_descent():
    """All Hessians are 4 I, so a round of two steps multiplies the error by (1 - 4 lr)^2."""
    it = item("fedcet/figure-1")
    spec = it.spec(it.panel[0])
    printed = it.panel[0].column[0].printed
    for entry in spec.entries:
        assert (1 - 4 * entry.method.lr) ** 2 == pytest.approx(printed[entry.label], abs=1e-4)
    lr = fedcet.search(2, 1.5, 2)
    assert spec.entries[0].method.lr == pytest.approx(lr, rel=1e-5)
    assert spec.entries[0].method.c == pytest.approx(fedcet.weight(2, lr), rel=1e-5)


def test_a_few_rounds_of_extra_say_nothing_of_divergence(tmp_path):
    it, cache = item("fedrecu/extra"), Cache(tmp_path)
    panel = next(panel for panel in it.panel if panel.name == "tau12")
    go(cache, wants(it, panel, ItemOptions(rounds=3)))
    assert collect(it, ItemOptions(), cache).verdict == NOTHING
    go(cache, wants(it, panel, ItemOptions()))
    assert collect(it, ItemOptions(), cache).judgement.ordered == 1


# Measured rates.


@pytest.mark.parametrize(("L", "delta"), [(25.0, 5.0), (400.0, 40.0)])
def test_the_constants_of_an_instance_are_exact(L, delta):
    constants = rates.instance(L, delta).constants
    found = [constants.L, constants.mu, constants.mu_mean, constants.delta_A, constants.delta_B]
    np.testing.assert_allclose(found, [L, 1.0, 1.0, delta, delta], rtol=1e-6)


def table(change=lambda label, what, power: power):
    """What would be measured if rounds and local steps were exact powers."""
    return {
        sweep.axis: {
            rate.label: [
                [
                    x := sweep.place(*point),
                    9 * x ** change(rate.label, "rounds", rate.rounds[k]),
                    4 * x ** change(rate.label, "steps", (rate.steps or (0, 0))[k]),
                ]
                for point in sweep.instances
            ]
            for rate in rates.RATES
        }
        for k, sweep in enumerate(rates.SWEEPS)
    }


def judgement(found):
    return Report(item("fedred/table-1"), [], False, {"found": found, "environment": {}}).judgement


def test_rates_are_judged_by_their_exponents():
    assert judgement(table()).verdict == REPRODUCED
    one = judgement(table(lambda label, what, p: p + 0.2 * (label == "GD" and what == "rounds")))
    assert one.verdict == ORDER and one.agree == one.numbers - 2
    assert judgement(table(lambda label, what, p: -p)).verdict == NOT


def test_gradient_descent_and_dane_on_two_instances():
    """By hand: GD contracts the flat directions by 1 - mu/L a round, DANE by lam/(mu + lam)."""
    by_label = {rate.label: rate for rate in rates.RATES}
    problem = rates.instance(50.0, 5.0)
    x = problem.start() - problem.optimum
    small = rates.ACCURACY * float(x.norm())
    flat = float(x[: rates.DIM // 4].norm())
    for label, factor in (("GD", 1 - 1 / 50), ("DANE", 5 / 6)):
        rounds, steps = rates.reach(by_label[label], problem, 50.0, 5.0)
        assert rounds == pytest.approx(math.log(small / flat) / math.log(factor), abs=1.5)
        assert label == "DANE" or steps == 1


def test_rates_are_measured_once_and_shown(tmp_path, monkeypatch, capsys):
    calls = []
    monkeypatch.setattr(rates, "measure", lambda say: calls.append(1) or table())
    words = ["reproduce", "fedred/table-1", "--out", str(tmp_path)]
    assert main(words) == 0 and main(words) == 0
    assert calls == [1]
    assert "reproduced" in capsys.readouterr().out
    page = (tmp_path / "pages" / "fedred" / "table-1.md").read_text()
    assert "**Verdict: reproduced.** 24 of 24 numbers agree" in page
    assert (
        "| Scaffnew | 45 | 64 | 90 | 127 | 180 | 0.5 | 0.50 | +0.00 | 0.5 | 0.50 | +0.00 |" in page
    )
    assert "rounds, printed" in page
    words[-1] = str(tmp_path / "other")
    assert main([*words, "--kept", "--pages", str(tmp_path / "pages")]) == 0
    assert (tmp_path / "pages" / "fedred" / "table-1.md").read_text() == page  # it has more


def test_kept_rates_are_those_of_the_same_settings(tmp_path, monkeypatch):
    it, cache = item("fedred/table-1"), Cache(tmp_path)
    monkeypatch.setattr(rates, "measure", lambda say: table())
    results.measure(it, cache, print)
    assert results.recall(it, cache)["found"] == table()
    assert results.recall(item("fedrecu/table-1"), cache) is None
    monkeypatch.setattr(rates, "ACCURACY", 1e-4)
    assert results.recall(it, cache) is None
