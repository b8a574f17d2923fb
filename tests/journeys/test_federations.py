"""Federations of real processes, to their end."""

import shutil

import pytest

from tests.journeys.conftest import ROOT

pytest.importorskip("flwr", reason="needs undrift[flower]")


@pytest.mark.slow
def test_two_nodes_on_this_machine(typed):
    shutil.copytree(ROOT / "examples", typed.folder / "examples")
    command = "undrift federate examples/federation.toml --local 2 -s rounds=2 -s problem.clients=2"
    said = typed(command, limit=400)
    assert "all rounds run" in said
    typed("undrift compare runs/federation")
    typed("undrift report runs/federation")
