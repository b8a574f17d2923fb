"""What several tests of federations begin with."""

import pytest


@pytest.fixture
def no_waiting(monkeypatch):
    monkeypatch.setattr("undrift.flower.correspondence.LOOK", 0.001)
    monkeypatch.setattr("undrift.flower.correspondence.AGAIN", 0.001)


@pytest.fixture
def task(monkeypatch):
    """What Flower's processes know of themselves, and every message says."""
    from flwr.supercore.task_identity import TaskIdentity

    for name in ("_task_id", "_run_id", "_node_id"):
        monkeypatch.setattr(TaskIdentity, name, 1)


@pytest.fixture
def shared(tmp_path):
    """Three nodes that can build the whole problem."""
    from tests.flower.in_process import Session
    from undrift.flower.place import Place
    from undrift.flower.worker import Worker

    return Session(*(Worker(Place(f"n{k}", tmp_path / str(k), part=k)) for k in range(3)))
