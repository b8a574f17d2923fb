"""The picture of all numbers."""

import json
import math
from pathlib import Path

import pytest

from undrift_papers.reproduce import agreement
from undrift_papers.reproduce.cache import Cache
from undrift_papers.reproduce.figure import figure
from undrift_papers.reproduce.items import item
from undrift_papers.reproduce.page import facts, numbers
from undrift_papers.reproduce.perform import ItemOptions
from undrift_papers.reproduce.results import collect

COMMITTED = Path(__file__).parents[3] / "docs" / "reproductions"


def page(item, *cells, share=True, judged=True):
    column = {"read": "best", "share": share, "judged": judged, "cells": list(cells)}
    return {"item": item, "panels": [{"panel": "p", "columns": [column]}]}


def cell(label, printed, ours):
    found = {"label": label, "printed": printed, "ours": ours}
    return {key: value for key, value in found.items() if value is not None}


PAGES = [
    page("fedspeed/table-1", cell("FedAvg", 75.2, 74.7), cell("FedDyn", 80.6, 60.0)),
    page(
        "fedspeed/table-6", cell("FedAvg", 75.2, 74.7), cell("FedCM", None, 70.0)
    ),  # shared, and not printed
    page(
        "fedspeed/table-4", cell("FedAvg", 1357, "-"), cell("FedCM", 449, 480), share=False
    ),  # never reached
    page("fedspeed/table-5", cell("FedAvg", 10.0, 0.2), share=False, judged=False),
    page("fedcet/figure-1", cell("FedCET", 1e-11, 2e-11), share=False),
]


def test_numbers_are_shown_once_and_if_both_have_them():
    found = {(at, p.label, p.printed, p.ours) for p, at in agreement.points(PAGES).items()}
    assert found == {
        ("fedspeed/table-1", "FedAvg", 75.2, 74.7),
        ("fedspeed/table-1", "FedDyn", 80.6, 60.0),
        ("fedspeed/table-4", "FedCM", 449, 480),
        ("fedcet/figure-1", "FedCET", 1e-11, 2e-11),
    }


def test_accuracies_and_ratios_have_a_plot_each():
    left, right = agreement.figure(PAGES).axes
    drawn = {tuple(point) for marks in left.collections for point in marks.get_offsets().tolist()}
    assert {(75.2, 74.7), (80.6, 60.0)} <= drawn
    ratios = {point[0] for marks in right.collections for point in marks.get_offsets().tolist()}
    assert any(math.isclose(r, 480 / 449) for r in ratios) and any(
        math.isclose(r, 2.0) for r in ratios
    )
    assert [tick.get_text() for tick in right.get_yticklabels()] == [
        "fedspeed/table-4",
        "fedcet/figure-1",
    ]
    assert agreement.figure([page("fedacg/table-a", cell("FedAvg", None, 80.0))]) is None


@pytest.fixture(scope="module")
def cache(tmp_path_factory):
    cache = Cache(tmp_path_factory.mktemp("runs"))
    cache.unpack(COMMITTED / "runs.zip")
    return cache


def test_the_pages_in_docs_are_those_of_the_runs_in_docs(cache):
    found = [json.loads(file.read_text()) for file in COMMITTED.glob("*/*.json")]
    networks = [page for page in found if page["precision"]]
    assert len(networks) > 15
    for page in networks:
        assert (
            json.loads(json.dumps(numbers(collect(item(page["item"]), ItemOptions(), cache))))
            == page
        )


@pytest.mark.parametrize(
    ("name", "words"),
    [
        (
            "fedrecu/figure-1",
            {"training accuracy, % (JPEG q80)", "training loss", "test accuracy, % (JPEG q80)"},
        ),
        ("fedspeed/figure-5", {"test loss"}),
    ],
)
def test_a_figure_of_networks_says_which_images_it_is_of(name, words, cache):
    drawn = figure(collect(item(name), ItemOptions(), cache))
    assert {ax.get_ylabel() for ax in drawn.axes} - {""} == words  # panels share theirs


def test_a_seed_that_did_not_train_is_dotted_and_not_in_the_mean(cache):
    report = collect(item("fedrecu/figure-2"), ItemOptions(), cache)
    assert any("dotted" in fact for fact in facts(report))
    assert not any(
        "dotted" in fact for fact in facts(collect(item("fedrecu/figure-1"), ItemOptions(), cache))
    )
    last = figure(report).axes[2]
    colour = {line.get_label(): line.get_color() for line in last.lines}["Scaffnew"]
    mean, dotted = sorted(
        (line for line in last.lines if line.get_color() == colour and line.get_ls() != "None"),
        key=lambda line: line.get_ls(),
    )
    assert (mean.get_ls(), dotted.get_ls()) == ("-", ":")
    assert mean.get_ydata()[-1] > 65 and dotted.get_ydata()[-1] == pytest.approx(5)
    assert [*mean.get_xdata()[[0, -1]]] == [*dotted.get_xdata()[[0, -1]]] == [0, 4000]


def test_curves_have_the_numbers_of_the_paper_as_open_marks(cache):
    drawn = figure(collect(item("fedrecu/figure-1"), ItemOptions(), cache))
    *others, last = drawn.axes
    marks = {line.get_color(): line for line in last.lines if line.get_ls() == "None"}
    colour = {line.get_label(): line.get_color() for line in last.lines}["Scaffnew"]
    assert [*zip(*marks[colour].get_data(), strict=True)] == [
        (200, 39.6), (500, 46.4), (1000, 67.9), (2000, 75.1)
    ]  # fmt: skip
    assert marks[colour].get_markerfacecolor() == "none"
    assert not any(line.get_ls() == "None" for ax in others for line in ax.lines)
    assert "the paper's" in [text.get_text() for text in drawn.legends[0].get_texts()]
