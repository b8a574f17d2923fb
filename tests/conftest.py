"""Fixtures for all tests, and the fast suite.

``pytest`` without paths leaves out what is marked ``thorough``: what ``thorough.txt`` lists and, of
a test with many cases, all but one case in a few. ``make test`` runs everything; so does ``pytest``
for the files it is given.
"""

import hashlib
import importlib.util
import signal
from pathlib import Path

import pytest

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # as in a shell's background jobs
    signal.signal(signal.SIGINT, signal.default_int_handler)
if hasattr(signal, "SIGHUP") and signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:  # as by nohup
    signal.signal(signal.SIGHUP, signal.SIG_DFL)

TESTS = Path(__file__).parent
FOUND = importlib.util.find_spec("undrift")
if FOUND is None or not Path(str(FOUND.origin)).is_relative_to(TESTS.parent / "src"):
    text = f"the tests of {TESTS.parent} would run another undrift: {FOUND and FOUND.origin}"
    pytest.exit(f"{text}; make test, or set PYTHONPATH={TESTS.parent / 'src'}", 4)
MANY, STRIDE = 4, 9
"""Of a test with more than ``MANY`` cases the fast suite runs one in ``STRIDE``."""
HOURS = 4 * 3600
"""Seconds after which even a slow test hangs."""
THOROUGH = set((TESTS / "thorough.txt").read_text(encoding="utf-8").split())
"""Files, and tests of files, that take long: ``python -m tools.thorough`` writes the list."""


@pytest.fixture(autouse=True)
def no_width(monkeypatch):
    """What is printed does not depend on the tester's terminal."""
    monkeypatch.delenv("COLUMNS", raising=False)


@pytest.fixture(autouse=True)
def no_figure(request, monkeypatch):
    """``undrift run`` draws for the tests that ask for it: nine tenths of a small run's time."""
    if "drawn" not in request.fixturenames:
        monkeypatch.setattr("undrift.cli.run.draw", lambda folder, title: None)


@pytest.fixture
def drawn():
    """Runs draw their figures."""


def everything(config) -> bool:
    """Whether the command line has paths; the workers of a parallel run are told."""
    given = config.args_source is pytest.Config.ArgsSource.ARGS
    return getattr(config, "workerinput", {}).get("everything", given)


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node):
    node.workerinput["everything"] = everything(node.config)


def pytest_ignore_collect(collection_path, config):
    """The fast suite does not even import files whose tests all take long."""
    fast = "not thorough" in config.option.markexpr and not everything(config)
    return (fast and _named(collection_path) in THOROUGH) or None


def _named(path: Path) -> str:
    """A file of the tests by its place under tests; one of conformance by its place beside them."""
    return path.relative_to(TESTS if path.is_relative_to(TESTS) else TESTS.parent).as_posix()


def further(cases: list[pytest.Item]) -> list[pytest.Item]:
    """Of a test marked ``covering`` the cases without which every value of every parameter is still
    tried; with ``covering(most)`` all but so many, for tests with one parameter.
    """
    mark = cases[0].get_closest_marker("covering")
    if mark is None:
        return []
    if mark.args:
        kept = cases[:: -(-len(cases) // mark.args[0])]
        return [case for case in cases if case not in kept]
    left, tried = [], set()
    for case in sorted(cases, key=lambda case: hashlib.sha256(case.nodeid.encode()).digest()):
        values = {(name, repr(value)) for name, value in case.callspec.params.items()}
        if values <= tried:
            left.append(case)
        tried |= values
    return left


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config, items):
    for item in items:
        if item.get_closest_marker("slow"):
            item.add_marker(pytest.mark.timeout(HOURS), append=False)
    functions: dict[str, list[pytest.Item]] = {}
    for item in items:
        functions.setdefault(item.nodeid.partition("[")[0], []).append(item)
    for cases in functions.values():
        for item in further(cases):
            item.add_marker("whole")
    if everything(config):
        return
    for item in items:
        file = _named(item.path)
        function = getattr(item, "originalname", "")
        if not THOROUGH.isdisjoint({file, f"{file}::{function}"}):
            item.add_marker("thorough")
    for cases in functions.values():
        if len(cases) > MANY:
            for number, item in enumerate(cases):
                if number % STRIDE:
                    item.add_marker("thorough")
