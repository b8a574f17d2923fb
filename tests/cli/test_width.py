"""What is printed fits the terminal it is printed on."""

import json

import pytest

from undrift.cli import VERBS, added, main

COMMANDS = [
    *(f"list {kind}" for kind in ("methods", "objectives", "problems", "settings")),
    "tables fedrecu/table-1",
    "reproduce --list",
    "--help",
    *(f"{verb} --help" for verb in (*VERBS, *added())),
]


def printed(command, capsys):
    try:
        main(command.split())
    except SystemExit as end:  # --help
        assert end.code == 0
    return capsys.readouterr().out


@pytest.mark.parametrize("command", COMMANDS)
def test_sixty_columns(command, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "60")
    assert [line for line in printed(command, capsys).splitlines() if len(line) > 60] == []


def test_runs_at_any_width(place, capsys, monkeypatch):
    label = 'label = "SCAFFOLD with a label as long as may be"'
    (place / "spec.toml").write_text(
        (place / "spec.toml").read_text().replace('label = "SCAFFOLD"', label)
    )
    for width in (60, 100, 200):
        monkeypatch.setenv("COLUMNS", str(width))
        for command in ("run spec.toml", "compare mine", "run spec.toml --check"):
            lines = printed(command, capsys).splitlines()
            assert max(map(len, lines)) <= width
            if command != "run spec.toml --check":
                assert sum("all rounds run" in line for line in lines) == 2


def test_a_pipe_has_one_line_for_each_method(capsys):
    rows = json.loads(printed("list methods --json", capsys))
    lines = printed("list methods", capsys).splitlines()
    assert lines[2 + len(rows)] == ""
    assert all(
        line.split()[0] == row["name"] and line.endswith(row["title"])
        for line, row in zip(lines[2:], rows, strict=False)
    )
