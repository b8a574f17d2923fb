"""Every block of code in the pages for users runs as it stands, one after another, and shows what
the page says.
"""

import re
from pathlib import Path

import pytest
import torch

DOCS = Path(__file__).parents[1] / "docs"


def ran(name, folder, monkeypatch):
    """The names that a page's blocks leave behind, block by block."""
    page = (DOCS / name).read_text(encoding="utf-8")
    blocks = re.findall(r"^```python\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
    monkeypatch.chdir(folder)
    names, left, random = {}, [], torch.get_rng_state()
    try:
        for k, code in enumerate(blocks):
            exec(compile(code, f"docs/{name}, block {k}", "exec"), names)
            left.append(dict(names))
    finally:
        torch.set_rng_state(random)
    return left


@pytest.mark.whole
@pytest.mark.thorough
def test_step_sizes(tmp_path, monkeypatch):
    theory, guessed, noisy, auto, grid, network, decay, large = ran(
        "step-sizes.md", tmp_path, monkeypatch
    )
    ud, needed, found = theory["ud"], theory["needed"], grid["found"]
    assert guessed["mine"].constants.L is None and ud.estimate(guessed["mine"]).constants.L > 0
    assert auto["run"].method.lr == pytest.approx(0.5)
    assert auto["run"].history["gradients"][0] > 0
    fedrecu = [needed(ud.FedRecu(lr=lr)) for lr in ("theory", 0.1, 0.4)]
    assert fedrecu == pytest.approx([1045, 72, 19], abs=1)
    assert needed(ud.Scaffold(lr=0.1)) == pytest.approx(72, abs=1)
    assert noisy["run"].status == "done" and noisy["run"].history.last["gap"] > 1e-6
    for label, rounds in {"SCAFFOLD": 33, "FedRecu": 19}.items():
        assert found[label].best == {"lr": 0.4} and not found[label].open_ends
        assert needed(found[label].method) == pytest.approx(rounds, abs=1)
    assert network["best"]["Scaffold"].open_ends == []
    assert network["run"].history.last["accuracy"] > 0.85
    assert decay["fading"].history.last["gap"] < 0.5 * decay["steady"].history.last["gap"]
    assert large["run"].status == "diverged" and "try lr = 0.0" in large["run"].note
