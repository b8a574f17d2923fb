"""Every block of code in docs/your-data.md runs as it stands, one after another."""

import re
from pathlib import Path

import numpy as np
import torch

import undrift as ud
from undrift.data import tables
from undrift.spec.reader import parse

PAGE = (Path(__file__).parents[1] / "docs/your-data.md").read_text(encoding="utf-8")
BLOCKS, SPECS = (
    re.findall(rf"^```{language}\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
    for language in ("python", "toml")
)


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


def test_a_csv_file_becomes_a_problem_and_a_file_for_a_federation(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    make, problem, convert = (
        next(code for code in BLOCKS if word in code)
        for word in ('open("wards.csv", "w"', "def wards(", "def to_svmlight(")
    )
    names = {}
    for code in (make, problem, convert):
        exec(code, names)
    Path("wards.py").write_text(problem, encoding="utf-8")
    Path("spec.toml").write_text(SPECS[0], encoding="utf-8")
    assert names["wards"]().clients == 3
    assert ud.run_spec("spec.toml")["Scaffold", 0].history.last["accuracy"] > 0.9
    table = tables.load("wards", tmp_path)
    read = np.genfromtxt("wards.csv", delimiter=",", skip_header=1, usecols=(0, 1, 2))
    assert np.array_equal(table.features, read[:, :2])
    assert np.array_equal(table.labels, 2 * read[:, 2] - 1)


def test_its_spec_is_a_good_one():
    (entry,) = parse(SPECS[1]).entries
    assert entry.local and entry.schedule
