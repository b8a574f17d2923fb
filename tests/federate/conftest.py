"""What several tests of federations begin with."""

import pytest


@pytest.fixture
def no_waiting(monkeypatch):
    monkeypatch.setattr("undrift.flower.exchange.LOOK", 0.001)
    monkeypatch.setattr("undrift.flower.exchange.AGAIN", 0.001)


@pytest.fixture
def shared(tmp_path):
    """Three nodes that can build the whole problem."""
    from tests.federate.in_process import Session
    from undrift.federate.node import NodeConfig
    from undrift.federate.worker import ClientWorker

    return Session(
        *(ClientWorker(NodeConfig(f"n{k}", tmp_path / str(k), part=k)) for k in range(3))
    )
