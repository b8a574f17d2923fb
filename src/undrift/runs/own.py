"""Methods from a user's file, without leaving them in the registry."""

from __future__ import annotations

import sys
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType

import undrift
from undrift.core.method import Method, registry


def own() -> ModuleType:
    """``undrift.check.own`` alone: importing it through its package would load torch."""
    name = "undrift.check.own"
    if name not in sys.modules:
        spec = spec_from_file_location(name, Path(undrift.__file__).parent / "check" / "own.py")
        assert spec and spec.loader
        sys.modules[name] = module = module_from_spec(spec)
        spec.loader.exec_module(module)
    return sys.modules[name]


def load(file: Path) -> list[type[Method]]:
    """The methods ``file`` defines; ``own().BadFile`` says what is wrong with it."""
    before = dict(registry)
    try:
        found = own().load(file)
    finally:
        taken = [name for name, known in before.items() if registry.get(name) is not known]
        registry.clear()
        registry.update(before)
        if taken:
            raise own().BadFile(f"{file}: {taken[0]} is a method of undrift already: choose another name")
    return found
