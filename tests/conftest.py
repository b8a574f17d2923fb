import pytest


@pytest.fixture(autouse=True)
def no_width(monkeypatch):
    """What is printed does not depend on the tester's terminal."""
    monkeypatch.delenv("COLUMNS", raising=False)
