import pytest

from undrift.cli import main

SPEC = """\
name = "mine"
rounds = 12
steps = 3
[problem]
name = "quadratic"
clients = 4
dim = 5
[[method]]
name = "FedAvg"
lr = 0.02
[[method]]
name = "Scaffold"
label = "SCAFFOLD"
lr = 0.02
"""


@pytest.fixture
def place(tmp_path, monkeypatch):
    """A working folder with a small spec in it."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "spec.toml").write_text(SPEC)
    return tmp_path


def told(capsys, *words):
    """The exit code of a command, what it printed and what it said."""
    capsys.readouterr()
    try:
        code = main(list(words))
    except SystemExit as end:
        code = end.code
    return code, *capsys.readouterr()
