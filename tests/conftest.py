"""Fixtures for all tests, and the fast suite.

``pytest`` without paths leaves out what is marked ``thorough``: the files below and, of a test with
many cases, all but one case in a few. ``make test`` runs everything; so does ``pytest`` for the
files it is given.
"""

import hashlib
import signal
from pathlib import Path

import pytest

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # as in a shell's background jobs
    signal.signal(signal.SIGINT, signal.default_int_handler)
if hasattr(signal, "SIGHUP") and signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:  # as by nohup
    signal.signal(signal.SIGHUP, signal.SIG_DFL)

TESTS = Path(__file__).parent
MANY, STRIDE = 4, 9
"""Of a test with more than ``MANY`` cases the fast suite runs one in ``STRIDE``."""
HOURS = 4 * 3600
"""Seconds after which even a slow test hangs."""
THOROUGH = {
    "benchmarks/test_peers.py",
    "cli/test_compare.py",
    "cli/test_demo.py",
    "cli/test_export.py",
    "cli/test_faults.py",
    "cli/test_identity.py",
    "cli/test_interrupt.py",
    "cli/test_neural.py",
    "cli/test_resume.py",
    "cli/test_store.py",
    "data/test_images.py::test_real_mnist",
    "data/test_images.py::test_real_packs",
    "engines/test_compile.py::test_all_methods_in_one_process_and_each_compiled_once",
    "engines/test_distributed.py::test_a_run_is_broken_off_and_continued_by_one_process",
    "engines/test_distributed.py::test_bad_input_is_answered_before_anything_is_made",
    "engines/test_distributed.py::test_ranks_are_one_process",
    "engines/test_dropout.py",
    "engines/test_many_clients.py::test_memory_follows_the_declared_state",
    "engines/test_options.py::test_only_the_reference_scope_moves_the_fixed_point",
    "engines/test_options.py::test_scaffold_with_random_cohorts_is_still_exact",
    "faults/test_faults.py::test_kills",
    "flower/test_example_app.py",
    "journeys/test_own_things.py",
    "journeys/test_to_the_end.py",
    "methods/test_bounds.py::test_daneplus_theorem_4",
    "methods/test_equivalences.py::test_row_12_on_logistic_regression",
    "methods/test_equivalences.py::test_row_16_scaffold_is_exact_with_partial_participation",
    "methods/test_equivalences.py::test_row_19_where_fedlin_may_compress",
    "models/test_dropout.py::test_stacked_and_compiled_networks_drop_the_same",
    "papers/test_as_coded.py",
    "papers/test_convex_claims.py",
    "report/test_browser.py",
    "papers/reproduce/test_cache.py",
    "papers/reproduce/test_convex.py",
    "papers/reproduce/test_items.py::test_quick_forms_can_be_built",
    "papers/reproduce/test_items.py::test_the_list_is_told_without_torch",
    "papers/reproduce/test_pages.py",
    "runs/test_api.py",
    "runs/test_checkpoint.py::test_every_damage_is_detected",
    "runs/test_experiment.py",
    "test_examples.py",
    "test_readme.py",
    "test_your_data.py",
    "typing/test_user_file.py",
}
"""Files and tests that start processes, drive a browser, read whole data sets or train for long."""


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
        file = item.path.relative_to(TESTS).as_posix()
        function = getattr(item, "originalname", "")
        if not THOROUGH.isdisjoint({file, f"{file}::{function}"}):
            item.add_marker("thorough")
    for cases in functions.values():
        if len(cases) > MANY:
            for number, item in enumerate(cases):
                if number % STRIDE:
                    item.add_marker("thorough")
