"""Every mutant of benchmarks/mutants.py still finds its line."""

import pytest
from benchmarks.mutants import METHODS, MUTANTS, ROOT


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: f"{mutant.file}: {mutant.what}")
def test_its_text_occurs_once(mutant):
    source = (ROOT / METHODS / f"{mutant.file}.py").read_text(encoding="utf-8")
    assert source.count(mutant.text) == 1 and mutant.text != mutant.replacement
