"""What a benchmark takes from undrift, and from other benchmarks, is there."""

import importlib
from pathlib import Path

import pytest

import benchmarks

FILES = sorted(Path(benchmarks.__file__).parent.glob("*.py"))


@pytest.mark.parametrize("name", [file.stem for file in FILES if file.stem != "__init__"])
def test_every_benchmark_can_be_imported(name):
    importlib.import_module(f"benchmarks.{name}")
