"""What a notebook shows: tables and pictures as HTML, and reprs in words."""

import base64
import csv
import math
import re
import warnings
from html.parser import HTMLParser
from pathlib import Path

import pytest
import torch

import undrift as ud
from undrift.problems import named
from undrift.runs.results import History

ODD = "<b>bold</b> & $x$"


class Parsed(HTMLParser):
    """The cells of tables, and the tags that are open in the end."""

    def __init__(self, text):
        super().__init__()
        self.cells, self.open, self.tags = [], [], []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        if tag not in ("br", "img"):
            self.open.append(tag)
        if tag in ("td", "th"):
            self.cells.append("")

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if {"td", "th"} & {*self.open}:
            self.cells[-1] += data.strip()


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    methods = {ODD: ud.Scaffold(lr=0.02), "large": ud.FedAvg(lr=50.0)}
    folder = tmp_path_factory.mktemp("shown") / "run"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return ud.run(methods, "quadratic", rounds=9, steps=5, save=folder)


def pictures(text):
    return [base64.b64decode(found) for found in re.findall(r"base64,([^\"]+)", text)]


@pytest.mark.thorough
def test_tables_and_pictures_are_whole_and_names_are_text(runs):
    shown = (runs, runs[ODD], runs["large"], runs[ODD].history, ud.load(runs.folder))
    for one in shown:
        text = one._repr_html_()
        page = Parsed(text)
        assert page.open == [] and page.cells
        assert "<b>bold" not in text
        (picture,) = pictures(text)
        assert picture.startswith(b"\x89PNG") and len(picture) < 30_000
    for one in (runs, shown[-1]):
        cells = Parsed(one._repr_html_()).cells
        assert ODD in cells and "large" in cells and "diverged" in cells
        assert "try lr = 0.0" in one._repr_html_()


def test_a_history_shows_some_of_its_rows_and_the_last(runs):
    page = Parsed(runs[ODD].history._repr_html_())
    assert {"round", "gap", "loss"} <= {*page.cells} and "bytes_up" not in page.cells
    rounds = [cell for cell in page.cells if cell.isdigit()]
    assert rounds[0] == "0" and "9" in rounds


@pytest.mark.parametrize(
    "rows",
    [
        [],
        [{"round": 0}],
        [{"loss": 1.0}],
        [{"round": 0, "loss": math.nan}],
        [{"round": 0, "gap": -1.0}, {"round": 1, "gap": math.inf}],
    ],
)
def test_without_anything_to_draw_there_is_no_picture(rows):
    text = History(rows)._repr_html_()
    assert not pictures(text) and Parsed(text).open == []


def test_a_problem_says_how_large_it_is():
    assert repr(named.build("quadratic", clients=3, dim=4)) == "Quadratic(3 clients, dim 4)"
    net, data = torch.nn.Linear(2, 2), (torch.randn(9, 2), torch.arange(9) % 2)
    problem = ud.Neural(net, data, ud.data.iid(9, clients=3))
    assert repr(problem) == "Neural(3 clients, 9 samples, dim 6)"
    half = object.__new__(ud.Neural)
    assert "Neural object" in repr(half)
    run = ud.run(ud.FedAvg(lr=0.1), problem, rounds=1, every=5)
    assert "on Neural(3 clients, 9 samples, dim 6): done" in repr(run)
    assert "on their train samples, 1 round;" in repr(run.per_client)


def test_tables_have_forms(runs):
    assert "\\begin{tabular}{lrrrrrl}" in runs.table("latex")
    assert r"$<$b$>$bold$<$/b$>$ \& \$x\$ &" in runs.table("latex")
    assert runs.table("markdown").startswith("| method | rounds |")
    assert runs.table() == runs.table("text") and "final gap" in runs.table()
    with pytest.raises(ValueError, match="form = 'pdf' is not allowed: 'text' or"):
        runs.table("pdf")


def test_the_csv_file_of_the_page_has_every_row(tmp_path, monkeypatch):
    page = (Path(__file__).parents[2] / "docs/report.md").read_text(encoding="utf-8")
    found = re.findall(r"^```python\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
    (code,) = (block for block in found if "import csv" in block)
    monkeypatch.chdir(tmp_path)
    names = {}
    exec(compile(code, "docs/report.md", "exec"), names)
    with open("rows.csv", encoding="utf-8", newline="") as file:
        rows = [*csv.DictReader(file)]
    runs = ud.run(names["methods"], "quadratic", rounds=20, steps=5)
    assert len(rows) == 42 and rows[0]["drift"] == ""
    for row in rows:
        history = runs[row["label"]].history
        for name in ("loss", "gap", "vectors", "gradients"):
            assert float(row[name]) == history[name][int(row["round"])]
    assert float(rows[1]["drift"]) == runs["FedAvg"].history["drift"][1]
