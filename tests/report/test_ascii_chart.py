"""The chart in characters."""

from undrift.report.ascii_chart import chart


def body(text):
    """(label, marks) of every line above the axis."""
    return [
        tuple(part.rstrip() for part in line.split("|"))
        for line in text.splitlines()
        if "|" in line
    ]


def test_one_line_per_power_of_ten():
    lines = body(chart({"a": [(0, 1.0), (1, 0.1), (2, 0.01)]}, width=3))
    assert lines == [("  1e+00", "o"), ("", " o"), ("  1e-02", "  o  o a")]


def test_series_have_their_own_marks_and_names_at_their_ends():
    lines = body(chart({"stuck": [(0, 1.0), (9, 0.1)], "exact": [(0, 1.0), (9, 1e-4)]}, width=10))
    assert lines[1][1].endswith("o  o stuck") and lines[4][1].endswith("*  * exact")


def test_many_decades_share_lines():
    text = chart({"a": [(k, 10.0**-k) for k in range(40)]})
    assert len(body(text)) <= 15 and "1e-36" in text


def test_what_has_no_logarithm_is_left_out():
    assert chart({}) == "" and chart({"a": [(0, 0.0)]}) == ""
    assert len(body(chart({"a": [(0, 1.0), (1, 0.0)]}))) == 1
