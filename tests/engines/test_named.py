"""Engines are listed in one place, with their options, without loading torch."""

import dataclasses
import subprocess
import sys

from undrift.core.params import check
from undrift.engines import Engine, Simulate, Wire
from undrift.engines.distributed import Distributed
from undrift.engines.federated import Federated
from undrift.engines.named import registry


def test_every_name_loads_an_engine():
    assert {name: engine.load() for name, engine in registry.items()} == {
        "simulate": Simulate,
        "wire": Wire,
        "distributed": Distributed,
        "flower": Federated,
    }
    assert all(issubclass(engine.load(), Engine) for engine in registry.values())


def test_options_are_declared_and_checked_like_any_parameters():
    assert dataclasses.asdict(registry["simulate"].options()) == {"store": "auto"}
    assert check(registry["simulate"].options, {"store": "host"}) == {}
    assert set(check(registry["simulate"].options, {"store": "cloud"})) == {"store"}
    assert set(check(registry["wire"].options, {"store": "host"})) == {"store"}


def test_listing_engines_loads_no_torch():
    code = "import sys, undrift.engines.named; print({'torch', 'numpy'} & set(sys.modules))"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, encoding="utf-8", check=True
    )
    assert done.stdout.strip() == "set()"
