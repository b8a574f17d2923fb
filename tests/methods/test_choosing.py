"""docs/choosing.md says what every method declares, and which are exact with absent clients."""

import pytest
from tools import choosing

from undrift.check.federations import quadratic
from undrift.engines import Simulate
from undrift.methods import registry

PROBLEM = quadratic()
LR = 0.1 / PROBLEM.constants.L
GIVEN = {"FedADMM": {"rho": 1.0}, "FedDyn": {"alpha": 1.0}, "ScaffoldM": {"gamma": 3 * LR}}


def test_the_tables_are_those_of_the_registry():
    page = choosing.PAGE.read_text(encoding="utf-8")
    assert choosing.written(page) == page, "run make stubs"


def test_what_the_tables_say():
    rows = {row.name: row for row in choosing.rows()}
    assert (rows["FedCET"].theory, rows["DANE"].theory) == ("strongly convex", "convex")
    assert rows["FedAvgM"].tuned == ["lr", "beta"] and rows["FedRecu"].tuned == []
    assert rows["DANE"].needs == ["exact local minimisers"]


@pytest.mark.parametrize(
    "name", [n for n, c in registry.items() if c.exact and c.participation == "partial"]
)
def test_half_of_the_clients_are_absent(name):
    """Those of the list reach the minimiser all the same, and the others do not."""
    given = {"lr": LR} | GIVEN.get(name, {}) | choosing.ABSENT.get(name, {})
    engine = Simulate(registry[name](**given), PROBLEM, steps=3, cohort=PROBLEM.clients // 2)
    for _ in range(250):
        engine.run_round()
    assert (PROBLEM.metrics(engine.x)["gap"] < 1e-4) == (name in choosing.ABSENT)
