"""Clients, differences and hyper-parameters: what reports and ``compare`` say of them."""

import dataclasses
import json
import math

import numpy as np
import pytest
from tests.report.recorded import RATE, ROUNDS, SEEDS, against, record, summarise

from undrift.cli import main
from undrift.records.differences import EQUAL, interval
from undrift.records.folder import Folder
from undrift.records.rows import Outcome
from undrift.report.clients import spreads
from undrift.report.comparison import compare, read
from undrift.report.tables import Differences, MethodSetting, differences, parameters

T = {1: 12.706204736432095, 2: 4.302652729696142}
"""The 97.5 % quantile of Student's t distribution, by degrees of freedom, from a table."""
CLIENTS = 20


@pytest.fixture
def folder(tmp_path):
    return record(tmp_path / "known", clients=CLIENTS)


def cells(table, name):
    return table.column(name)


# -- differences


def test_intervals_by_hand():
    values = [3.0, 5.0, 10.0]
    mean, sd = 6.0, math.sqrt((9 + 1 + 16) / 2)
    half = T[2] * sd / math.sqrt(3)
    found = interval(values)
    assert (found.seeds, found.mean) == (3, mean)
    assert (found.low, found.high) == pytest.approx((mean - half, mean + half))
    assert interval([]).mean is None and interval([math.nan, 1.0]).mean is None


@pytest.mark.parametrize(
    "ends", [[(0.9, 0.8), (0.4, 0.3)], [(0.5, 0.5)] * 3]
)  # the first two differ by rounding
def test_differences_that_are_all_equal_have_no_interval(ends):
    rows = [
        {"label": label, "seed": seed, "round": 0, "accuracy": value}
        for seed, pair in enumerate(ends)
        for label, value in zip("AB", pair, strict=True)
    ]
    (one,) = against(rows, None, "accuracy", None, "B")
    assert one.final.mean == pytest.approx(ends[0][0] - ends[0][1])
    assert (one.final.low, one.final.high) == (None, None)
    assert one.document()["final"]["reason"] == one.final.reason == EQUAL
    (cell,) = cells(differences("B", "accuracy", [one]), "95 % interval")
    assert EQUAL in cell.text and not cell.kind
    assert EQUAL in repr(Differences("B", "accuracy", [one]))
    assert interval([0.5, 0.5 + 1 / 179]).low is not None


def test_methods_are_compared_seed_by_seed(folder):
    run = read([folder])[0]
    (one,) = against(run.rows, run.outcomes, "gap", 1.5e-5, "SCAFFOLD")
    ends = {(row["label"], row["seed"]): row["gap"] for row in run.rows}
    apart = [ends["FedAvg", seed] - ends["SCAFFOLD", seed] for seed in SEEDS]
    half = T[1] * abs(apart[0] - apart[1]) / math.sqrt(2) / math.sqrt(2)
    assert one.label == "FedAvg" and one.final.seeds == 2
    assert one.final.mean == pytest.approx(sum(apart) / 2)
    assert one.final.low == pytest.approx(sum(apart) / 2 - half)
    assert one.rounds.mean is None  # FedAvg never got there
    table = differences("SCAFFOLD", "gap", [one])
    assert table.head == ["against SCAFFOLD", "seeds", "final gap", "95 % interval"]


def test_a_method_that_no_seed_changes_counts_for_every_seed():
    def curve(label, seed, end):
        start = {"label": label, "seed": seed, "round": 0, "loss": 9.0}
        return [start, start | {"round": 1, "loss": end}]

    rows = [*curve("A", 0, 1.0), *curve("A", 1, 3.0), *curve("B", 0, 5.0)]
    ended = [Outcome(*run, "done", {}) for run in [("A", "", 0), ("A", "", 1), ("B", "GD", 0)]]
    twin = Outcome("B", "GD", 1, "done", {}, same_as=0)
    (one,) = against(rows, [*ended, twin], "loss", None, "A")
    assert one.final.seeds == 2 and one.final.mean == 3.0 and one.rounds is None
    assert against(rows, ended, "loss", None, "A")[0].final.seeds == 1


def test_two_methods_that_no_seed_changes_are_one_pair():
    rows = [
        {"label": label, "seed": seed, "round": 0, "loss": loss}
        for label, seed, loss in [("A", 0, 1.0), ("B", 0, 3.0), ("C", 0, 5.0), ("C", 1, 7.0)]
    ]
    ended = [Outcome(row["label"], "GD", row["seed"], "done", {}) for row in rows]
    copies = [Outcome(label, "GD", 1, "done", {}, same_as=0) for label in "AB"]
    still, drawn = against(rows, ended + copies, "loss", None, "A")
    assert (still.final.seeds, still.final.mean, still.final.low) == (1, 2.0, None)
    assert (drawn.final.seeds, drawn.final.mean) == (2, 5.0) and drawn.final.low is not None
    assert not any(cell.kind for cell in differences("A", "loss", [still]).cells[0])


def accuracies(label, seeds, ends):
    return [
        {"label": label, "seed": seed, "round": k, "accuracy": value, "loss": 1.0}
        for seed in seeds
        for k, value in enumerate(ends)
    ]


def test_rounds_are_compared_only_if_every_seed_reaches_the_target():
    rows = accuracies("A", range(5), [0.1, 0.5, 0.6, 0.7])
    rows += accuracies("B", [0], [0.1, 0.65, 0.7, 0.7])
    rows += accuracies("B", range(1, 5), [0.1, 0.3, 0.3, 0.3])
    rows += accuracies("C", range(5), [0.1, 0.6, 0.6, 0.7])
    found = against(rows, None, "accuracy", 0.6, "A")
    assert [(one.rounds.seeds, one.rounds.mean) for one in found] == [(5, None), (5, -1.0)]
    assert [one.final.seeds for one in found] == [5, 5]
    assert found[0].final.mean == pytest.approx(-0.32)
    table = differences("A", "accuracy", found)
    assert [cell.text for cell in cells(table, "rounds to the target")] == ["-", "-1"]
    missed, reached = (differences("A", "accuracy", [one]).notes for one in found)
    assert missed[-1] not in reached and missed[-1] in table.notes


def test_the_ends_of_seeds_that_diverge_are_not_left_out_of_a_mean():
    rows = accuracies("A", range(5), [0.1, 0.6, 0.7])
    rows += accuracies("B", range(2), [0.1, 0.6, 0.8])
    rows += accuracies("B", range(2, 5), [0.1, 0.3, None])
    (one,) = against(rows, None, "accuracy", None, "A")
    assert (one.final.seeds, one.final.mean, one.final.low) == (5, None, None)
    kept = [row for row in rows if row["seed"] < 2]
    (other,) = against(kept, None, "accuracy", None, "A")
    assert other.final.mean == pytest.approx(0.1)


def test_compare_has_them_and_refuses_an_unknown_baseline(folder, capsys):
    assert main(["compare", str(folder.path), "--json", "--baseline", "SCAFFOLD"]) == 0
    rows = {row["label"]: row for row in json.loads(capsys.readouterr().out)["methods"]}
    assert rows["SCAFFOLD"]["difference"] is None
    found = rows["FedAvg"]["difference"]
    assert found["baseline"] == "SCAFFOLD" and found["final"]["seeds"] == 2
    assert found["final"]["low"] < found["final"]["mean"] < found["final"]["high"]
    assert main(["compare", str(folder.path)]) == 0
    assert "against FedAvg" in capsys.readouterr().out
    for verb in ("compare", "report"):
        with pytest.raises(SystemExit) as stopped:
            main([verb, str(folder.path), "--baseline", "nobody"])
        assert stopped.value.code == 2


# -- clients


def test_compare_shows_the_spread_of_the_clients(folder, capsys):
    assert main(["compare", str(folder.path), "--json"]) == 0
    rows = {row["label"]: row for row in json.loads(capsys.readouterr().out)["methods"]}
    losses = [2 + 0.7**ROUNDS * np.arange(seed, CLIENTS + seed) for seed in SEEDS]
    found = rows["FedAvg"]["clients"]
    assert found["metric"] == "loss"  # judged by the gap
    worst = [np.sort(values)[-2:].mean() for values in losses]
    assert found["worst10"] == pytest.approx(np.mean(worst))
    assert found["sd"]["worst10"] == pytest.approx(np.std(worst, ddof=1))
    assert found["std"] == pytest.approx(losses[0].std())
    assert main(["compare", str(folder.path)]) == 0
    head = capsys.readouterr().out.splitlines()[0]
    assert "worst 10 %" in head and "spread" in head


def test_the_table_of_clients(tmp_path):
    run = read([record(tmp_path / "known", clients=CLIENTS, gap=None)])[0]
    sheet = spreads(summarise(run.rows), "test")
    assert [cell.text for cell in cells(sheet, "method")] == list(RATE)
    ends = (1 - 0.7**ROUNDS) * np.arange(1, CLIENTS + 1) / CLIENTS
    first = sheet.cells[0]
    for name, value in (
        ("mean", ends.mean()),
        ("10 % quantile", np.quantile(ends, 0.1)),
        ("worst 10 %", ends[:2].mean()),
        ("spread", ends.std()),
    ):
        assert first[list(sheet.head).index(name)].value == pytest.approx(value)
    assert cells(sheet, "mean")[1].kind == "best" and cells(sheet, "spread")[0].kind == "best"


# -- hyper-parameters and numbers


def test_values_that_theory_has_set_are_told_apart(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    spec = 'name = "mine"\nrounds = 2\n[problem]\nname = "quadratic"\n'
    spec += '[[method]]\nname = "FedAvg"\nlr = 0.01\nsteps = 3\n'
    spec += '[[method]]\nname = "Scaffold"\nlr = "theory"\n'
    (tmp_path / "spec.toml").write_text(spec)
    assert main(["run", "spec.toml"]) == 0
    (found,) = compare(read([Folder(tmp_path / "runs/mine")]))
    sheet = parameters(found.summaries, found.settings)
    assert list(sheet.head) == [
        "method", "class", "hyper-parameters", "set by theory", "settings"
    ]  # fmt: skip
    by_theory = [cell.text for cell in cells(sheet, "set by theory")]
    lr = next(o.values["lr"] for o in found.outcomes if o.label == "Scaffold")
    assert by_theory == ["-", f"lr = {lr:.4g}"]
    assert cells(sheet, "hyper-parameters")[0].text.startswith("lr = 0.01")
    assert [cell.text for cell in cells(sheet, "settings")] == ["steps = 3", "-"]


def test_settings_of_the_whole_run_are_shown_as_a_spec_would():
    cosine = {"name": "cosine", "warmup": 0, "last": 0.01}
    document = {"schedule": cosine, "method": [
        {"name": "FedAvg", "label": "A", "lr": 0.1},
        {"name": "FedAvg", "label": "B", "lr": 0.1, "schedule": {"name": "constant"}},
    ]}  # fmt: skip
    ended = [Outcome(label, "FedAvg", 0, "done", {"lr": 0.1}) for label in "AB"]
    rows = [{"label": label, "seed": 0, "round": 0, "loss": 1.0} for label in "AB"]
    sheet = parameters(
        summarise(rows, outcomes=ended),
        {t["label"]: MethodSetting(t, document) for t in document["method"]},
    )
    assert [cell.text for cell in cells(sheet, "settings")] == [
        "schedule = cosine (warmup = 0, last = 0.01)",
        "schedule = constant",
    ]


def test_clients_of_a_method_that_diverged_have_no_end(tmp_path):
    run = read([record(tmp_path / "known", clients=CLIENTS, gap=None)])[0]
    outcomes = [
        dataclasses.replace(one, status="diverged") if one.key == ("SCAFFOLD", 0) else one
        for one in run.outcomes
    ]
    sheet = spreads(summarise(run.rows, outcomes=outcomes), "test")
    assert [cell.text for cell in cells(sheet, "method")] == ["FedAvg"]
