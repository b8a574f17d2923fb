"""``tables`` prints what the papers' module renders."""

import json

import pytest

from undrift.cli import main
from undrift_papers.tables import items, table


def test_one_table_and_all_of_them(capsys):
    for item in items():
        assert main(["tables", item]) == 0
        assert capsys.readouterr().out.rstrip() == table(item).text().rstrip()
    assert main(["tables"]) == 0
    out = capsys.readouterr().out
    assert all(table(item).text().rstrip() in out for item in items())


def test_as_json(capsys):
    assert main(["tables", items()[0], "--json"]) == 0
    (table,) = json.loads(capsys.readouterr().out).values()
    assert table["rows"] and table["title"]


def test_a_table_that_does_not_exist(capsys):
    with pytest.raises(SystemExit) as end:
        main(["tables", "x" + items()[0]])
    assert end.value.code == 2 and f"did you mean {items()[0]}?" in capsys.readouterr().err
