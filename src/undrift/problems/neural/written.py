"""What a user wrote, as text, for the digest of a network.

That digest is kept in run folders, so these words must stay. A run that is called from Python is
known by more, the code as Python runs it and all values that it reads: ``undrift.runs.code``.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Iterator, Mapping
from types import CodeType

from torch import Tensor, nn

PLAIN = (bool, int, float, str, type(None))
SMALL = 1000
"""Numbers of a tensor that is written out, such as the weights of classes."""
DEEP = 3
"""How far functions are followed that others are made of."""


def written(*things: object, deep: int = DEEP) -> str:
    """Functions, modules and names by their code and settings; weights are not part of it.

    What torch and undrift wrote is known by its name. Code that cannot be read, as that of a
    notebook's cell that is gone, counts by its bytes.
    """
    return "\n".join(line for thing in things for line in _lines(thing, deep))


def _lines(thing: object, deep: int) -> Iterator[str]:
    if isinstance(thing, PLAIN):
        yield repr(thing)
    elif isinstance(thing, Tensor):
        yield repr(thing.tolist()) if thing.numel() <= SMALL else f"{thing.dtype} {thing.shape}"
    elif isinstance(thing, list | tuple):
        yield "[" + ", ".join(written(one, deep=deep) for one in thing) + "]"
    elif isinstance(thing, nn.Module):
        yield repr(thing)
        yield from (written(buffer) for buffer in thing.buffers())
        for part in thing.modules():
            yield f"{type(part).__name__} {_settings(vars(part), deep)}"
        for kind in dict.fromkeys(map(type, thing.modules())):
            yield _code(kind)
    elif isinstance(thing, functools.partial):
        yield written(thing.func, [*thing.args], deep=deep) + _settings(thing.keywords, deep)
    elif inspect.isfunction(thing):
        yield _code(thing)
        yield written([*(thing.__defaults__ or ())], deep=deep)
        yield _settings(thing.__kwdefaults__ or {}, deep)
        yield _settings(inspect.getclosurevars(thing).nonlocals, deep)
    else:
        yield f"{type(thing).__module__}.{getattr(thing, '__name__', type(thing).__name__)}"
        yield _code(type(thing))
        yield _settings(getattr(thing, "__dict__", {}), deep)


def _settings(given: Mapping[str, object], deep: int) -> str:
    """Numbers, names, small tensors, lists and functions by name; nothing else."""
    kinds = (*PLAIN, list, tuple, Tensor, functools.partial)
    return repr(
        [
            f"{name} = {written(value, deep=deep - 1)}"
            for name, value in sorted(given.items())
            if isinstance(value, kinds) or (deep and inspect.isfunction(value))
        ]
    )


def _code(thing: object) -> str:
    room = str(getattr(thing, "__module__", ""))
    if room.partition(".")[0] in ("torch", "undrift", "builtins"):
        return f"{room}.{getattr(thing, '__qualname__', '')}"
    code = getattr(thing, "__code__", None)
    try:
        source = inspect.getsource(thing)  # type: ignore[arg-type]
    except (OSError, TypeError):
        return "" if code is None else f"{code.co_code.hex()} {_constants(code)!r}"
    if code is not None and code.co_name == "<lambda>":  # its line may have several
        source += repr((code.co_names, _constants(code)))
    return source


def _constants(code: CodeType) -> tuple[object, ...]:
    """Without functions inside it, which are written with their places in memory."""
    return tuple(one for one in code.co_consts if not isinstance(one, CodeType))
