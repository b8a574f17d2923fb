"""Complaints about a spec: where they are from, and in which order."""

import dataclasses

from undrift.spec.errors import BadSpec, Complaint, Origin, keys_of


def test_equal_complaints_are_told_once_and_in_the_order_of_lines():
    flag = Complaint(("method", 1, "lr"), "too large", "-s method.lr=9")
    again = dataclasses.replace(flag, path=("method", 2, "lr"))
    late, early = Complaint((), "b", "s.toml", 9), Complaint((), "a", "s.toml", 2)
    error = BadSpec([late, early, flag, again])
    assert [(c.text, c.line) for c in error.complaints] == [("too large", None), ("a", 2), ("b", 9)]
    assert str(error) == "-s method.lr=9: too large\ns.toml:2: a\ns.toml:9: b"


def test_fields_have_the_line_of_their_keys():
    origin = Origin("p.toml", "name = 1\n[[column]]\nof = 2\n[[column]]\nrows = 3\n")
    problems = {"name": "a", "column.1.rows": "b", "column.1.of": "c", "column.0": "d"}
    found = [origin.complaint(keys_of(at), text) for at, text in problems.items()]
    lines = {c.path: c.line for c in found}
    assert lines == {
        ("name",): 1,
        ("column", 1, "rows"): 5,
        ("column", 1, "of"): 4,
        ("column", 0): 2,
    }
