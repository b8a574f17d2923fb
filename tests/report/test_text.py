"""Tables and numbers as they are printed."""

import math
import os
import sys

import pytest

from undrift.report.numbers import count, duration, percent, plain, size, small, whole
from undrift.report.table import Table, clean, prose, terminal_width


def table(head, rows, right=(), width=None):
    return Table(head, rows, [name for name in head if name not in right]).text(width)


def test_nothing_printed_can_command_a_terminal():
    assert clean("a\x1b[31mb\x07\r\u202ec\nd é") == "a\\x1b[31mb\\x07\\r\\u202ec\nd é"


def test_columns_are_aligned():
    assert table(["name", "n"], [["a", 5], ["long", 100]], right=["n"]).splitlines() == [
        "name    n",
        "----  ---",
        "a       5",
        "long  100",
    ]


def test_the_last_text_gives_way():
    rows = [
        ["a", 1, "x" * 200],
        ["b\x1b", 2, "line\nbreak"],
        ["c", 3, "words that go on and on below one another"],
    ]
    text = table(["name", "n", "title"], rows, right=["n"], width=40)
    assert max(map(len, text.splitlines())) == 40
    assert text.count("x") == 201 and "b\\x1b" in text and "line break" in text
    assert text.splitlines()[-2:] == [
        "c      3  words that go on and on below",
        "          one another",
    ]


WIDE = ["method", "rounds", "vectors", "gradients", "accuracy", "outcome"]
RUNS = [["images: FedAvg, calibrated", 12, 24, 5_000, "85.00 %", "all rounds run"]]


@pytest.mark.parametrize("width", [40, 60, 70, 76])
def test_columns_that_do_not_fit_go_on_below(width):
    """Nothing is wider than asked, nothing is lost, and no short text is broken to make room."""
    lines = table(WIDE, RUNS, right=WIDE[1:5], width=width).splitlines()
    assert max(map(len, lines)) <= width
    below = [line for line in lines if line.startswith("  ")]
    assert len(below) >= 2 and len(below) % 2 == 0 and below[-1].endswith("all rounds run")
    assert "".join(lines).count("images: FedAvg, calibrated") == 1
    assert all(word in " ".join(lines) for word in [*WIDE, "12", "24", "5000", "85.00 %"])


def test_a_wide_terminal_is_used():
    rows = [["a", "words " * 20]]
    assert len(table(["name", "title"], rows, width=200).splitlines()) == 3
    assert len(table(["name", "title"], rows, width=80).splitlines()) == 4


def test_a_text_wider_than_the_terminal_is_wrapped_wherever_it_stands():
    text = table(["name", "n"], [["x" * 100, 1]], right=["n"], width=50)
    assert max(map(len, text.splitlines())) <= 50 and text.count("x") == 100


class Output:
    def __init__(self, terminal):
        self.isatty = lambda: terminal


@pytest.mark.parametrize(
    ("terminal", "variable", "expected"),
    [
        (False, None, math.inf),
        (False, "60", 60),
        (True, None, 132),
        (True, "60", 60),
        (True, "nonsense", 132),
        (True, "3", 40),
    ],
)
def test_how_wide_a_line_may_be(terminal, variable, expected, monkeypatch):
    monkeypatch.setattr(sys, "stdout", Output(terminal))
    monkeypatch.setattr(os, "get_terminal_size", lambda *_: os.terminal_size((132, 40)))
    if variable is not None:
        monkeypatch.setenv("COLUMNS", variable)
    assert terminal_width() == expected


def test_without_a_terminal_a_row_is_one_line(monkeypatch):
    monkeypatch.setattr(sys, "stdout", Output(False))
    assert len(table(["name", "title"], [["a", "words " * 100]]).splitlines()) == 3


def test_prose_is_no_wider_than_one_likes_to_read(monkeypatch):
    text = "one " * 60 + "\nnext"
    for width, longest in (("50", 50), ("300", 100)):
        monkeypatch.setenv("COLUMNS", width)
        lines = prose(text, below="  ").splitlines()
        assert longest - 4 <= max(map(len, lines)) <= longest
        assert lines[1].startswith("  one") and lines[-1] == "next"


def test_numbers():
    assert [small(v) for v in (None, math.nan, 0.0, -1e-18, 1.234e-11)] == [
        "-",
        "-",
        "0",
        "0",
        "1.2e-11",
    ]
    assert [whole(v) for v in (None, math.inf, 3.0, 12345.6)] == ["-", "-", "3", "12,346"]
    assert [plain(v) for v in (None, 0.25)] == ["-", "0.25"]
    assert [count(n, "seed") for n in (0, 1, 2)] == ["0 seeds", "1 seed", "2 seeds"]


def test_shares_times_and_sizes():
    assert [percent(v) for v in (None, math.nan, 0.87312, 1.0)] == ["-", "-", "87.31 %", "100.00 %"]
    assert [duration(v) for v in (0.04, 59.9, 60, 3599.6, 90000)] == [
        "0.0 s",
        "59.9 s",
        "1 min 0 s",
        "1 h 0 min",
        "25 h 0 min",
    ]
    assert [size(v) for v in (999, 1000, 999_960, 4.47e9, 5e15)] == [
        "999 B",
        "1.0 kB",
        "1.0 MB",
        "4.5 GB",
        "5000.0 TB",
    ]
