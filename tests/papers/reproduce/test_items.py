"""Every item of every paper is sound."""

import json
import subprocess
import sys

import pytest

from undrift_papers.reproduce.items import find, item, names
from undrift_papers.reproduce.perform import EMBEDDED, ItemOptions, plan, wants

PAPERS = {
    "fedcet": {"figure-1"},
    "fedrecu": {"table-1", "table-2", "extra", *(f"figure-{k}" for k in range(1, 15))},
    "fedacg": {
        f"{kind}-{x}" for kind, letters in (("table", "abc"), ("figure", "abcdef")) for x in letters
    },
    "fedspeed": {
        *(f"table-{k}" for k in (1, 2, 4, 5, 6, 7, 8)),
        *(f"figure-{k}" for k in range(1, 6)),
    },
    "fedred": {"table-1", "figure-1", "figure-2"},
}


@pytest.mark.parametrize("name", names())
def test_an_item_says_what_it_shows_and_runs(name):
    it = item(name)
    assert it.title and it.shows
    assert len(it.reason.split()) < 200, "it opens the page: details belong to its causes"
    if it.kind in ("computed", "measured"):
        from undrift_papers.tables import TABLES

        assert TABLES[it.table]().rows
        return
    assert it.panel and len({panel.name for panel in it.panel}) == len(it.panel)
    for panel in it.panel:
        full, quick = it.spec(panel), it.spec(panel, quick=True)
        labels = {e.label for e in full.entries}
        assert labels >= {*panel.methods, *(label for c in panel.column for label in c.labels)}
        assert all(it.tried(e) for e in full.entries if e.label in it.grid)
        assert full.entries and full.document() != quick.document()
        assert [e.label for e in full.entries] == [e.label for e in quick.entries]
        assert all(
            less.rounds <= more.rounds
            for less, more in zip(quick.entries, full.entries, strict=True)
        )
    assert it.kind != "sweep" or all(panel.column for panel in it.panel)
    judged = any(c.printed or c.above or c.first for panel in it.panel for c in panel.column)
    assert not it.runs or judged or name in UNJUDGED


UNJUDGED = {"fedspeed/figure-4"}
"""Its paper says nothing of it that could be checked by a number."""


def test_quick_forms_can_be_built(monkeypatch):
    """Every quick problem of every item, on the digits, with an engine for every method."""
    from undrift.runs.api import prepare
    from undrift.runs.prepare import placed

    monkeypatch.delenv("UNDRIFT_DATA", raising=False)
    found = []
    for name in names():
        it = item(name)
        found += [
            w for panel in it.panel if it.runs for w in wants(it, panel, ItemOptions(quick=True))
        ]
    groups = plan(found)
    assert len(groups) < 60
    for group in groups:
        spec = group[0].spec
        problem = spec.problem.build(group[0].entry.objective)
        problem = placed(problem, spec.dtype, spec.device)
        for want in group:
            prepare(want.entry.method, problem, seed=want.seed, **want.spec.setting(want.entry))


def test_items_share_runs():
    def keys(name):
        return {
            w.key for panel in item(name).panel for w in wants(item(name), panel, ItemOptions())
        }

    assert keys("fedspeed/table-4") == keys("fedspeed/figure-1")
    other = keys("fedspeed/table-1") - keys("fedspeed/table-4")
    assert len(other) == 10  # the settings of text and appendix, another decay, another clipping
    assert len(keys("fedspeed/table-6") - keys("fedspeed/table-1")) == 6
    assert keys("fedrecu/figure-1") <= keys("fedrecu/figure-12")
    assert keys("fedspeed/table-5") <= keys("fedspeed/figure-1")
    assert len(keys("fedspeed/table-7") & keys("fedspeed/table-8")) == 4
    c, d = (f"fedacg/figure-{x}" for x in "bc")
    assert len(keys(c) & keys("fedacg/table-b")) == len(keys(d) & keys("fedacg/table-c")) == 16


def test_names():
    for paper, expected in PAPERS.items():
        assert {name.partition("/")[2] for name in (it.name for it, _ in find(paper))} >= expected
    [(it, panels)] = find("fedacg/table-b/a-cifar10")
    assert it.name == "fedacg/table-b" and [p.name for p in panels] == ["a-cifar10"]
    assert [it.name for it, _ in find("all")] == names()
    assert names()[:2] == ["fedacg/table-a", "fedacg/table-b"]
    order = [n for n in names() if n.startswith("fedrecu/figure")]
    assert order.index("fedrecu/figure-2") < order.index("fedrecu/figure-10")


@pytest.mark.parametrize(
    ("wanted", "message"),
    [
        ("fedsped", "did you mean fedspeed"),
        ("fedspeed/tabel-1", "did you mean fedspeed/table-1"),
        ("fedacg/table-b/a-cifar", "did you mean a-cifar10"),
    ],
)
def test_an_unknown_name_gets_the_nearest(wanted, message):
    with pytest.raises(ValueError, match=message):
        list(find(wanted))


def test_the_list_is_told_without_torch(tmp_path):
    code = (
        "import sys; from undrift.cli import main; main(['reproduce', '--list', '--json']); "
        "print({'torch', 'numpy', 'matplotlib'} & set(sys.modules), file=sys.stderr)"
    )
    words = [sys.executable, "-c", code]
    done = subprocess.run(words, capture_output=True, text=True, check=True, cwd=tmp_path)
    assert done.stderr.splitlines()[-1] == "set()"
    found = {row["item"]: row for row in json.loads(done.stdout)}
    assert set(found) == set(names())
    table = found["fedspeed/table-1"]
    assert (table["runs"], table["kept"], table["takes"]) == (58, 0, None)
    assert found["fedrecu/figure-1"]["takes"] == "12 min on one H200"
    assert found["fedrecu/table-1"]["takes"] is None and found["fedrecu/table-1"]["runs"] == 0


def test_the_stand_in_for_absent_data(monkeypatch):
    monkeypatch.delenv("UNDRIFT_DATA", raising=False)
    it = item("fedspeed/table-1")
    quick, full = (
        wants(it, it.panel[0], ItemOptions(quick=quick))[0].spec.problem for quick in (True, False)
    )
    assert (quick.data, quick.augment) == ("digits", "none") and full.data == "cifar10"
    assert EMBEDDED[0].endswith(quick.data)


def test_notes_of_a_method_are_on_the_pages_that_have_it():
    with_scaffnew, without = item("fedrecu/figure-1"), item("fedrecu/figure-8")
    for one, expected in ((with_scaffnew, True), (without, False)):
        assert any(note.startswith("Scaffnew: p") for note in one.notes("ambiguous")) is expected
        assert any("FedRecu (code)" in note for note in one.notes("authors")) is expected
        assert any(note.startswith("Batch 128") for note in one.notes("ambiguous"))
