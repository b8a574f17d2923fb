"""mypy --strict sees in a user's file what the file's comments say, and nothing else."""

import os
import re
import subprocess
import sys
from pathlib import Path

import undrift
from undrift.check.template import write

FILE = Path(__file__).with_name("user_file.py")


def mypy(file):
    """What mypy --strict prints of a file; the cache is the one of `make types`."""
    source = {"MYPYPATH": str(Path(undrift.__file__).parents[1])}
    return subprocess.run(
        [sys.executable, "-m", "mypy", "--strict", str(file)],
        cwd=FILE.parents[2],
        capture_output=True,
        text=True,
        env=os.environ | source,
    )


def found():
    """Of each line, what mypy says of it."""
    done, said = mypy(FILE), {}
    for number, kind, text in re.findall(r"user_file\.py:(\d+): (\w+): (.*)", done.stdout):
        code = re.search(r"\[([\w-]+)\]$", text)
        shown = re.search(r'Revealed type is "(.*)"$', text)
        if kind == "error" or shown:
            said[int(number)] = f"error: {code[1]}" if kind == "error" else shown[1]
    assert said, done.stdout + done.stderr
    return said


def test_a_users_file_is_typed():
    lines = FILE.read_text(encoding="utf-8").splitlines()
    expected = {n: line.split("  # ")[1] for n, line in enumerate(lines, 1) if "  # " in line}
    said = found()
    assert said.keys() == expected.keys(), {n: said.get(n) for n in said.keys() ^ expected.keys()}
    wrong = {n: (said[n], want) for n, want in expected.items() if want not in said[n]}
    assert not wrong


def test_a_new_method_is_typed(tmp_path):
    file = write("Mine", tmp_path)
    file.write_text(file.read_text().replace("me.c + got.c)", "me.c + got.d)"))
    done = mypy(file)
    errors = re.findall(r"mine\.py:\d+: error: (.*)", done.stdout)
    assert errors == ['"Down" has no attribute "d"  [attr-defined]'], done.stdout + done.stderr
