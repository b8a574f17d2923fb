"""On which line of a text each table and key stands, against tomllib."""

import tomllib

import pytest
import tomli_w
from hypothesis import given
from hypothesis import strategies as st
from tests.spec.texts import paths

from undrift.spec.errors import Origin, locate
from undrift.spec.schema import path_of

TEXT = """\
# a comment with [brackets] and key = 1
name = "first"   # trailing # twice
"quoted key" = 1
'literal.key' = 2
"esc\\u0061ped" = 3

steps = [
  1,  # one
  2, 3,
  [4,
   5],
]
text = \"\"\"
not = "a key"
[not.a.table]
\\\"\"\" still inside \"\"\"
raw = '''
[[nor.this]]
''''
after = "]"
[problem]   # comment
name = "logistic"
split.kind = "dirichlet"
split . "alpha" = 0.1
inline = { a = 1, b = { c = [1, {d = "}"}] } }

[[method]]
name = "A"
lr = 0.1
  [[method.part]]
  k = 1
  [[method.part]]
  k = 2
[[method]]
lr = "theory"
name = 'B'
when = 1979-05-27 07:32:00
  [method.extra]
  z = -inf
"""


@pytest.mark.parametrize(
    ("path", "line"),
    [
        (("name",), 2),
        (("quoted key",), 3),
        (("literal.key",), 4),
        (("escaped",), 5),
        (("steps",), 7),
        (("problem", "inline"), 25),
        (("text",), 13),
        (("raw",), 17),
        (("after",), 20),
        (("problem",), 21),
        (("problem", "name"), 22),
        (("problem", "split"), 23),
        (("problem", "split", "alpha"), 24),
        (("method",), 27),
        (("method", 0), 27),
        (("method", 0, "lr"), 29),
        (("method", 0, "part", 1, "k"), 33),
        (("method", 1), 34),
        (("method", 1, "lr"), 35),
        (("method", 1, "when"), 37),
        (("method", 1, "extra", "z"), 39),
    ],
)
def test_a_key_is_found_on_its_line(path, line):
    tomllib.loads(TEXT)
    assert locate(TEXT)[path] == line
    assert locate(TEXT.replace("\n", "\r\n"))[path] == line


def line_of(text, path):
    return Origin("spec", text).complaint(path, "").line


def test_what_is_absent_has_the_line_of_what_is_around_it():
    assert line_of(TEXT, ("method", 1, "missing")) == 34
    assert line_of(TEXT, ("problem", "missing", 3)) == 21
    assert line_of(TEXT, ("missing",)) == 1
    assert line_of(TEXT, ("steps", 3, 1)) == 7
    assert line_of(TEXT, ("problem", "inline", "b", "c", 1, "d")) == 25
    assert line_of("", ()) == 1


scalars = st.one_of(
    st.integers(-(10**9), 10**9), st.floats(allow_nan=False), st.booleans(), st.text(max_size=8)
)
values = st.recursive(
    scalars,
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3)
    ),
    max_leaves=8,
)


def first_lines(text):
    """Every path and the line its statement starts on, by parsing ever longer parts of the text."""
    found, parsed, lines = {}, 0, text.split("\n")
    for end in range(1, len(lines) + 1):
        try:
            document = tomllib.loads("\n".join(lines[:end]))
        except tomllib.TOMLDecodeError:
            continue  # inside an array or a string
        for path in paths(document):
            found.setdefault(path, parsed + 1)
        parsed = end
    return found


@given(st.dictionaries(st.text(max_size=6), values, max_size=4), st.booleans())
def test_every_path_of_a_random_document_has_the_line_of_its_statement(document, multiline):
    text = tomli_w.dumps(document, multiline_strings=multiline)
    expected = first_lines(text)
    assert {path: line_of(text, path) for path in expected} == expected
    assert locate(text).keys() <= expected.keys()


def test_the_name_of_a_method_is_not_that_of_the_run():
    assert path_of("name", 1, {"name": "DANE"}) == ("method", 1, "name")
