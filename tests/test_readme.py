"""What the README prints can be typed, in the order it is printed, and gives what it says."""

import ast
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from undrift.cli import main

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"^```(\w*)\n(.*?)^```$", README, re.MULTILINE | re.DOTALL)
NOT_HERE = {
    "make demo": "makes an environment; tests/cli/test_demo.py compares what undrift demo prints",
    "make test": "runs this test",
    ". .venv/bin/activate": "is about a shell",
    "undrift federate examples/federation.toml --local 3": "takes minutes; the slow suite does it",
}
"""Commands that are not tried, and why."""


def blocks(language):
    return [text for kind, text in BLOCKS if kind == language]


def commands():
    """Every command, in order, without its comment."""
    lines = [line.split(" #")[0] for text in blocks("sh") for line in text.splitlines()]
    return [command.strip() for line in lines for command in line.split(";") if command.strip()]


def test_every_block_says_what_it_is():
    assert {kind for kind, _ in BLOCKS} == {"sh", "text", "python"}
    assert set(NOT_HERE) <= set(commands())


@pytest.fixture(scope="module")
def newcomer(tmp_path_factory):
    """A folder like a fresh clone's, as far as commands look at it."""
    place = tmp_path_factory.mktemp("clone")
    shutil.copytree(ROOT / "examples", place / "examples")
    return place


def test_the_commands_one_after_another(newcomer, monkeypatch, capsys):
    monkeypatch.chdir(newcomer)
    tried = [command for command in commands() if command not in NOT_HERE]
    assert len(tried) >= 10
    for command in tried:
        program, *words = shlex.split(command)
        assert program == "undrift"
        try:
            code = main(words)
        except SystemExit as end:
            code = end.code
        assert code == 0, f"{command}: {capsys.readouterr().err}"
    assert (newcomer / "runs/first/summary.json").is_file()
    assert (newcomer / "runs/first/report.html").is_file()


def test_python_in_one_session(newcomer):
    code = [text for text in blocks("python") if not text.startswith("class ")]
    assert len(code) == 2
    last = "float(run.history['gap'][-1])"
    said = f"\nassert {last} < 4e-13, {last}\nprint(engine.ledger)"
    done = subprocess.run(
        [
            sys.executable,
            "-c",
            "import matplotlib\nmatplotlib.use('agg')\n" + "\n".join(code) + said,
        ],
        cwd=newcomer,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0 and "vectors_up=" in done.stdout, done.stderr


def test_the_method_shown_is_that_of_the_file():
    """But for the docstring, of which the README has the first line."""
    file = (ROOT / "src/undrift/methods/scaffold.py").read_text(encoding="utf-8")
    (shown,) = [text for text in blocks("python") if text.startswith("class ")]
    assert parts(file) == parts(shown)


def parts(source):
    """The first line of a class's docstring, and the statements of the class."""
    (cls,) = [node for node in ast.parse(source).body if isinstance(node, ast.ClassDef)]
    first = ast.get_docstring(cls).splitlines()[0]
    return first, [ast.unparse(node) for node in cls.body[1:]]


@pytest.mark.parametrize("page", ["README.md", "CONTRIBUTING.md", "SECURITY.md"])
def test_links_lead_somewhere(page):
    """Those between the pages of docs are looked at by `make docs`."""
    text = (ROOT / page).read_text(encoding="utf-8")
    for target, _, anchor in re.findall(r"\]\((?!http)([^)#]*)(#([^)]+))?\)", text):
        assert (ROOT / target).exists(), target
        there = (ROOT / (target or page)).read_text(encoding="utf-8") if anchor else ""
        heads = [
            re.sub(r"[^\w -]", "", head.lower()) for head in re.findall("^#+ (.*)$", there, re.M)
        ]
        assert not anchor or anchor in [head.replace(" ", "-") for head in heads], (target, anchor)


def test_methods_that_refuse_networks_are_those_named():
    from undrift.core.method import registry
    from undrift.methods import __all__ as names

    assert {name for name in names if name in registry and registry[name].solves} == {
        "DANE",
        "SONATA",
        "SVRP",
    }
    assert re.search(r"DANE, SONATA, SVRP and DANE\+'s exact\s+solver", README)
