"""What several tests of federations begin with."""

import pytest


@pytest.fixture
def no_waiting(monkeypatch):
    monkeypatch.setattr("undrift.flower.exchange.LOOK", 0.001)
    monkeypatch.setattr("undrift.flower.exchange.AGAIN", 0.001)


@pytest.fixture
def task(monkeypatch):
    """What Flower's processes know of themselves, and every message says."""
    from flwr.supercore.task_identity import TaskIdentity

    for name in ("_task_id", "_run_id", "_node_id"):
        monkeypatch.setattr(TaskIdentity, name, 1)
