"""The engine of a spec: a name, or a table with the options that this engine declares."""

import tomllib

import pytest
from tests.spec.texts import CONVEX, refused

from undrift.engines.options import registry
from undrift.records.folder import Folder
from undrift.spec.reader import parse

StoreOptions = registry["simulate"]
TABLE = (
    CONVEX
    + """\
[engine]
name = "simulate"
store = "host"
"""
)


def test_a_name_and_a_table_are_the_same():
    plain = parse(CONVEX)
    assert plain.engine == StoreOptions()
    table = parse(TABLE)
    assert table.engine == StoreOptions(store="host")
    assert parse(CONVEX + '[engine]\nstore = "host"\n').engine == table.engine
    assert parse(CONVEX, flags=["engine=wire"]).engine.name == "wire"
    assert parse(CONVEX, flags=["engine.store=file"]).engine.store == "file"


@pytest.mark.parametrize("engine", registry)
def test_options_are_no_part_of_what_a_spec_computes(engine):
    spec = parse(CONVEX, flags=[f"engine={engine}"])
    assert spec.document()["engine"] == engine
    assert parse(CONVEX + f'[engine]\nname = "{engine}"\n').identity == spec.identity


def test_they_are_kept_in_the_folder_of_a_run(tmp_path):
    plain, table = parse(CONVEX), parse(TABLE)
    assert plain.identity == table.identity
    assert tomllib.loads(table.toml())["engine"] == {"name": "simulate", "store": "host"}
    assert parse(table.toml()).engine == table.engine
    folder = Folder(tmp_path / table.name)
    folder.start(table, {})
    folder.close()
    assert folder.state(table) == folder.state(plain) == "unfinished"
    assert folder.state(parse(CONVEX, flags=["engine=wire"])) == "other"


@pytest.mark.parametrize(
    ("old", "new", "path", "line", "words"),
    [
        ('"host"', '"cloud"', ("engine", "store"), 12, "'device' or 'host'"),
        ("store =", "stor =", ("engine", "stor"), 12, "did you mean store?"),
        ('"simulate"', '"wire"', ("engine", "store"), 12, "unknown parameter of wire"),
        ('"simulate"', '"simulat"', ("engine", "name"), 11, "did you mean simulate?"),
    ],
)
def test_a_wrong_option_is_refused_at_its_line(old, new, path, line, words):
    assert TABLE.count(old) == 1
    (found,) = refused(TABLE.replace(old, new))
    assert (found.path, found.line) == (path, line) and words in found.text
