import shutil

import pytest


@pytest.fixture
def own_cache(tmp_path_factory, monkeypatch):
    folder = tmp_path_factory.mktemp("cache")
    monkeypatch.setenv("UNDRIFT_CACHE", str(folder))
    yield
    shutil.rmtree(folder)  # entries of real sets are large
