"""Every command of the docs: typed here, or the reason why not."""

import re
import shutil
from pathlib import Path

import pytest

from tests.journeys.conftest import ROOT

PAGES = sorted({*(ROOT / "docs").glob("*.md")} - {ROOT / "docs/architecture.md"})
"""All but the one whose blocks are drawings."""
BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
PROGRAMS = ("undrift", "torchrun", "python", "make", "flower-supernode", "flwr", "UNDRIFT_DATA")
ELSEWHERE = {
    "undrift run spec.toml --engine distributed --workers 4": "test_to_the_end, with two",
    "torchrun": "test_to_the_end, on two loopback addresses",
    "undrift federate examples/federation.toml --local 3": "test_federations, with two",
    "undrift federate": "tests/flower and `make faults`: keys, and nodes on ports of this machine",
    "undrift join": "tests/flower and `make faults`",
    "flower-supernode": "tests/flower",
    "flwr": "test_federations",
    "undrift federate spec.toml": "needs two machines",
    "undrift report first other/first": "needs two runs; tests/cli/test_report.py has them",
    "undrift run examples/images.toml": "takes minutes; tests/test_examples.py runs less of it",
    "undrift report images": "is of that run",
    "make": "takes minutes, and measures; no promise but a table",
    "python benchmarks": "measures; tests/benchmarks look at what these print",
    "UNDRIFT_DATA=FOLDER python benchmarks": "needs a GPU",
}
"""Beginnings of commands that are not typed here, and where they are, or why nowhere."""


def commands(page: Path) -> list[str]:
    """The commands in the blocks of a page, without their comments."""
    found = []
    for kind, block in BLOCK.findall(page.read_text(encoding="utf-8")):
        for line in block.replace("\\\n", " ").splitlines() if kind in ("", "sh") else ():
            command = " ".join(re.split(r"\s+#\s", line)[0].split())
            if command.startswith(PROGRAMS):
                found.append(command)
    return found


def here(page: Path) -> list[str]:
    return [one for one in commands(page) if not one.startswith(tuple(ELSEWHERE))]


def test_the_commands_of_all_pages_are_found():
    found = [command for page in PAGES for command in commands(page)]
    assert len(found) >= 15
    unused = [start for start in ELSEWHERE if not any(one.startswith(start) for one in found)]
    assert unused == []


@pytest.mark.slow
@pytest.mark.parametrize("page", [page for page in PAGES if here(page)], ids=lambda page: page.stem)
def test_what_a_page_says_can_be_typed(page, typed):
    """In the order of the page."""
    shutil.copytree(ROOT / "examples", typed.folder / "examples")
    for command in here(page):
        typed(command)
