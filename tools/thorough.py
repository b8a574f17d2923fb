"""Write the list of tests that the fast suite leaves out, from the times of a run of tests.

    pytest -n 2 -m "not slow and not whole" --junitxml times.xml
    python -m tools.thorough times.xml

A test belongs to it if one of its cases took longer than ``LIMIT`` seconds, and a file if all its
tests do. What was not run stays as it was.
"""

from __future__ import annotations

import sys
from collections import defaultdict
from pathlib import Path
from xml.etree import ElementTree

LIMIT = 0.2
TESTS = Path(__file__).parents[1] / "tests"
LIST = TESTS / "thorough.txt"


def times(report: Path) -> dict[str, dict[str, float]]:
    """For each file of tests the longest case of each test."""
    found: dict[str, dict[str, float]] = defaultdict(lambda: defaultdict(float))
    for case in ElementTree.parse(report).iter("testcase"):
        if case.find("skipped") is None:
            file = case.attrib["classname"].removeprefix("tests.").replace(".", "/") + ".py"
            name = case.attrib["name"].partition("[")[0]
            found[file][name] = max(found[file][name], float(case.attrib["time"]))
    return found


def thorough(ran: dict[str, dict[str, float]], before: set[str]) -> list[str]:
    """Entries ``FILE`` and ``FILE::TEST``."""
    entries = {e for e in before if (TESTS / e.partition("::")[0]).is_file()}
    for file, tests in ran.items():
        slow = {name for name, seconds in tests.items() if seconds > LIMIT}
        entries -= {file, *(f"{file}::{name}" for name in tests)}
        left = {e for e in entries if e.startswith(f"{file}::")}
        if len(slow) == len(tests):
            entries = entries - left | {file}
        else:
            entries |= {f"{file}::{name}" for name in slow}
    return sorted(entries)


if __name__ == "__main__":
    known = set(LIST.read_text(encoding="utf-8").split())
    found = thorough(times(Path(sys.argv[1])), known)
    LIST.write_text("".join(f"{entry}\n" for entry in found), encoding="utf-8")
    print(f"{len(found)} entries, {len(set(found) - known)} of them new")
