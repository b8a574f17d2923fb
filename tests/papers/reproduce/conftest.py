"""A paper of one figure on quadratics, which runs in a blink."""

import pytest

from undrift.core.streams import Streams
from undrift_papers.reproduce import items

SPEC = """
name = "toy"
rounds = 40
steps = 3
every = 5

[problem]
name = "quadratic"
clients = 4
dim = 3

[[method]]
name = "FedAvg"
lr = 0.02

[[method]]
name = "Scaffold"
label = "SCAFFOLD"
lr = 0.02

[item]
title = "A figure"
shows = "SCAFFOLD is exact, FedAvg is not."
quick = ["rounds=10"]
draw = ["gap"]
ambiguous = ["The step is not given."]
authors = ["Their code is longer."]
causes = ["Nothing was found."]
reason = "It is a toy"
found = { rounds = 120, agree = 1, ordered = 2 }

[[item.panel]]
name = "main"
title = "Quadratics"

[[item.panel.column]]
read = "final"
of = "gap"
above = { FedAvg = ["SCAFFOLD"] }

[[item.panel.column]]
read = "rounds"
of = "gap"
to = 1e-3
tolerance = 7
printed = { FedAvg = "-", SCAFFOLD = 20 }

[[item.panel]]
name = "other"
title = "Larger steps"
set = ["method.lr=0.03", "method.SCAFFOLD.lr=0.04"]
methods = ["SCAFFOLD"]
"""


@pytest.fixture
def papers(tmp_path, monkeypatch):
    """The folder that takes the place of undrift_papers."""
    folder = tmp_path / "papers"
    (folder / "toy").mkdir(parents=True)
    (folder / "toy" / "figure-1.toml").write_text(SPEC)
    monkeypatch.setattr(items, "PAPERS", folder)
    for cached in (items.item, items._document, items._spec):
        cached.cache_clear()
    yield folder
    for cached in (items.item, items._document, items._spec):
        cached.cache_clear()


@pytest.fixture
def undrawn(papers, monkeypatch):
    """Pages without pictures, which take most of the time."""
    monkeypatch.setattr("undrift_papers.reproduce.page.figure", lambda report: None)
    monkeypatch.setattr("undrift_papers.reproduce.agreement.figure", lambda found: None)
    return papers


@pytest.fixture
def seeded(monkeypatch):
    """Every run counts as one that a seed may change."""
    always = property(lambda streams: True, lambda streams, used: None)
    monkeypatch.setattr(Streams, "used", always, raising=False)
