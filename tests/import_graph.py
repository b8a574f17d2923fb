"""Who imports whom among the files of the two packages, wherever in a file the import stands."""

import ast
from pathlib import Path

import undrift

SRC = Path(undrift.__file__).parent.parent


def modules() -> dict[str, Path]:
    """Dotted name -> file, packages included."""
    found = {}
    for file in sorted(SRC.glob("undrift*/**/*.py")):
        parts = file.relative_to(SRC).with_suffix("").parts
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = file
    return found


def graph() -> dict[str, set[str]]:
    """Module -> the modules it imports, also for types only and inside functions.

    A name that a stub says is loaded from elsewhere counts as an import from there.
    """
    known = modules()
    listed = {name: _listed(name, file.with_suffix(".pyi")) for name, file in known.items()}

    def target(module: str, name: str) -> str:
        whole = f"{module}.{name}"
        return whole if whole in known else listed.get(module, {}).get(name, module)

    edges = {}
    for name, file in known.items():
        found = set()
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Import):
                found |= {alias.name for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
                found |= {target(node.module, alias.name) for alias in node.names}
        edges[name] = (found & set(known)) - {name}
    return edges


def _listed(package: str, stub: Path) -> dict[str, str]:
    if not stub.is_file():
        return {}
    nodes = ast.walk(ast.parse(stub.read_text(encoding="utf-8")))
    return {
        alias.name: f"{package}.{node.module or alias.name}"
        for node in nodes
        if isinstance(node, ast.ImportFrom) and node.level == 1
        for alias in node.names
    }


def circles(edges: dict[str, set[str]]) -> list[list[str]]:
    """Groups of modules that import each other, in the order of their imports."""
    found, left = [], {name: set(others) for name, others in edges.items()}
    while ends := [name for name, others in left.items() if not others & left.keys()]:
        for name in ends:
            del left[name]
    while left:  # every module that is left leads to another that is left: walk until one repeats
        path = [min(left)]
        while (step := min(left[path[-1]] & left.keys())) not in path:
            path.append(step)
        found.append([*path[path.index(step) :], step])
        del left[step]
        while ends := [name for name, others in left.items() if not others & left.keys()]:
            for name in ends:
                del left[name]
    return found
