"""The note in every item of the runs that its reason and causes are about."""

import json

import pytest
from tools.found import PAGES, PAPERS, changes, written

from undrift_papers.reproduce.verdict import OPEN

ITEM = """# a comment
[item]
title = "A"
found = { rounds = 10, agree = 1, ordered = 0 }  # {of May}
reason = \"\"\"Because
found = { so }\"\"\"

[[item.panel]]
name = "a"
"""
NEW = {"rounds": 30, "agree": 2, "ordered": 1, "worst": -0.5}


@pytest.fixture
def item(tmp_path):
    file = tmp_path / "papers" / "some" / "table-1.toml"
    file.parent.mkdir(parents=True)
    file.write_bytes(ITEM.encode())
    return file


def changed(root, verdict="reproduced", found=NEW):
    page = root / "pages" / "some" / "table-1.json"
    page.parent.mkdir(parents=True, exist_ok=True)
    page.write_text(json.dumps({"item": "some/table-1", "verdict": verdict, "found": found}))
    return [name for name, *_ in changes(root / "pages", root / "papers")]


def test_every_reason_is_about_the_page_in_docs():
    """If not: python -m tools.found, and read the texts that it names again."""
    assert [name for name, *_ in changes(PAGES, PAPERS)] == []


def test_only_the_note_is_written(item, tmp_path):
    assert changed(tmp_path) == ["some/table-1"]
    item.write_bytes(written(item, NEW).encode())
    line = "found = { rounds = 30, agree = 2, ordered = 1, worst = -0.5 }  # {of May}"
    assert item.read_text().splitlines() == [
        line if "of May" in before else before for before in ITEM.splitlines()
    ]
    assert changed(tmp_path) == []


def test_items_that_were_not_run_or_say_nothing_need_no_note(item, tmp_path):
    assert changed(tmp_path, verdict=OPEN) == []
    item.write_text('[item]\ntitle = "A"\n')
    assert changed(tmp_path) == []
