"""Tables become the dataclasses that declare them, and every mistake is found at once."""

import dataclasses

import pytest

from undrift.core.params import BadParameters, Count
from undrift.spec.errors import BadSpec, Complaint, Complaints, Origin, Place
from undrift.spec.structure import fields, structure


@dataclasses.dataclass(frozen=True)
class Column:
    of: str
    rows: Count = 1

    def __post_init__(self):
        if self.of == "rows" and self.rows > 1:
            raise BadParameters("column", {"rows": "rows has one row"})


@dataclasses.dataclass(frozen=True)
class Panel:
    name: str
    first: Column | None = None
    column: list[Column] = dataclasses.field(default_factory=list)


TEXT = """\
name = "p"
first = {of = "gap"}
[[column]]
of = "loss"
rows = 3
[[column]]
of = "gap"
"""


def read(text, table):
    complaints = Complaints(Origin("p.toml", text))
    return structure(Panel, table, (), complaints, kind="key"), complaints.found


def test_inner_tables_and_lists_of_tables_are_structured():
    table = {"name": "p", "first": {"of": "gap"}, "column": [{"of": "loss", "rows": 3}]}
    made, found = read(TEXT, table)
    assert made == Panel("p", Column("gap"), [Column("loss", 3)]) and found == []


def test_every_mistake_has_its_keys_and_its_line():
    columns = [{"of": "loss", "rows": 0}, {"off": "gap"}, {"of": "rows", "rows": 2}]
    made, found = read(TEXT, {"nam": "p", "first": {}, "column": columns})
    assert made is None
    assert {complaint.path: complaint.place.line for complaint in found} == {
        ("first", "of"): 2,
        ("column", 0, "rows"): 5,
        ("column", 1, "off"): 6,
        ("column", 1, "of"): 7,
        ("column", 2, "rows"): 3,
        ("nam",): 1,
        ("name",): 1,
    }


def test_a_table_may_be_given_in_part():
    complaints = Complaints(Origin("p.toml", ""))
    assert fields(Panel, {"first": None}, (), complaints, partial=True) == {"first": None}
    assert fields(Panel, {"first": 3}, ("here",), complaints, partial=True) == {}
    assert [complaint.path for complaint in complaints.found] == [("here", "first")]


def test_equal_complaints_are_told_once_and_in_the_order_of_lines():
    late, early = Place("s.toml", 9), Place("s.toml", 2)
    flag = Complaint(("method", 1, "lr"), "too large", Place("-s method.lr=9"))
    again = dataclasses.replace(flag, path=("method", 2, "lr"))
    error = BadSpec([Complaint((), "b", late), Complaint((), "a", early), flag, again])
    assert error.complaints == [flag, Complaint((), "a", early), Complaint((), "b", late)]
    assert str(error) == "-s method.lr=9: too large\ns.toml:2: a\ns.toml:9: b"


@pytest.mark.parametrize("length", [10, 500])
def test_a_long_flag_is_cut(length):
    text = str(Complaint((), "is wrong", Place("-s " + "x" * length)))
    assert text.endswith(": is wrong") and len(text) <= 310
