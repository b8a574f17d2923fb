"""Digests of what a program gives to a run: its functions, classes and networks.

A call of ``undrift.run`` with ``save`` continues the run in a folder only if it is the same call;
of code the folder has these digests to tell. A digest is of the code as Python runs it and of all
values that the code reads: defaults, closures, attributes, globals. Comments are not part of it,
nor is where the code is. What Python, undrift and installed packages wrote counts by its name.

Folders keep digests: a change here that gives other ones would refuse runs that could go on.
"""

from __future__ import annotations

import copyreg
import dis
import functools
import hashlib
import sys
import sysconfig
import types
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

PLAIN = (bool, int, float, complex, str, bytes, type(None), type(...), type(NotImplemented))
BUILT_IN = (
    types.BuiltinFunctionType,
    types.MethodDescriptorType,
    types.ClassMethodDescriptorType,
    types.WrapperDescriptorType,
    types.MethodWrapperType,
    types.GetSetDescriptorType,
    types.MemberDescriptorType,
)
LIBRARIES = ("undrift", "torch", "numpy")
"""Packages whose code is known by name, wherever they are installed."""
INSTALLED = {"site-packages", "dist-packages"}
ASIDE = {
    *("__annotations__", "__annotate__", "__annotate_func__", "__annotations_cache__"),
    *("__module__", "__qualname__", "__firstlineno__", "__doc__", "__static_attributes__"),
    *("__dict__", "__weakref__", "__abstractmethods__", "_abc_impl", "__orig_bases__"),
    *("__dataclass_fields__", "__dataclass_params__", "__parameters__"),
}
"""What Python notes in a class besides what it does."""
MADE_BY_PROGRAM = 1 << 9
"""The flag of classes that were made as a program ran; without a module they claim builtins."""
READING = ("LOAD_GLOBAL", "LOAD_NAME", "LOAD_FROM_DICT_OR_GLOBALS")


class Unwritten(ValueError):
    """A value that has no digest: ``path`` is how it is reached, by names."""

    def __init__(self, path: Iterable[str], kind: type):
        self.path, self.kind = ".".join(name for name in path if name), kind
        super().__init__(f"{self.path} is a {kind.__qualname__}, of which there is no digest")


def is_known(kind: type) -> bool:
    """Whether a class is known by its name: Python's, undrift's or that of a package."""
    unplaced = kind.__module__ == "builtins" and kind.__flags__ & MADE_BY_PROGRAM
    return known(kind.__module__) and not unplaced


@functools.cache
def known(module: str) -> bool:
    """Whether the code of a module is known by its name: that of Python or of a package."""
    top = module.partition(".")[0]
    if top in LIBRARIES or module == "__main__":
        return top in LIBRARIES
    file = getattr(sys.modules.get(module), "__file__", None)
    if file is None:
        return top in sys.stdlib_module_names
    path = Path(file)
    return path.is_relative_to(sysconfig.get_path("stdlib")) or not INSTALLED.isdisjoint(path.parts)


def code_digest(thing: object, name: str) -> str:
    """The digest of a function, an object or a class called ``name``, with all that it reads.

    Raises :class:`Unwritten` where it reads what cannot be taken apart, such as a lock.
    """
    walk = _Walk()
    try:
        return hashlib.sha256(walk.text(thing, name).encode()).hexdigest()
    except RecursionError:
        raise Unwritten([name], type(thing)) from None


class _Walk:
    """Everything that can be reached from one thing, each part once."""

    def __init__(self) -> None:
        self.found: dict[int, str] = {}
        """The digest of a part, or its depth while that is still open, as in a circle."""
        self.held: list[object] = []
        """All of them, so that no two have the same id."""
        self.path: list[str] = []

    def text(self, thing: object, name: str = "") -> str:
        if type(thing) in PLAIN:
            return f"{type(thing).__name__} {thing!r}"
        if id(thing) not in self.found:
            self.path.append(name)
            self.held.append(thing)
            self.found[id(thing)] = f"circle {len(self.path)}"
            content = "\n".join(self._lines(thing))
            self.found[id(thing)] = hashlib.sha256(content.encode()).hexdigest()
            self.path.pop()
        return self.found[id(thing)]

    def _lines(self, thing: object) -> Iterator[str]:
        kind = type(thing)
        if isinstance(thing, Tensor | np.ndarray | np.generic) and not (
            isinstance(thing.dtype, np.dtype) and thing.dtype.hasobject
        ):
            yield self._array(thing)
        elif kind in (list, tuple):
            yield from [kind.__name__, *self._each(thing)]  # type: ignore[arg-type]
        elif kind in (set, frozenset):
            yield from [kind.__name__, *sorted(self._each(thing))]  # type: ignore[arg-type]
        elif kind in (dict, types.MappingProxyType):
            yield "dict"
            for key, value in thing.items():  # type: ignore[attr-defined]
                yield f"{self.text(key)}: {self.text(value, str(key))}"
        elif isinstance(thing, types.CodeType):
            yield from self._code(thing)
        elif isinstance(thing, types.FunctionType):
            yield from self._function(thing)
        elif isinstance(thing, types.MethodType):
            yield self.text(thing.__func__, thing.__func__.__name__)
            yield self.text(thing.__self__, type(thing.__self__).__name__)
        elif isinstance(thing, type):
            yield from self._class(thing)
        elif isinstance(thing, types.ModuleType):
            yield f"module {thing.__name__}"
            yield from self._named(self._of_modules([thing], vars(thing).keys()))
        elif isinstance(thing, property):
            yield from self._each([thing.fget, thing.fset, thing.fdel])
        elif isinstance(thing, staticmethod | classmethod):
            yield from [kind.__name__, self.text(thing.__func__)]
        elif isinstance(thing, functools.cached_property):
            yield self.text(thing.func)
        elif isinstance(thing, torch.jit.ScriptModule | torch.jit.ScriptFunction):
            yield from self._script(thing)
        elif isinstance(thing, BUILT_IN):
            yield from self._built_in(thing)
        elif (inner := getattr(thing, "__wrapped__", None)) is not None:  # a cache of a function
            yield self.text(inner)
        else:
            yield from self._object(thing)

    def _each(self, things: Iterable[object]) -> list[str]:
        return [self.text(thing) for thing in things]

    def _named(self, pairs: Iterable[tuple[str, object]]) -> Iterator[str]:
        for name, value in pairs:
            yield f"{name} = {self.text(value, name)}"

    def _array(self, thing: Tensor | np.ndarray | np.generic) -> str:
        try:
            if isinstance(thing, Tensor):
                tensor = thing.detach().to_dense().cpu().contiguous()
                content = tensor.reshape(-1).view(torch.uint8).numpy().tobytes()
            else:
                content = thing.tobytes()
        except (RuntimeError, NotImplementedError):  # as one without memory
            raise Unwritten(self.path, type(thing)) from None
        return f"{thing.dtype} {[*thing.shape]} {hashlib.sha256(content).hexdigest()}"

    def _code(self, code: types.CodeType) -> Iterator[str]:
        counts = code.co_argcount, code.co_posonlyargcount, code.co_kwonlyargcount, code.co_flags
        names = code.co_names, code.co_varnames, code.co_freevars, code.co_cellvars
        yield from self._each([code.co_code, code.co_exceptiontable, *counts, *names])
        yield from self._each(code.co_consts)

    def _function(self, function: types.FunctionType) -> Iterator[str]:
        """Its code and all that it reads; a function of a package by its name and its closure."""
        if (compiled := getattr(function, "_torchdynamo_orig_callable", None)) is not None:
            yield self.text(compiled)
            return
        closed = _cells(function)
        room = str(function.__globals__.get("__name__", ""))
        if known(room):
            yield _title(room, function.__qualname__)
            yield from self._named(closed.items())
            return
        yield self.text(function.__code__)
        yield from self._each([function.__defaults__, function.__kwdefaults__])
        yield from self._named(sorted(vars(function).items()))
        codes = [*_codes(function.__code__)]
        names, modules = _looked_up(function, codes)
        read = sorted((closed | names).items())
        modules = [v for _, v in read if isinstance(v, types.ModuleType)] + modules
        yield from self._named((k, v) for k, v in read if not isinstance(v, types.ModuleType))
        yield from (f"module {module.__name__}" for module in modules)
        named = {name for code in codes for name in code.co_names}
        yield from self._named(self._of_modules(modules, named))

    def _of_modules(
        self, modules: list[types.ModuleType], names: Iterable[str]
    ) -> Iterator[tuple[str, object]]:
        """What the user's own ones of these modules, and of those in them, have by ``names``."""
        left, seen = [*modules], set[str]()
        while left:
            module = left.pop()
            if known(module.__name__) or module.__name__ in seen:
                continue
            seen.add(module.__name__)
            for name in sorted(set(names) & vars(module).keys()):
                value = vars(module)[name]
                if isinstance(value, types.ModuleType):
                    left.append(value)
                elif not name.startswith("__"):
                    yield f"{module.__name__}.{name}", value

    def _class(self, kind: type) -> Iterator[str]:
        if is_known(kind):
            yield _title(kind.__module__, kind.__qualname__)
            return
        yield f"class {kind.__name__}"
        yield from self._each(kind.__bases__)
        yield from self._named((k, v) for k, v in sorted(vars(kind).items()) if k not in ASIDE)

    def _built_in(self, thing: object) -> Iterator[str]:
        """A function that is not Python's, by its name; of one's own, also by its file."""
        owner = getattr(thing, "__self__", None)
        parent = getattr(thing, "__objclass__", None)
        room = getattr(thing, "__module__", None) or getattr(parent, "__module__", None) or ""
        yield _title(room, getattr(thing, "__qualname__", ""))
        if owner is not None and not isinstance(owner, type | types.ModuleType):
            yield self.text(owner)
        file = getattr(sys.modules.get(room), "__file__", None)
        if file is not None and not known(room):
            yield hashlib.sha256(Path(file).read_bytes()).hexdigest()

    def _script(self, thing: object) -> Iterator[str]:
        """The code of TorchScript, and the tensors."""
        parts: list[object] = [thing]
        if isinstance(thing, torch.jit.ScriptModule):
            parts = [*thing.modules()]
            yield from self._named(thing.state_dict().items())
        yield from (str(getattr(part, "code", "")) for part in parts)

    def _object(self, thing: object) -> Iterator[str]:
        """Its class and its content, taken apart as for a copy."""
        reduce = copyreg.dispatch_table.get(type(thing))
        try:
            parts = thing.__reduce_ex__(2) if reduce is None else reduce(thing)
        except Exception:  # anything may refuse that, in its own way
            if not isinstance(thing, nn.Module):
                raise Unwritten(self.path, type(thing)) from None
            parts = type(thing), (), vars(thing)  # as one whose weights are computed does
        if isinstance(parts, str):
            yield _title(str(getattr(thing, "__module__", type(thing).__module__)), parts)
            return
        made, given, state, *items = [*parts, None, None, None][:5]
        yield from self._each([made, given])
        if isinstance(thing, nn.Module) and isinstance(state, dict):
            state = _without_handles(state)
        if isinstance(state, dict):
            yield from self._named(state.items())
        else:
            yield self.text(state)
        yield from self._each([*one] if one is not None else None for one in items)


def _without_handles(state: Mapping[str, object]) -> dict[str, object]:
    """Hooks of a module without their numbers, which count those of all modules."""
    found = dict[str, object]()
    for name, value in state.items():
        if not name.startswith("_") or "hooks" not in name or not isinstance(value, dict):
            found[name] = value
        elif value:
            found[name] = [*value.values()]
    return found


def _title(room: str, name: str) -> str:
    """What a part of a package is called; its version counts where no folder has that."""
    top = room.partition(".")[0]
    if top == "undrift":
        return f"undrift {name}"
    version = getattr(sys.modules.get(top), "__version__", "")
    return f"{room} {name} {'' if top in LIBRARIES else version}"


def _cells(function: types.FunctionType) -> dict[str, object]:
    """What it closes over, as far as that is set."""
    found = dict[str, object]()
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
        try:
            found[name] = cell.cell_contents
        except ValueError:
            continue
    return found


def _codes(code: types.CodeType) -> Iterator[types.CodeType]:
    """A code with those inside it."""
    yield code
    for inner in code.co_consts:
        if isinstance(inner, types.CodeType):
            yield from _codes(inner)


def _looked_up(
    function: types.FunctionType, codes: Iterable[types.CodeType]
) -> tuple[dict[str, object], list[types.ModuleType]]:
    """The globals that a function's codes read, as far as they are set, and the modules that they
    import as they run.
    """
    steps = [step for code in codes for step in dis.get_instructions(code)]
    read = {step.argval for step in steps if step.opname in READING}
    found = {name: value for name, value in function.__globals__.items() if name in read}
    package = function.__globals__.get("__package__") or ""
    names = sorted({step.argval for step in steps if step.opname == "IMPORT_NAME"})
    places = [place for name in names for place in (name, f"{package}.{name}".strip("."))]
    return found, [sys.modules[place] for place in places if place in sys.modules]
