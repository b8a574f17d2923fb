"""docs/federations.md: its table is that of the data, and its blocks run."""

import re
import subprocess
import sys
from pathlib import Path

import pytest
from tools import federations_page

from tests.test_pages import DOCS, ran

PAGE = (DOCS / "federations.md").read_text(encoding="utf-8")


def test_the_table_is_that_of_the_data():
    assert federations_page.page() == PAGE, "make stubs writes it"
    assert (DOCS / "pictures/federations.png").is_file()


@pytest.mark.thorough
def test_python_blocks_run(tmp_path, monkeypatch):
    named, network, raw, estimator = ran("federations.md", tmp_path, monkeypatch)
    assert named["run"].history["gap"][-1] < 1e-5
    assert network["run"].history.last["accuracy"] > 0.75
    age = raw["raw"].features[:, raw["raw"].columns.index("age")]
    assert 28 <= age.min() < age.max() <= 77
    assert estimator["model"].score(raw["heart"].features, raw["heart"].target) > 0.8


@pytest.mark.whole
@pytest.mark.thorough
def test_commands_run(tmp_path):
    (spec,) = re.findall(r"^<!-- file: (\S+) -->\n```toml\n(.*?)^```$", PAGE, re.M | re.S)
    (tmp_path / spec[0]).write_text(spec[1], encoding="utf-8")
    blocks = re.findall(r"^```sh\n(.*?)^```$", PAGE, re.M | re.S)
    commands = [line.split() for block in blocks for line in block.splitlines()]
    assert len(commands) == 4
    for program, *words in commands:
        assert program == "undrift"
        done = subprocess.run(
            [sys.executable, "-m", "undrift", *words],
            cwd=tmp_path, capture_output=True, encoding="utf-8", timeout=200,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
    assert {path.name for path in Path(tmp_path, "runs").iterdir()} == {"hospitals", "pooled"}
