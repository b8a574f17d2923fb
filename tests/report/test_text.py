"""Tables and numbers as they are printed."""

import math

from undrift.report.text import clean, count, duration, percent, plain, size, small, table, whole


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
    rows = [["a", 1, "x" * 200], ["b\x1b", 2, "line\nbreak"], ["c", 3, "words that go on and on below one another"]]
    text = table(["name", "n", "title"], rows, right=["n"], width=40)
    assert max(map(len, text.splitlines())) == 40
    assert text.count("x") == 201 and "b\\x1b" in text and "line break" in text
    assert text.splitlines()[-2:] == ["c      3  words that go on and on below", "          one another"]
    text = table(["name", "n", "title"], rows, right=["n"], width=40, cut=True)
    assert len(text.splitlines()) == 5 and max(map(len, text.splitlines())) == 40 and "x..." in text


def test_numbers():
    assert [small(v) for v in (None, math.nan, 0.0, -1e-18, 1.234e-11)] == ["-", "-", "0", "0", "1.2e-11"]
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
    assert [size(v) for v in (999, 1000, 999_960, 4.47e9, 5e15)] == ["999 B", "1.0 kB", "1.0 MB", "4.5 GB", "5000.0 TB"]
