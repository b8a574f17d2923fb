"""``report`` from folders to a file."""

import json

import pytest
from tests.cli.conftest import told
from tests.report.recorded import record

import undrift as ud
from undrift.check.federations import quadratic
from undrift.cli import main
from undrift.records.folder import Folder
from undrift.report.comparison import compare, read
from undrift.report.html import about, facts, page

IMAGES = """\
name = "net"
rounds = 1
steps = 1
batch = 8
cohort = 3
[problem]
name = "images"
train = 60
test = 20
model = "linear"
clients = 4
[[method]]
name = "FedAvg"
lr = 0.1
objective = "MOON"
"""


@pytest.fixture
def runs(place):
    for name in ("one", "two"):
        record(place / "runs" / name)
    return place


def refused(capsys, *words):
    code, out, err = told(capsys, "report", *words)
    assert (code, out) == (2, "")
    return err


def test_a_report_goes_beside_the_run(runs, capsys):
    assert main(["report", "one"]) == 0
    out, err = capsys.readouterr()
    assert out == "runs/one/report.html\n" and "MB" in err
    text = (runs / "runs/one/report.html").read_text()
    assert text.startswith("<!doctype html>") and text.rstrip().endswith("</html>")


def test_bounds_are_drawn_where_they_are_asked_for(place, capsys):
    method = '[[method]]\nname = "FedRecu"\nlr = {}\n'
    spec = (place / "spec.toml").read_text() + method.format('"theory"')
    (place / "spec.toml").write_text(spec + method.format("0.04\nlabel = 'long'"))
    assert main(["run", "spec.toml"]) == 0
    code, _, err = told(capsys, "report", "mine", "--bounds")
    assert code == 0 and "No bound for SCAFFOLD: no theorem" in err
    assert "No bound for long: needs lr <= " in err
    text = (place / "runs/mine/report.html").read_text()
    assert "FedRecu: bound (Theorem 1, Remark 2)" in text and "No bound for long" in text
    assert main(["report", "mine"]) == 0
    assert "bound (Theorem" not in (place / "runs/mine/report.html").read_text()
    assert main(["compare", "mine", "--bounds", "--plot", "curves.svg"]) == 0
    assert "bound (Theorem 1, Remark 2)" in (place / "curves.svg").read_text()


def test_of_several_runs_it_goes_here_or_where_it_is_asked_to(runs, capsys):
    assert main(["report", "one", "runs/two"]) == 0
    assert "two: SCAFFOLD" in (runs / "report.html").read_text()
    assert main(["report", "one", "two", "-o", "new/place/all.html", "--json"]) == 0
    out = capsys.readouterr().out.splitlines()
    file = runs / "new/place/all.html"
    assert json.loads("\n".join(out[1:])) == {
        "report": "new/place/all.html",
        "bytes": file.stat().st_size,
    }


def test_runs_of_one_name_are_told_apart(runs, capsys):
    record(runs / "other" / "one")
    assert main(["report", "one", "other/one"]) == 0
    text = (runs / "report.html").read_text()
    assert "runs/one: FedAvg" in text and "other/one: FedAvg" in text


def test_everything_wrong_is_listed(runs, capsys):
    err = refused(capsys, "onn", "runs/nothing")
    assert "did you mean one?" in err and "'runs/nothing'" in err
    assert "-o x.pdf: give a name that ends in .html" in refused(capsys, "one", "-o", "x.pdf")
    (runs / "empty").mkdir()
    assert "is not the folder of a run" in refused(capsys, "empty")
    (runs / "runs/one/metrics.jsonl").write_text("")
    assert "nothing was recorded" in refused(capsys, "one")
    record(runs / "runs" / "judged", gap=None)
    assert "at most 1" in refused(capsys, "judged", "--target", "80")


def test_an_unfinished_run_can_be_looked_at(runs, capsys):
    record(runs / "runs" / "half", ended=False)
    assert main(["report", "half"]) == 0
    text = (runs / "runs/half/report.html").read_text()
    assert "all rounds run (1), unfinished: 10 of 10 rounds (1)" in text


def test_a_folder_without_its_spec_can_be_looked_at(runs, capsys):
    (runs / "runs/one/spec.toml").unlink()
    (runs / "runs/one/environment.json").unlink()
    assert main(["report", "one"]) == 0
    assert "SCAFFOLD" in (runs / "runs/one/report.html").read_text()


def test_a_run_of_images_records_who_holds_what(place, capsys):
    (place / "spec.toml").write_text(IMAGES)
    assert main(["run", "spec.toml"]) == 0
    folder = Folder(place / "runs/net")
    held = folder.partition
    assert len(held["counts"]) == 4 and held["classes"] == [str(k) for k in range(10)]
    assert sum(map(sum, held["counts"])) == 60
    assert main(["report", "net"]) == 0
    assert "4 clients, 10 classes, 60 samples" in folder.file("report.html").read_text()


def test_a_run_that_only_a_program_can_repeat_has_no_command(place):
    method, problem = ud.FedAvg(lr=0.1), quadratic()
    ud.run(method, problem, rounds=1, save=place / "runs/mine")
    folder = Folder(place / "runs/mine")
    assert folder.from_python
    text = page(*compare(read([folder])))
    assert "undrift run " not in text and 'download="mine.toml"' not in text


def test_seeds_that_change_nothing_are_not_said_to_vary_anything(place):
    for save, batch in (("still", None), ("drawn", 2)):
        method, where = ud.FedAvg(lr=0.1), place / "runs" / save
        ud.run([method], "least-squares", rounds=1, batch=batch, seed=[0, 1], save=where)
    still, drawn = (facts(*read([Folder(place / "runs" / s)])) for s in ("still", "drawn"))
    assert "no seed changes it" in still
    assert "2 seeds that vary random draws" in " ".join(drawn)


def test_the_spec_of_a_report_runs_again_to_the_same_rows(place, capsys):
    assert main(["run", "spec.toml"]) == 0
    folder = Folder(place / "runs/mine")
    (place / "mine.toml").write_text(about(*read([folder]))["spec"])
    assert main(["run", "mine.toml", "--out", "again"]) == 0
    again = Folder(place / "again/mine").rows()
    assert [row | {"seconds": 0} for row in again] == [
        row | {"seconds": 0} for row in folder.rows()
    ]
