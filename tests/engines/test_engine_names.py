"""Engines are listed in one place, with their options, without loading torch."""

import dataclasses
import subprocess
import sys

from undrift.core.params import read
from undrift.engines import Engine, Simulate, Wire
from undrift.engines.distributed import Distributed
from undrift.engines.engine import load
from undrift.engines.federated import Federated
from undrift.engines.options import registry


def test_every_name_loads_an_engine():
    assert {name: load(name) for name in registry} == {
        "simulate": Simulate,
        "wire": Wire,
        "distributed": Distributed,
        "flower": Federated,
    }
    assert all(issubclass(load(name), Engine) for name in registry)


def test_options_are_declared_and_checked_like_any_parameters():
    assert dataclasses.asdict(registry["simulate"]()) == {"store": "auto"}
    for engine, store, wrong in (("simulate", "host", []), ("simulate", "cloud", ["store"])):
        assert [*read(registry[engine], {"store": store})[1]] == wrong
    assert [*read(registry["wire"], {"store": "host"})[1]] == ["store"]


def test_listing_engines_loads_no_torch():
    code = "import sys, undrift.engines.options; print({'torch', 'numpy'} & set(sys.modules))"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, encoding="utf-8", check=True
    )
    assert done.stdout.strip() == "set()"
