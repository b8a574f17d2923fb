"""What holds for the whole source: who imports whom, what is called, how errors are read."""

import ast
import re
from collections import Counter
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import undrift
from tests.conftest import THOROUGH
from tests.import_graph import SRC, circles, graph, modules

MOST_ANY = 150
"""`Any` is for what can be anything."""
MAY_IMPORT = {
    "core": "",
    "theory": "core",
    "methods": "core theory",
    "objectives": "core",
    "models": "core",
    "data": "core",
    "plots": "core",
    "problems": "core data models objectives",
    "engines": "core",
    "sweeps": "core engines",
    "spec": "core methods objectives problems engines theory",
    "check": "core data engines methods models objectives problems spec theory",
    "records": "core engines spec",
    "runs": "core methods objectives problems data engines theory sweeps spec records report plots",
    "report": "core methods objectives spec records plots",
    "tuning": "core methods problems engines sweeps theory spec records report plots runs",
    "flower": "core engines methods models objectives problems records spec",
    "federate": "core engines flower models objectives problems records runs spec",
    "cli": "core data engines methods models objectives problems theory "
    "check federate flower plots records report runs spec sweeps tuning",
    "undrift_papers": "core data engines methods models problems theory "
    "cli plots records report runs spec",
}
CEILINGS = {
    "core settings": 1501,
    "methods objectives theory": 1571,
    "data models": 1980,
    "problems": 3339,
    "engines": 2814,
    "sweeps": 774,
    "spec": 703,
    "records runs": 2824,
    "check": 759,
    "report plots": 946,
    "federate flower": 1494,
    "tuning": 493,
    "cli": 1316,
    "undrift_papers": 2026,
}
"""Statements of rooms; what is in no room is counted with none."""
SAYING_WHY = tuple(
    f"undrift.{place}." for place in ("engines", "federate", "problems.neural", "records")
)
"""Places whose machinery is hard: their long files have comments of their own lines."""
LONG, EVERY = 150, 40
"""Lines of such a file, and lines of its code for each line of comments."""
MOST_PARAMETERS = {"undrift.runs.api.run": 21}
ALLOWED = {room: set(others.split()) for room, others in MAY_IMPORT.items()}


def room(module: str) -> str:
    """The room of a module; empty for what is in none. The papers' package is one room."""
    package, *parts = module.split(".")
    if package != "undrift":
        return package
    return parts[0] if parts and (SRC / package / parts[0]).is_dir() else ""


def test_rooms_import_one_way():
    assert circles(ALLOWED) == []
    assert {room(name) for name in modules()} - {""} == set(ALLOWED)
    wrong = [
        f"{name} imports {other}"
        for name, others in graph().items()
        for other in sorted(others)
        if room(name) and room(other) not in {"", room(name), *ALLOWED[room(name)]}
    ]
    assert wrong == []


def test_federate_does_without_the_app_side_of_flower():
    app = {"method_strategy", "client_training"}
    sides = {f"undrift.flower.{name}" for name in app}
    assert not [
        name for name, others in graph().items() if room(name) == "federate" and others & sides
    ]


def test_files_import_one_way():
    """Also for types only, and inside functions."""
    assert [" -> ".join(circle) for circle in circles(graph())] == []


def test_a_circle_is_found():
    edges = {"a": {"b"}, "b": {"c", "d"}, "c": {"b"}, "d": set(), "e": {"a"}}
    assert circles(edges) == [["b", "c", "b"]]
    assert circles(edges | {"c": set()}) == []


def test_nobody_reads_a_message_to_find_out_what_happened():
    """Errors carry what they are about as data: no searching or cutting of their sentences."""
    cutting = {"partition", "rpartition", "startswith", "endswith", "find", "index"}
    wrong = []
    for file, tree in trees():
        caught = {n.name for n in ast.walk(tree) if isinstance(n, ast.ExceptHandler)} - {None}
        for node in ast.walk(tree):
            texts = []
            if isinstance(node, ast.Compare) and isinstance(node.ops[0], ast.In | ast.NotIn):
                texts = node.comparators
            elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
                split = node.func.attr in ("split", "rsplit") and node.args
                texts = [node.func.value] * bool(split or node.func.attr in cutting)
            if {ast.unparse(text) for text in texts} & {f"str({name})" for name in caught}:
                wrong.append(f"{file}:{node.lineno}: {ast.unparse(node)}")
    assert wrong == []


def test_rooms_stay_small():
    """A feature pays by what it lets one delete; only a new method, partition, problem, verb or
    column raises a ceiling, by its own size.
    """
    sizes = Counter(room(name) for name in modules() for _ in statements(name))
    found = {rooms: sum(sizes.pop(each, 0) for each in rooms.split()) for rooms in CEILINGS}
    full = {
        rooms: (size, CEILINGS[rooms]) for rooms, size in found.items() if size > CEILINGS[rooms]
    }
    assert not full, f"more statements than (CONTRIBUTING.md, The house): {full}"
    del sizes[""]
    assert not sizes, f"rooms without a ceiling: {sizes}"


def statements(name: str) -> Iterator[ast.stmt]:
    """The statements of a module, docstrings left out."""
    for node in ast.walk(parsed(name)):
        text = isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
        if isinstance(node, ast.stmt) and not (text and isinstance(node.value.value, str)):
            yield node


@cache
def parsed(name: str) -> ast.Module:
    return ast.parse(modules()[name].read_text(encoding="utf-8"))


def test_hard_files_say_why():
    """What would break without a line, what was measured, in which order things must happen."""
    thin = {}
    for name, file in modules().items():
        lines = read(file).splitlines()
        if name.startswith(SAYING_WHY) and len(lines) > LONG:
            said = {k for k, line in enumerate(lines, 1) if line.lstrip().startswith("#")}
            told = {k for text in texts(name) for k in range(text.lineno, text.end_lineno + 1)}
            code = [k for k, line in enumerate(lines, 1) if line.strip() and k not in said | told]
            if len(said) * EVERY < len(code):
                thin[name] = f"{len(said)} lines of comments in {len(code)} of code"
    assert not thin


def texts(name: str) -> Iterator[ast.Expr]:
    """The docstrings of a module."""
    for node in ast.walk(parsed(name)):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            yield node


def test_signatures_are_short():
    """Kernels of Triton take pointers and strides one by one."""
    wide = []
    for name in modules():
        for node in ast.walk(parsed(name)):
            if isinstance(node, ast.FunctionDef) and "kernels" not in name:
                given = node.args.posonlyargs + node.args.args + node.args.kwonlyargs
                if len(given) > MOST_PARAMETERS.get(f"{name}.{node.name}", 20):
                    wide.append(f"{name}.{node.name}: {len(given)}")
    assert wide == []


def test_a_class_name_means_one_thing():
    """Methods and objectives are named by their papers; private classes by their files."""
    homes: dict[str, set[str]] = {}
    for name in modules():
        for node in parsed(name).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                homes.setdefault(node.name, set()).add(room(name))
    twice = {name for name, where in homes.items() if len(where - {"methods", "objectives"}) > 1}
    assert not twice


def test_nothing_serves_earlier_versions():
    """There is no release yet."""
    words = re.compile(r"(earlier|older|previous|former) versions?\b|before version", re.IGNORECASE)
    found = [name for name, file in modules().items() for _ in words.findall(read(file))]
    assert found == []


def test_any_is_rare():
    found = Counter(
        file.relative_to(SRC).parts[:2]
        for file, tree in trees()
        for node in ast.walk(tree)
        if isinstance(node, ast.Name | ast.Attribute) and ast.unparse(node) in ("Any", "typing.Any")
    )
    assert found.total() < MOST_ANY, found.most_common()


def trees() -> Iterator[tuple[Path, ast.Module]]:
    for name, file in modules().items():
        yield file, parsed(name)


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
    for file, tree in trees():
        for node in ast.walk(tree):
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
    long = re.compile(r"\.(longdouble|float128|clongdouble)\b")
    files = [*SRC.rglob("*.py"), *Path(__file__).parent.rglob("test_*.py")]
    wrong = [f"{file} uses {name}" for file in files for name in long.findall(read(file))]
    wrong += [
        f"{file}:{node.lineno} leaves the encoding to the system"
        for file in SRC.rglob("*.py")
        for node in ast.walk(ast.parse(read(file)))
        if isinstance(node, ast.Call) and as_text(node)
    ]
    assert wrong == []


def read(file: Path) -> str:
    return file.read_text(encoding="utf-8")


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
    readme = (SRC.parent / "README.md").read_text(encoding="utf-8")
    for name in ("ud.run", "ud.FedRecu"):
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


def test_what_the_fast_suite_leaves_out_exists():
    for entry in THOROUGH:
        name, _, function = entry.partition("::")
        file = Path(__file__).parent / name
        assert file.is_file(), f"tests/thorough.txt: {name} does not exist"
        assert f"def {function}" in file.read_text(encoding="utf-8"), entry
