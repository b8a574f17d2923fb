"""The written form of a spec is complete, and means the same."""

import tomllib

from hypothesis import given
from hypothesis import strategies as st
from tests.spec.texts import GOOD, IMAGES

from undrift.spec import document as writer
from undrift.spec.reader import parse


def test_the_written_form_is_complete_and_means_the_same():
    spec = parse(GOOD)
    again = parse(spec.toml())
    assert again.document() == spec.document()
    assert [entry.method for entry in again.entries] == [entry.method for entry in spec.entries]
    written = tomllib.loads(spec.toml())
    assert written["problem"]["dim"] == 10 and written["method"][0]["server_lr"] == 1.0
    assert "rounds" not in written["method"][0] and written["method"][1]["rounds"] == 7


def test_tables_and_objectives_are_written():
    spec = parse(IMAGES)
    again = parse(spec.toml())
    assert again.document() == spec.document() and again.identity == spec.identity
    written = tomllib.loads(spec.toml())
    assert written["cohort"] == {"size": 3, "sampling": "fixed", "renew": 1, "dropout": 0.1}
    assert written["objective"] == {"name": "FedLC", "tau": 1.0} and "steps" not in written
    assert written["method"][1]["objective"] == {"name": "MOON", "mu": 0.5, "tau": 0.5}
    assert "training" not in written["method"][0]
    assert written["method"][1]["training"]["clip"] == 1.0
    assert parse(IMAGES, flags=["rounds=6"]).identity != spec.identity


words = st.text("abcxyz_-019", min_size=1, max_size=5)
scalars = st.one_of(st.integers(), st.floats(allow_nan=False), st.booleans(), st.text(max_size=8))
inner = st.recursive(
    scalars,
    lambda some: st.lists(some, max_size=3) | st.dictionaries(words, some, max_size=3),
    max_leaves=6,
)
tables = st.dictionaries(words, inner, max_size=3)


@given(st.dictionaries(words, inner | tables | st.lists(tables, max_size=3), max_size=5))
def test_what_is_written_is_read(document):
    assert tomllib.loads(writer.toml(document)) == document


def test_a_list_stays_on_its_line():
    assert writer.toml({"steps": [1, 2], "cohort": {"size": 3}}) == (
        "steps = [1, 2]\n\n[cohort]\nsize = 3\n"
    )
