"""The blocks of docs/python.md about early stopping, callbacks and own code in specs run."""

import re
from pathlib import Path

import pytest

import undrift as ud
from undrift.check.found import checked
from undrift.spec.user_files import execute


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


PAGE = (Path(__file__).parents[2] / "docs/python.md").read_text(encoding="utf-8")


def blocks(title, kind):
    """The blocks of one kind under a heading."""
    (section,) = re.findall(rf"^## {title}\n(.*?)^## ", PAGE, re.MULTILINE | re.DOTALL)
    return re.findall(rf"^```{kind}\n(.*?)^```$", section, re.MULTILINE | re.DOTALL)


def test_early_stopping_and_callbacks():
    names = {}
    for title in ("Early stopping and the best model", "Callbacks"):
        (code,) = blocks(title, "python")
        exec(compile(code, f"docs/python.md, {title}", "exec"), names)
        run = names["run"]
        assert run.status == "early" and run.note and run.history.last["round"] < 1000
    (table,) = blocks("Early stopping and the best model", "toml")
    text = f'name = "a"\nrounds = 3\n{table}[problem]\nname = "images"\nclients = 4\n'
    Path("a.toml").write_text(f'{text}[[method]]\nname = "FedAvg"\nlr = 0.1\n')
    assert ud.run_spec("a.toml")["FedAvg", 0].status == "done"


def test_own_code_in_a_spec():
    (code,) = blocks("Your own code in a spec", "python")
    Path("mine.py").write_text(code, encoding="utf-8")
    specs = blocks("Your own code in a spec", "toml")
    assert len(specs) == 2
    for text in specs:
        Path("spec.toml").write_text(text, encoding="utf-8")
        for run in ud.run_spec("spec.toml").values():
            assert run.status == "done" and run.history["loss"][-1] < run.history["loss"][0]
    for thing in checked(execute(Path("mine.py"))):
        assert [result.failure for result in thing.results() if result.failure] == [], thing.name
