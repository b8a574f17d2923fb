"""What the command line and the report say of clients that were left out."""

import json

import pytest
from tests.report.recorded import record
from tests.report.test_html import Reader

from undrift.cli import main
from undrift.core.faults import Rejection
from undrift.records.folder import Folder
from undrift.report.clients import by_client, left_out, spans
from undrift.report.comparison import compare, read

FAULTS = """\
[[faults]]
kind = "nan"
clients = [1]
since = 3
[[faults]]
kind = "drop-after"
clients = [2]
"""


@pytest.fixture
def faulty(place):
    with (place / "spec.toml").open("a") as file:
        file.write(FAULTS)
    return place


def page(folder):
    assert main(["report", str(folder)]) == 0
    return (folder / "report.html").read_text(encoding="utf-8")


def headers(text):
    return [attrs.get("id") for tag, attrs in Reader(text).tags if tag in ("section", "table")]


def test_a_run_says_who_was_left_out_and_why(faulty, capsys):
    assert main(["run", "spec.toml"]) == 0
    out, err = capsys.readouterr()
    table = left_out(Folder(faulty / "runs/mine").record().left_out, [])
    assert [cell.text for cell in table.column("method")] == ["FedAvg"] * 2 + ["SCAFFOLD"] * 2
    assert [cell.value for cell in table.column("times")] == [12, 9] * 2
    assert table.text() in out and "its upload was lost (12)" in out
    assert "left out 21" in err
    assert main(["run", "spec.toml", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)["left_out"]
    assert [(one["client"], one["times"]) for one in found] == [(2, 12), (1, 9)] * 2
    assert found[1]["rounds"] == list(range(3, 12))


def test_nothing_is_said_where_nobody_was(place, capsys):
    assert main(["run", "spec.toml"]) == 0
    out, err = capsys.readouterr()
    assert "left out" not in out + err and "left-out" not in headers(page(place / "runs/mine"))


def test_a_run_that_is_stuck_fails_with_its_cause(faulty, capsys):
    every = ["-s", "faults=[{kind='drop-after', since=2}]", "-s", "judge.patience=2"]
    assert main(["run", "spec.toml", *every]) == 1
    out, _ = capsys.readouterr()
    assert "stuck" in out and "its upload was lost" in out and "3 rounds skipped" in out
    assert main(["compare", "mine", "--json"]) == 0
    methods = json.loads(capsys.readouterr().out)["methods"]
    assert [method["status"] for method in methods] == ["stuck", "stuck"]


def test_the_report_has_a_table_of_them(faulty, capsys):
    main(["run", "spec.toml"])
    assert {"left-out", "left-out-table"} <= {*headers(page(faulty / "runs/mine"))}


def test_rows_of_several_runs_have_the_names_of_their_runs(tmp_path):
    folders = [record(tmp_path / name, ended=False) for name in ("one", "two")]
    folders[0].leave_out("Later", 0, [Rejection(0, 0, 3, "lost")])
    (found,) = compare(read(folders))
    absent = [row for run in found.runs for row in run.left_out]
    assert [(row["label"], row["client"]) for row in absent] == [("one: Later", 3)]


def rejected(label, client, round, reason):
    row = {"label": label, "client": client, "round": round, "reason": reason}
    return row | {"seed": 0, "phase": 0}


def test_many_clients_and_reasons_are_counted():
    rows = [rejected("A", k % 20, k, f"reason {k % 7}") for k in range(200)]
    table = left_out(rows, [{"label": "A", "seed": 0, "round": 9, "skipped": 4}])
    assert len(table.rows) == 20 and "A: 4 rounds skipped" in table.notes[2]
    assert table.column("reasons")[0].text.count("reason ") == 3
    assert [one.reasons.total() for one in by_client(rows)] == [10] * 20


def test_rounds_in_a_row_are_taken_together():
    assert spans([4]) == "4" and spans([0, 1, 2, 4, 6, 7]) == "0-2, 4, 6-7"
    assert spans(range(0, 40, 2)).startswith("0, 2, 4") and spans(range(0, 40, 2)).endswith(
        "20 in all"
    )
