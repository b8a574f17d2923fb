"""[[faults]] and [judge] in a spec: their places, and what they are part of."""

import tomllib

import pytest
from tests.spec.texts import CONVEX, refused

from undrift.core.faults import Fault, Judging
from undrift.records.folder import Folder
from undrift.runs.experiment import make
from undrift.spec.reader import parse

TABLES = """\
[judge]
norm = "off"
patience = 4
[[faults]]
kind = "drop-before"
rate = 0.25
[[faults]]
kind = "nan"
clients = [1, 3]
since = 2
"""
WHOLE = CONVEX + TABLES
FIRST = len(CONVEX.splitlines()) + 1


def test_they_reach_every_engine():
    spec = parse(WHOLE)
    plan = [Fault(kind="drop-before", rate=0.25), Fault(kind="nan", clients=[1, 3], since=2)]
    assert spec.faults == plan and spec.judge == Judging(norm="off", patience=4)
    for name in ("simulate", "wire"):  # the others need processes or nodes
        engine = make(parse(WHOLE, flags=[f"engine={name}"])).tasks[0].engine(0)
        assert engine.options.faults == plan and engine.judging == spec.judge


def test_they_are_part_of_the_identity():
    plain = parse(CONVEX)
    assert not {"faults", "judge"} & plain.document().keys()
    flags = [[], ["judge.patience=3"], ["judge.norm=1e6"], ["faults=[{kind='nan'}]"]]
    found = {parse(WHOLE, flags=some).identity for some in flags}
    assert len(found | {plain.identity}) == 5


def test_they_are_written_as_they_were_read(tmp_path):
    spec = parse(WHOLE)
    written = tomllib.loads(spec.toml())
    assert [table["kind"] for table in written["faults"]] == ["drop-before", "nan"]
    assert written["judge"] == {"norm": "off", "patience": 4}
    again = parse(spec.toml())
    assert again.document() == spec.document() and again.identity == spec.identity
    folder = Folder(tmp_path / "first")
    folder.start(spec, {})
    folder.close()
    assert folder.state(again) == "unfinished" and folder.state(parse(CONVEX)) == "other"


@pytest.mark.parametrize(
    ("old", "new", "path", "line"),
    [
        ('"drop-before"', '"drop"', ("faults", 0, "kind"), 4),
        ("rate = 0.25", "rat = 0.25", ("faults", 0, "rat"), 5),
        ("rate = 0.25", "rate = 2.0", ("faults", 0, "rate"), 5),
        ("[1, 3]", "[1, 99]", ("faults", 1, "clients"), 8),
        ("[1, 3]", "[1, 3]\nshare = 0.5", ("faults", 1, "share"), 9),
        ('kind = "nan"\n', "", ("faults", 1, "kind"), 6),
        ('"off"', "0.0", ("judge", "norm"), 1),
        ("patience = 4", 'patience = "wait"', ("judge", "patience"), 2),
        ("norm =", "nrom =", ("judge", "nrom"), 1),
    ],
)
def test_mistakes_have_their_lines(old, new, path, line):
    (complaint,) = refused(WHOLE.replace(old, new))
    assert complaint.path == path and (complaint.source, complaint.line) == ("s.toml", FIRST + line)
