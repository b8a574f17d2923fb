"""What the README prints can be typed, in the order it is printed, and gives what it says."""

import ast
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"^```(\w*)\n(.*?)^```$", README, re.MULTILINE | re.DOTALL)


def blocks(language):
    return [text for kind, text in BLOCKS if kind == language]


def test_every_block_says_what_it_is():
    assert {kind for kind, _ in BLOCKS} == {"sh", "text", "python"}


def test_the_two_commands():
    (text,) = blocks("sh")
    assert [line.split(" #")[0].strip() for line in text.splitlines()] == ["make demo", "make test"]


def test_python_in_one_session(tmp_path):
    code = [text for text in blocks("python") if not text.startswith("class ")]
    assert len(code) == 1
    last = "float(run.history['gap'][-1])"
    said = f"\nassert {last} < 4e-12, {last}\nprint(run)"
    done = subprocess.run(
        [
            sys.executable,
            "-c",
            "import matplotlib\nmatplotlib.use('agg')\n" + "\n".join(code) + said,
        ],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0 and "vectors=" in done.stdout, done.stderr


def test_the_method_shown_is_that_of_the_file():
    """But for the docstring, of which the README has the first line."""
    file = (ROOT / "src/undrift/methods/feddyn.py").read_text(encoding="utf-8")
    (shown,) = [text for text in blocks("python") if text.startswith("class ")]
    assert parts(file) == parts(shown)


def parts(source):
    """The first line of a class's docstring, and the statements of the class."""
    (cls,) = [node for node in ast.parse(source).body if isinstance(node, ast.ClassDef)]
    first = ast.get_docstring(cls).splitlines()[0]
    return first, [ast.unparse(node) for node in cls.body[1:]]
