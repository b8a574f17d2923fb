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
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import FunctionType, MethodType

import numpy as np
from torch import Tensor, nn

PLAIN = (bool, int, float, complex, str, bytes, type(None), type(...))
LIBRARIES = ("undrift", "torch", "numpy", "builtins")
INSTALLED = {"site-packages", "dist-packages"}


class NoSource(ValueError):
    """Something whose source text cannot be read, so that changes to it could not be detected."""


def is_known(kind: type) -> bool:
    """Whether a class is known by its name: Python's, undrift's or that of a package."""
    return _installed(kind.__module__)


@functools.cache
def _installed(module: str) -> bool:
    top = module.partition(".")[0]
    if top in LIBRARIES or top in sys.stdlib_module_names:
        return True
    file = getattr(sys.modules.get(module), "__file__", None)
    return file is not None and not INSTALLED.isdisjoint(Path(file).parts)


def code_digest(thing: object) -> str | None:
    """The digest of a function, a class or an object; ``None`` if it cannot be compared."""
    try:
        text = _text(thing)
    except (NoSource, RecursionError, TypeError, RuntimeError):  # anything may be in an object
        return None
    return hashlib.sha256(text.encode()).hexdigest()


def _text(*things: object) -> str:
    return "\n".join(line for thing in things for line in _lines(thing))


def _lines(thing: object) -> Iterator[str]:
    if isinstance(thing, PLAIN):
        yield repr(thing)
    elif isinstance(thing, Tensor | np.ndarray | np.generic):
        yield _array(thing)
    elif isinstance(thing, list | tuple | set | frozenset):
        parts = [*map(_text, thing)]
        ordered = isinstance(thing, list | tuple)
        yield f"{type(thing).__name__} {parts if ordered else sorted(parts)}"
    elif isinstance(thing, Mapping):
        yield str([(str(key), _text(value)) for key, value in thing.items()])
    elif isinstance(thing, nn.Module):
        yield from _module(thing)
    elif isinstance(thing, functools.partial):
        yield _text(thing.func, thing.args, thing.keywords)
    elif isinstance(thing, MethodType):
        yield _text(thing.__func__, thing.__self__)
    elif inspect.isfunction(thing):
        yield _source(thing)
        if not _installed(thing.__module__):
            yield _text(thing.__defaults__, thing.__kwdefaults__)
            yield _text(inspect.getclosurevars(thing).nonlocals)
    elif isinstance(thing, type):
        yield from map(_source, (one for one in thing.__mro__ if one is not object))
    elif callable(thing) and hasattr(thing, "__name__"):
        yield f"{getattr(thing, '__module__', '')}.{thing.__name__}"
    else:
        yield _text(type(thing), _settings(thing))


def _module(net: nn.Module) -> Iterator[str]:
    yield repr(net)
    for kind in dict.fromkeys(map(type, net.modules())):
        yield _text(kind)
    kinds = (*PLAIN, list, tuple, dict)
    for part in net.modules():  # names with a line are torch's: parameters, buffers, hooks
        own = {name: value for name, value in vars(part).items() if not name.startswith("_")}
        yield _text({name: value for name, value in own.items() if isinstance(value, kinds)})
    yield _text(net.state_dict())


def _settings(thing: object) -> Mapping[str, object]:
    """The attributes of an object; :class:`NoSource` if it has none that Python can list."""
    try:
        return vars(thing)
    except TypeError:
        raise NoSource(f"a {type(thing).__qualname__} has no source text and no fields") from None


def _array(thing: Tensor | np.ndarray | np.generic) -> str:
    values = thing.detach().cpu().numpy() if isinstance(thing, Tensor) else np.asarray(thing)
    content = hashlib.sha256(np.ascontiguousarray(values).tobytes()).hexdigest()
    return f"{values.dtype} {values.shape} {content}"


def _source(thing: type | FunctionType) -> str:
    name = f"{thing.__module__}.{thing.__qualname__}"
    if _installed(thing.__module__):
        return name
    try:
        return inspect.getsource(thing)
    except (OSError, TypeError):  # as of a notebook's cell that is gone
        raise NoSource(f"the source text of {name} cannot be read") from None
