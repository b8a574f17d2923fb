"""mypy --strict sees in a user's file what the file's comments say, and nothing else."""

import os
import re
import subprocess
import sys
from pathlib import Path

import undrift

FILE = Path(__file__).with_name("user_file.py")


def found():
    """Of each line, what mypy says of it; the cache is the one of `make types`."""
    command = [sys.executable, "-m", "mypy", "--strict", str(FILE)]
    source = {"MYPYPATH": str(Path(undrift.__file__).parents[1])}
    done = subprocess.run(
        command, cwd=FILE.parents[2], capture_output=True, text=True, env=os.environ | source
    )
    said = {}
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
