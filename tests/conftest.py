"""Fixtures for all tests, and the fast suite.

``pytest`` without paths leaves out what is marked ``thorough``: the files below and, of a test with
many cases, all but one case in a few. ``make test`` runs everything; so does ``pytest`` for the
files it is given.
"""

from pathlib import Path

import pytest

TESTS = Path(__file__).parent
MANY, STRIDE = 8, 7
"""Of a test with more than ``MANY`` cases the fast suite runs one in ``STRIDE``."""
THOROUGH = {
    "benchmarks/test_peers.py",
    "cli/test_faults.py",
    "cli/test_interrupt.py",
    "cli/test_resume.py",
    "report/test_browser.py",
    "test_examples.py",
    "test_readme.py",
    "typing/test_user_file.py",
}
"""Files that start processes, drive a browser or train for long."""


@pytest.fixture(autouse=True)
def no_width(monkeypatch):
    """What is printed does not depend on the tester's terminal."""
    monkeypatch.delenv("COLUMNS", raising=False)


def everything(config) -> bool:
    """Whether the command line has paths; the workers of a parallel run are told."""
    given = config.args_source is pytest.Config.ArgsSource.ARGS
    return getattr(config, "workerinput", {}).get("everything", given)


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node):
    node.workerinput["everything"] = everything(node.config)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config, items):
    if everything(config):
        return
    for item in items:
        if item.path.relative_to(TESTS).as_posix() in THOROUGH:
            item.add_marker("thorough")
    functions: dict[str, list[pytest.Item]] = {}
    for item in items:
        functions.setdefault(item.nodeid.partition("[")[0], []).append(item)
    for cases in functions.values():
        if len(cases) > MANY:
            for number, item in enumerate(cases):
                if number % STRIDE:
                    item.add_marker("thorough")
