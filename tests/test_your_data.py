"""Every block of code in docs/your-data.md runs as it stands, one after another."""

import re
from pathlib import Path

import torch

from undrift.spec.reader import parse

PAGE = (Path(__file__).parents[1] / "docs/your-data.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"^```python\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)


def test_the_page_runs_and_learns(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    names = {}
    random = torch.get_rng_state()
    try:
        for k, code in enumerate(BLOCKS):
            exec(compile(code, f"docs/your-data.md, block {k}", "exec"), names)
            rows = names["run"].history.rows
            assert rows[-1]["loss"] < 0.7 * rows[0]["loss"], code
    finally:
        torch.set_rng_state(random)
    assert len(BLOCKS) >= 4


def test_its_spec_is_a_good_one():
    (text,) = re.findall(r"^```toml\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
    (entry,) = parse(text).entries
    assert entry.local and entry.schedule
