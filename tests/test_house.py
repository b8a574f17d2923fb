"""The rooms import one way, and nothing unsafe is in the tree."""

import ast
from pathlib import Path

import undrift

SRC = Path(undrift.__file__).parent
ALLOWED = {
    "core": set(),
    "theory": {"core"},
    "methods": {"core", "theory"},
    "objectives": {"core"},
    "models": {"core"},
    "data": {"core"},
    "plots": {"core"},
    "problems": {"core", "data", "models", "objectives"},
    "engines": {"core"},
    "spec": {"core", "methods", "objectives", "problems", "engines", "theory"},
    "check": {"core", "methods", "problems", "engines", "theory", "spec"},
    "runs": {"core", "methods", "objectives", "problems", "engines", "theory", "spec", "plots"},
    "report": {"core", "methods", "objectives", "spec", "runs", "plots"},
    "papers": {"core", "methods", "theory", "problems", "data", "models", "spec", "runs", "report", "plots"},
    "reproduce": {"core", "data", "engines", "methods", "papers", "plots", "problems", "report", "runs", "spec", "theory"},
    "cli": {"core", "methods", "objectives", "theory", "models", "data", "problems", "engines", "report", "runs",
            "check", "papers", "plots", "reproduce", "spec"},
}  # fmt: skip


def imports(file: Path) -> set[str]:
    """Rooms a file imports, wherever in it."""
    found = set()
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        names = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module:
            names = [node.module] + [f"{node.module}.{alias.name}" for alias in node.names]
        for name in names:
            parts = name.split(".")
            if parts[0] == "undrift" and len(parts) > 1 and (SRC / parts[1]).is_dir():
                found.add(parts[1])
    return found


def test_rooms_import_one_way():
    rooms = {p.name for p in SRC.iterdir() if p.is_dir() and p.name != "__pycache__"}
    assert rooms == set(ALLOWED)
    wrong = {}
    for room, allowed in ALLOWED.items():
        for file in (SRC / room).rglob("*.py"):
            if extra := imports(file) - allowed - {room}:
                wrong[str(file.relative_to(SRC))] = sorted(extra)
    assert wrong == {}


def test_nothing_unsafe_is_called():
    """No pickle, no torch.load, no eval, no object collectives."""
    calls = {
        "eval",
        "exec",
        "all_gather_object",
        "broadcast_object_list",
        "gather_object",
        "scatter_object_list",
    }
    wrong = []
    for file in SRC.rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Import | ast.ImportFrom):
                names = [a.name for a in node.names] + [getattr(node, "module", None) or ""]
                if any(
                    n.split(".")[0] in ("pickle", "cloudpickle", "dill", "joblib", "marshal")
                    for n in names
                ):
                    wrong.append(f"{file.name}:{node.lineno} imports {names}")
            if isinstance(node, ast.Call):
                name = getattr(node.func, "id", getattr(node.func, "attr", ""))
                owner = getattr(getattr(node.func, "value", None), "id", "")
                if name in calls or (owner, name) in {
                    ("torch", "load"),
                    ("torch", "save"),
                    ("yaml", "load"),
                }:
                    wrong.append(f"{file.name}:{node.lineno} calls {owner}.{name}")
                if any(
                    k.arg == "allow_pickle" and getattr(k.value, "value", True)
                    for k in node.keywords
                ):
                    wrong.append(f"{file.name}:{node.lineno} allows pickle")
    assert wrong == []


def test_text_files_are_utf8_and_floats_are_64_bits_everywhere():
    """What is left out differs between systems: the encoding of a text file, and the digits of a
    long double.
    """
    wrong = []
    for file in [*SRC.rglob("*.py"), *Path(__file__).parent.rglob("test_*.py")]:
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            name = getattr(node, "attr", None)
            if name in ("longdouble", "float128", "clongdouble"):
                wrong.append(f"{file}:{node.lineno} uses {name}")
            if SRC in file.parents and isinstance(node, ast.Call) and as_text(node):
                wrong.append(f"{file}:{node.lineno} leaves the encoding to the system")
    assert wrong == []


def as_text(call: ast.Call) -> bool:
    """Whether a call reads or writes text without saying in which encoding."""
    name = getattr(call.func, "attr", getattr(call.func, "id", ""))
    words = {keyword.arg for keyword in call.keywords}
    texts = [a.value for a in call.args if isinstance(a, ast.Constant) and isinstance(a.value, str)]
    if name == "open":
        mode = next((text for text in texts if set(text) <= set("rwxabt+")), "")
        return "encoding" not in words and bool(mode) and "b" not in mode
    if name in ("Popen", "run", "check_output"):
        return bool(words & {"text", "universal_newlines"}) and "encoding" not in words
    return name in ("read_text", "write_text") and "encoding" not in words


def test_the_readme_speaks_of_things_that_exist():
    readme = (SRC.parent.parent / "README.md").read_text(encoding="utf-8")
    for name in ("ud.run", "ud.FedRecu", "ud.Scaffold", "ud.Simulate", "ud.problems"):
        assert name in readme
        assert getattr(undrift, name.removeprefix("ud."))
    run = undrift.run(
        undrift.FedRecu(lr="theory"), "logistic-breast-cancer", clients=10, rounds=3, steps=10
    )
    for column in (
        "gap",
        "loss",
        "grad_norm",
        "distance",
        "drift",
        "vectors_up",
        "bytes_up",
        "gradients",
        "seconds",
    ):
        assert len(run.history[column]) == 4
    axes = run.plot("gap", x="vectors")
    assert axes.get_xlabel().startswith("vectors")
