"""Write the stubs of undrift and undrift.methods, and the page of all names, from one list.

``make stubs`` runs it after a method or a public name was added. Editors, type checkers and the
lazy loader read ``src/undrift/__init__.pyi``; people read ``docs/api.md``.
tests/test_public_names.py compares both with the list below.
"""

import inspect
import re
from collections.abc import Iterable
from importlib import import_module
from pathlib import Path

from undrift.core import registry

ROOT = Path(__file__).parents[1]
STUB = ROOT / "src/undrift/__init__.pyi"
METHODS_STUB = ROOT / "src/undrift/methods/__init__.pyi"
PAGE = ROOT / "docs/api.md"

RUNNING = {
    "run": "runs.api",
    "run_spec": "runs.api",
    "tune": "tuning.tune",
    "Tuning": "spec.space",
    "Tunings": "tuning.found",
    "resume": "runs.api",
    "gather": "runs.api",
    "load": "runs.api",
    "Run": "runs.results",
    "Runs": "runs.results",
    "Recorded": "runs.results",
    "History": "runs.results",
    "Best": "records.models",
    "Save": "runs.calls",
    "RayExecutor": "runs.ray_executor",
    "EarlyStopping": "core.stopping",
    "Goal": "core.stopping",
    "PerClient": "runs.callbacks",
    "Events": "runs.callbacks",
    "Moment": "runs.callbacks",
    "CallbackFailed": "runs.callbacks",
}
TRAINING = {
    "Training": "core.options",
    "AdamW": "core.optimisers",
    "Momentum": "core.optimisers",
    "schedules": "core",
    "aggregation": "core",
}
PROBLEMS = {
    "Neural": "problems.neural.problem",
    "Overall": "problems.neural.overall",
    "estimate": "sweeps.constants",
    "Estimates": "sweeps.constants",
}
ENGINES = {"Simulate": "engines.engine", "Wire": "engines.wire"}
CONTRACTS = dict.fromkeys(
    (
        "BadParameters",
        "Constants",
        "Local",
        "Message",
        "Method",
        "Oracle",
        "Phase",
        "Problem",
        "Scratch",
        "Sparse",
        "State",
        "Unsupported",
        "Vec",
    ),
    "core",
)
PACKAGES = (
    "check",
    "core",
    "data",
    "engines",
    "flower",
    "methods",
    "models",
    "objectives",
    "plots",
    "problems",
    "records",
    "report",
    "runs",
    "sklearn",
    "spec",
    "theory",
)
HEAD = (
    '"""Every public name, with its type. Written by `make stubs`: change tools/public_names.py."""'
)


def methods() -> dict[str, str]:
    """Every method that comes with undrift, and its module."""
    import_module("undrift.methods")
    return {
        name: cls.__module__.removeprefix("undrift.")
        for name, cls in sorted(registry.items())
        if cls.__module__.startswith("undrift.")
    }


def homes() -> dict[str, str]:
    """Every public name but the packages, and the module that defines it."""
    return {**RUNNING, **PROBLEMS, **TRAINING, **ENGINES, **CONTRACTS, **methods()}


def names() -> list[str]:
    return in_order([*homes(), *PACKAGES])


def in_order(wanted: Iterable[str]) -> list[str]:
    """Constants, classes, functions: the order that the linter keeps."""
    return sorted(wanted, key=lambda name: (not name.isupper(), name[0].islower(), name))


def stub() -> str:
    lines = [HEAD, "", *_imported("", in_order(PACKAGES)), *_imports(homes())]
    return "\n".join([*lines, "", "__version__: str", "", *_all(names()), ""])


def methods_stub() -> str:
    found = {name: module.removeprefix("methods.") for name, module in methods().items()}
    find = "def find(name: str) -> type[Method] | None: ..."
    registry = "registry: dict[str, type[Method]]"
    lines = [HEAD, "", "from undrift.core import Method", "", *_imports(found), ""]
    return "\n".join([*lines, *_all(in_order(found)), "", registry, "", find, ""])


def _imports(found: dict[str, str]) -> list[str]:
    modules: dict[str, list[str]] = {}
    for name, module in found.items():
        modules.setdefault(module, []).append(name)
    return [
        line for module in sorted(modules) for line in _imported(module, in_order(modules[module]))
    ]


def _all(wanted: list[str]) -> list[str]:
    return ["__all__ = [", *(f'    "{name}",' for name in wanted), "]"]


def _imported(module: str, wanted: list[str]) -> list[str]:
    line = f"from .{module} import {', '.join(wanted)}"
    if len(line) <= 100:
        return [line]
    return [f"from .{module} import (", *(f"    {name}," for name in wanted), ")"]


def page() -> str:
    parts = [
        "# Public names",
        "",
        "*For those who write programs with undrift.* Every name leads to its signature.",
        "",
        "Everything that `import undrift as ud` offers. Names are typed and load on first use, so",
        "that the import itself is instant. Written by `make stubs`.",
        "",
        "## Running",
        *_table(RUNNING),
        "",
        "## Your own network",
        "[your-data.md](your-data.md) shows it on data of every kind. The other problems are in",
        "`ud.problems`.",
        "",
        *_table(PROBLEMS),
        "",
        "## Local training",
        "[your-data.md](your-data.md#local-training) shows them.",
        "",
        *_table(TRAINING),
        "",
        "## Engines",
        *_table(ENGINES),
        "",
        "## Writing a method or a problem",
        "The ranges of hyper-parameters are in `ud.core`: `Positive`, `NonNegative`, `Fraction`,",
        "`Probability`, `Count`, `Natural`. `OrTheory[Positive]` also takes the word `theory`, and",
        "`OrAuto[Positive]` is for a step without a theory, which may be `auto` as any step.",
        "`ud.core.length(v)` is the norm of each client's vector, `[..., 1]`.",
        "",
        *_table(CONTRACTS),
        "",
        "## Methods",
        "`undrift show NAME` prints the update, the hyper-parameters and the source.",
        "",
        *_table(methods()),
        "",
        "## Packages",
        *_table(dict.fromkeys(PACKAGES, "")),
        "",
    ]
    return "\n".join(parts)


def _table(found: dict[str, str]) -> list[str]:
    rows = []
    for name, module in found.items():
        home = import_module(f"undrift.{module or name}".rstrip("."))
        thing = getattr(home, name) if module else home
        rows.append(f"| `{name}` | {_summary(thing)} |")
    return ["| name | what it is |", "|---|---|", *rows]


def _summary(thing: object) -> str:
    """The title of a method; of anything else the first sentence of its docstring."""
    if title := getattr(thing, "title", "") if isinstance(thing, type) else "":
        return str(title)
    paragraph = inspect.cleandoc(inspect.getdoc(thing) or "").split("\n\n")[0]
    text = re.sub(r":\w+:`", "`", " ".join(paragraph.split())).replace("``", "`")
    sentence, _, _ = text.partition(". ")
    return sentence.rstrip(".").replace("|", "\\|")


def main() -> None:
    STUB.write_text(stub(), encoding="utf-8")
    METHODS_STUB.write_text(methods_stub(), encoding="utf-8")
    PAGE.write_text(page(), encoding="utf-8")


if __name__ == "__main__":
    main()
