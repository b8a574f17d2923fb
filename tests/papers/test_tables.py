"""The papers' tables: every difference from print is explained, and nothing is explained that
agrees.
"""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from undrift.cli import main
from undrift.core.costs import placeholder
from undrift.core.problem import Constants
from undrift.methods import find
from undrift.theory import bounds, has_rule, prescribe, steps
from undrift_papers import theorems
from undrift_papers.fedrecu.memory import vectors_held
from undrift_papers.fedrecu.tables import step_rule
from undrift_papers.fedred.complexities import rule
from undrift_papers.fedred.orders import AT, NC, SC, order
from undrift_papers.tables import TABLES

ROWS = [(item, row) for item, make in TABLES.items() for row in make().rows]


def agrees(row):
    return all(c.same for c in row.cells)


def disagreeing(item):
    return {row.names for row in TABLES[item]().rows if not agrees(row)}


@pytest.mark.parametrize(
    ("item", "row"), ROWS, ids=[f"{item}:{'-'.join(row.names)}" for item, row in ROWS]
)
def test_a_row_is_explained_exactly_when_it_differs(item, row):
    assert agrees(row) != bool(row.why)
    assert agrees(row) or row.source


def test_neither_torch_nor_numpy_is_loaded_and_no_room_needs_papers():
    code = """
import sys, undrift, undrift.core, undrift.methods, undrift.theory
assert "undrift_papers" not in sys.modules
from undrift_papers.tables import TABLES
TABLES["fedrecu/table-1"]()
assert not {"torch", "numpy"} & set(sys.modules)
"""
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.parametrize(
    ("name", "vectors"),
    [
        ("FedRecu", 3),  # x(t), x(t-1) and the gradient there
        ("FedLin", 3),  # y, g_i(x) and g(x)
        ("Scaffold", 4),  # y, c_i, c, and x for the upload
        ("FedAvg", 2),  # y, and x for the upload
        ("GD", 0),
    ],
)
def test_vectors_a_local_step_needs(name, vectors):
    assert vectors_held(placeholder(find(name))) == vectors


def test_step_rules_are_read_off_the_rules():
    assert step_rule("FedRecu", "nonconvex", "EG") == "8/(17τL)"
    assert step_rule("FedRecu", "nonconvex", "SG") == "< 1/(13τL)"
    assert step_rule("Scaffold", "convex", "SG") == "1/(81τL)"


def test_orders_are_fitted():
    found = order(lambda a: 3 * a.delta_A**2 / (a.mu * a.L) * a.log, AT[SC])
    assert found.powers == {"delta_A": 2, "mu": -1, "L": -1} and found.log
    assert str(found) == "3 δ_A²/(L μ) log(R0²/ε)"
    assert str(order(lambda a: (a.L / a.mu) ** 0.5, AT[SC])) == "√(L/μ)"
    with pytest.raises(ValueError, match="not a power of L"):
        order(lambda a: a.L + 1e6, AT[SC])


def test_another_rule_would_show(monkeypatch):
    before = disagreeing("fedrecu/table-2")
    monkeypatch.setattr(steps, "fedlin_convex", lambda L, tau: 1 / (11 * tau * L))
    assert disagreeing("fedrecu/table-2") - before == {("convex", "FedLin (Mitra et al. 2021b)")}


def test_another_bound_would_show(monkeypatch):
    before, dane = disagreeing("fedred/table-1"), bounds.dane
    monkeypatch.setattr(bounds, "dane", lambda mu, lam, rounds, far: dane(mu, lam**2, rounds, far))
    new = disagreeing("fedred/table-1") - before
    assert new == {("DANE (this work)", SC), ("DANE (this work)", "convex")}


def test_another_exchange_would_show(monkeypatch):
    """FedRecu with both of its exchanges at tau = 1."""
    monkeypatch.delattr(find("FedRecu"), "phases")
    changed = [row.cells[1] for row in TABLES["fedrecu/table-1"]().rows if not row.cells[1].same]
    assert changed == [("2 / 1", "2 / 2", False)]


def test_what_the_explanations_say():
    """Corollary 21 for SONATA, the condition number of SVRP's subproblem, Theorem 3's infinite
    limit.
    """
    assert not any(has_rule(find("SONATA"), field) for field in ("beta", "alpha"))
    L, mu, delta = 50.0, 0.3, 4.0
    eta = theorems.svrp_eta(mu, delta)
    condition = (L + 1 / eta) / (mu + 1 / eta)
    assert condition == pytest.approx((L * mu + 2 * delta**2) / (mu**2 + 2 * delta**2))
    with pytest.raises(ZeroDivisionError):
        theorems.fedrecu_convex_stochastic(1.0, 1, 1 / 6, 1, 1.0)
    with pytest.raises(ValueError, match="mu"):
        rule("DANE", AT[NC])
    with pytest.raises(ValueError, match="mu > 0"):
        prescribe(find("Scaffnew")(p="theory", lr=1.0), Constants(L=1.0, mu=0.0), steps=1)


def test_the_command(capsys):
    """As text with every cell, and in one document; the pages in docs have the same."""
    docs = Path(__file__).parents[2] / "docs/reproductions"
    for item, make in TABLES.items():
        assert main(["tables", item]) == 0
        shown, page = capsys.readouterr().out, (docs / f"{item}.md").read_text(encoding="utf-8")
        for text in (shown, page):
            assert all(c.printed in text and c.ours in text for r in make().rows for c in r.cells)
    assert main(["tables", "--json"]) == 0
    assert json.loads(capsys.readouterr().out).keys() == TABLES.keys()
    with pytest.raises(SystemExit) as end:
        main(["tables", "fedred/table1"])
    assert end.value.code == 2 and "did you mean fedred/table-1?" in capsys.readouterr().err
