"""Digests of what a program gives to a run: its functions, classes and networks.

A call of ``undrift.run`` with ``save`` continues the run in a folder only if it is the same call;
of code the folder has these digests to tell. They are of source text, fields and weights. What
Python, torch, undrift and installed packages wrote is known by its name. Values that a function
reads from its module, and functions that it calls, are not part of it.
"""

from __future__ import annotations

import functools
import hashlib
import inspect
import sys
from collections.abc import Mapping
from pathlib import Path
from types import FunctionType, MethodType

import numpy as np
from torch import Tensor, nn

PLAIN = (bool, int, float, complex, str, bytes, type(None), type(...))
LIBRARIES = ("undrift", "torch", "numpy", "builtins")
INSTALLED = {"site-packages", "dist-packages"}


@functools.cache
def installed(module: str) -> bool:
    """Whether a module is Python's, undrift's or that of a package."""
    top = module.partition(".")[0]
    if top in LIBRARIES or top in sys.stdlib_module_names:
        return True
    file = getattr(sys.modules.get(module), "__file__", None)
    return file is not None and not INSTALLED.isdisjoint(Path(file).parts)


def code_digest(thing: object) -> str | None:
    """The digest of a function, a class or an object; ``None`` if it cannot be compared."""
    try:
        return hashlib.sha256(_text(thing).encode()).hexdigest()
    # No source text, as of a notebook's cell that is gone, or an object without fields.
    except (OSError, TypeError, RecursionError, RuntimeError):
        return None


def _text(thing: object) -> str:
    if isinstance(thing, PLAIN):
        return repr(thing)
    if isinstance(thing, Tensor):
        return _text(thing.detach().cpu().numpy())
    if isinstance(thing, np.ndarray):
        return f"{thing.dtype} {thing.shape} {hashlib.sha256(thing.tobytes()).hexdigest()}"
    if isinstance(thing, list | tuple):
        return f"{type(thing).__name__} {[*map(_text, thing)]}"
    if isinstance(thing, Mapping):
        return str([(str(key), _text(value)) for key, value in thing.items()])
    if isinstance(thing, functools.partial):
        return _text([thing.func, thing.args, thing.keywords])
    if isinstance(thing, MethodType):
        return _text([thing.__func__, thing.__self__])
    if isinstance(thing, type):
        return "\n".join(_source(one) for one in thing.__mro__ if one is not object)
    if isinstance(thing, FunctionType):
        closed = inspect.getclosurevars(thing).nonlocals
        values = [thing.__defaults__, thing.__kwdefaults__, closed]
        return _source(thing) + ("" if installed(thing.__module__) else _text(values))
    if isinstance(thing, nn.Module):
        kinds, settings = dict.fromkeys(map(type, thing.modules())), map(_settings, thing.modules())
        return repr(thing) + _text([*kinds, *settings, thing.state_dict()])
    if callable(thing) and hasattr(thing, "__name__"):
        return f"{getattr(thing, '__module__', '')}.{thing.__name__}"
    return _text([type(thing), vars(thing)])


def _settings(part: nn.Module) -> dict[str, object]:
    """The plain attributes of a module; names with a line are torch's, as parameters and hooks."""
    own = {name: value for name, value in vars(part).items() if not name.startswith("_")}
    return {n: v for n, v in own.items() if isinstance(v, (*PLAIN, list, tuple, dict))}


def _source(thing: type | FunctionType) -> str:
    name = f"{thing.__module__}.{thing.__qualname__}"
    return name if installed(thing.__module__) else inspect.getsource(thing)
