"""What a spec or a call declares by `best` or `stop` is what bars, tables and figures go by."""

import dataclasses

import pytest
import torch
from tests.report.recorded import comparison, ended, record

import undrift as ud
from undrift.cli.export import add
from undrift.cli.parser import Parser
from undrift.cli.run import draw
from undrift.core.stopping import Goal
from undrift.report.comparison import compare, read
from undrift.report.html import _charts
from undrift.report.tables import tiles
from undrift.runs.progress import status

SCORES = {"A": (0.2, 0.8, 0.6), "B": (0.1, 0.5, 0.7)}
BEST = {"best": {"metric": "f1"}, "method": [{"label": "A"}, {"label": "B"}]}


def rows():
    """B ends with the better F1, and with the worse accuracy and loss."""
    return [
        {"label": label, "seed": 0, "round": k, "vectors": k, "gradients": k, "seconds": 0.0}
        | {"loss": 1 - score / 2 + (label == "B"), "accuracy": (label == "A") / 2, "f1": score}
        for label, scores in SCORES.items()
        for k, score in enumerate(scores)
    ]


def judged(rows, document):
    """The comparison of a run that has ended with these rows."""
    (run,) = comparison(rows, document=document).runs
    (found,) = compare([dataclasses.replace(run, outcomes=ended(rows))])
    return found


def test_it_is_the_first_column_and_its_best_is_marked():
    found = judged(rows(), BEST)
    table = found.results(wide=True)
    assert list(table.head)[:4] == ["method", "final f1", "best f1", "rounds"]
    assert [cell.text for cell in table.column("final f1")] == ["0.6", "0.7"]
    assert [cell.kind for cell in table.column("final f1")] == ["", "best"]
    assert [cell.kind for cell in table.column("best f1")] == ["best", ""]
    (tile,) = tiles(found.summaries, found.goal, None)
    assert (tile.title, tile.value) == ("Best final f1", "B")
    (apart,) = found.against("A")
    assert apart.final.mean == pytest.approx(0.1)
    assert found.documents("A")[0]["metric"] == "f1"


def test_undeclared_it_is_the_accuracy_after_the_costs():
    table = comparison(rows()).results()
    assert list(table.head)[:5] == ["method", "rounds", "vectors", "gradients", "final accuracy"]


def test_the_direction_is_that_of_the_spec():
    for mode, best in (("max", "B"), ("min", "A")):
        goal = {"metric": "score", "mode": mode}
        renamed = [row | {"score": row["f1"]} for row in rows()]
        found = judged(renamed, BEST | {"best": goal})
        (tile,) = tiles(found.summaries, found.goal, None)
        assert tile.value == best


def test_the_target_of_stop_is_one_of_its_metric():
    stop = BEST | {"stop": {"metric": "f1", "target": 0.7}, "best": None}
    (run,) = comparison(rows(), document=stop).runs
    (found,) = compare([run])
    assert found.target == 0.7
    assert "until f1 >= 0.7" in found.results().notes[0]
    assert [s.reached for s in found.summaries] == [1, 1]
    assert [s.needed["rounds"].mean for s in found.summaries] == [1, 2]
    accuracy = dataclasses.replace(run, document=stop | {"best": {"metric": "accuracy"}})
    assert compare([accuracy])[0].target is None


def test_runs_that_declare_different_measures_get_a_table_each():
    first, second = (comparison(rows(), document=one).runs[0] for one in (BEST, {}))
    assert [one.column for one in compare([first, second])] == ["f1", "accuracy"]
    assert [one.column for one in compare([first, second], apart=False)] == ["accuracy"]


def test_the_bar_shows_it():
    row = {"round": 3, "loss": 0.5, "accuracy": 0.25, "score": 0.125, "vectors": 6.0}
    goal = Goal(metric="score", mode="max")
    assert status(row, "JPEG", goal) == "round 3  score 0.125 (JPEG)  loss 0.5  vectors 6"
    assert status(row).startswith("round 3  accuracy 25.00 %  loss 0.5")


def test_the_chart_opens_with_it():
    score = BEST | {"best": {"metric": "score", "mode": "max"}}
    data = _charts(comparison([row | {"score": row["f1"]} for row in rows()], document=score))
    assert data["judge"] == "score" and data["y"]["score"]["title"] == "score"


def test_the_figure_stays_in_the_folder_of_the_run(tmp_path):
    """A spec in the folder of somebody else may name any metric."""
    folder = record(tmp_path / "a" / "known")
    name = "../../out"
    text = folder.file("spec.toml").read_text()
    goal = f'[best]\nmetric = "{name}"\nmode = "max"\n'
    folder.file("spec.toml").write_text(text.replace("[problem]", f"{goal}\n[problem]"))
    (found,) = compare(read([folder]))
    assert found.column == name
    draw(folder, found)
    assert folder.file("out.png").is_file() and not (tmp_path / "out.png").exists()


def test_a_call_declares_it_by_a_goal():
    x = torch.randn(40, 3, generator=torch.Generator().manual_seed(0))
    data = [(part, (part[:, 0] > 0.3).long()) for part in x.chunk(4)]
    problem = ud.Neural(torch.nn.Linear(3, 2), data, metrics=["accuracy", "f1"])
    methods = {"a": ud.FedAvg(lr=0.01), "b": ud.FedAvg(lr=1.0)}
    goal = ud.Goal(metric="train_f1")
    runs = ud.run(methods, problem, rounds=3, steps=2, callbacks=goal)
    assert runs.table().split()[1:3] == ["final", "train_f1"]
    assert runs.plot().get_ylabel() == "train_f1"
    assert runs["a", 0].plot().get_ylabel() == "train_f1"
    assert "train_f1 against rounds" in runs._repr_html_()
    ends = [runs[label].history["train_f1"][-1] for label in methods]
    apart = runs.against("a")
    assert apart.metric == "train_f1"
    assert apart["b"].final.mean == pytest.approx(ends[1] - ends[0])


def test_the_help_of_export_says_so():
    parser = Parser("undrift export")
    add(parser)
    assert "metric of best or stop" in " ".join(parser.description.split())
