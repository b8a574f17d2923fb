"""Modules beside a user's file that it imports: they belong to it, as if they were part of it."""

from __future__ import annotations

import ast
import importlib.util
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType

from undrift.spec.errors import BadFile

INSTALLED = {*sys.stdlib_module_names, "undrift", "torch", "numpy"}
"""Names that are never those of modules beside a file."""


def sources(folder: Path, files: Iterable[str]) -> dict[str, bytes]:
    """The users' files of a spec in ``folder``, and after them the modules that they import."""
    modules = dict[str, None]()
    for file in files:
        for place in beside(folder / file).values():
            for part in _files(place):
                modules[part.relative_to(folder).as_posix()] = None
    return {name: (folder / name).read_bytes() for name in dict.fromkeys([*files, *modules])}


def beside(file: Path) -> dict[str, Path]:
    """The modules in the folder of ``file`` that it imports, and that these import, by name.

    A package is a folder, and belongs to the file whole.
    """
    found, left = dict[str, Path](), [file]
    while left:
        for name, _, _ in _imports(left.pop()):
            if name not in found and (place := _locate(file.parent, name)):
                found[name] = place
                left += _files(place)
    return found


def refuse_late(file: Path) -> None:
    """Refuse an import inside a function, which would look for the module when that is called.

    By then another file's module of that name may be loaded. Raises :class:`BadFile`.
    """
    modules = beside(file)
    for one in (file, *(part for place in modules.values() for part in _files(place))):
        for name, line, late in _imports(one):
            if late and name in modules:
                text = f"imports {name} inside a function: import it at the top of the file"
                raise BadFile(one, text, line)


@contextmanager
def importable(modules: Mapping[str, Path]) -> Iterator[None]:
    """Let files import ``modules``, read anew; the program's own of these names come back after."""
    offered = [finder.modules for finder in sys.meta_path if isinstance(finder, _Finder)]
    new = {n: p for n, p in modules.items() if not any(p == known.get(n) for known in offered)}
    before = {n: module for n, module in sys.modules.items() if n.partition(".")[0] in new}
    for name in before:
        del sys.modules[name]
    finder = _Finder(new)
    sys.meta_path.insert(0, finder)
    try:
        yield
    finally:
        sys.meta_path.remove(finder)
        sys.modules.update(before)


class _Finder(MetaPathFinder):
    """Finds some modules by their names, and no others."""

    def __init__(self, modules: Mapping[str, Path]):
        self.modules = modules

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if name not in self.modules:
            return None
        place, inner = self.modules[name], None
        if place.is_dir():
            place, inner = place / "__init__.py", [str(place)]
        if place.is_file():
            make = importlib.util.spec_from_file_location
            return make(name, place, submodule_search_locations=inner)
        spec = ModuleSpec(name, None, is_package=True)
        spec.submodule_search_locations = inner
        return spec


def _imports(file: Path) -> Iterator[tuple[str, int, bool]]:
    """What a file imports: the first part of the name, the line, whether inside a function.

    Nothing of a file that is no Python: executing it tells why.
    """
    try:
        left: list[tuple[ast.AST, bool]] = [(ast.parse(file.read_bytes()), False)]
    except (SyntaxError, ValueError, OSError):
        return
    while left:
        node, late = left.pop()
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield alias.name.partition(".")[0], node.lineno, late
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield node.module.partition(".")[0], node.lineno, late
        late = late or isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        left += [(inner, late) for inner in ast.iter_child_nodes(node)]


def _locate(folder: Path, name: str) -> Path | None:
    """The module or package ``name`` in a folder, if it has one."""
    if name in INSTALLED:
        return None
    package, module = folder / name, folder / f"{name}.py"
    if (package / "__init__.py").is_file():
        return package
    if module.is_file():
        return module
    if not any(package.glob("*.py")):
        return None
    try:  # without __init__.py it gives way to an installed one, as everywhere in Python
        elsewhere = importlib.util.find_spec(name)
    except ValueError:  # a module that was put together by hand
        return None
    return package if elsewhere is None or elsewhere.origin is None else None


def _files(place: Path) -> list[Path]:
    """The Python files of a module or a package."""
    return [place] if place.is_file() else sorted(place.rglob("*.py"))
