"""Specs that are right, for tests to change; and what is then wrong with them."""

import pytest

from undrift.spec.errors import BadSpec
from undrift.spec.reader import parse

GOOD = """\
name = "first"
rounds = 20
steps = 3
seed = [0, 1]
target = 1e-8
[problem]
name = "quadratic"
clients = 4
[[method]]
name = "scaffold"
label = "SCAFFOLD"
lr = "theory"
steps = 5
[[method]]
name = "FedAvg"
lr = 0.01
rounds = 7
"""
IMAGES = """\
name = "net"
rounds = 5
epochs = 2
batch = 16
training.weight_decay = 1e-3
training.clip = 10.0
training.clip_scope = "reference"
schedule = 0.998
aggregation = "weighted-mean"
target_accuracy = 0.5
objective = "fed-lc"
[cohort]
size = 3
dropout = 0.1
[problem]
name = "images"
clients = 6
[[method]]
name = "FedAvg"
lr = 0.1
[[method]]
name = "FedAvg"
label = "moon"
lr = 0.1
steps = 4
rounds = 7
training.clip = 1.0
schedule = 1.0
objective = {name = "MOON", mu = 0.5}
"""
CONVEX = """\
name = "first"
rounds = 20
steps = 3
[problem]
name = "quadratic"
clients = 4
[[method]]
name = "FedAvg"
lr = 0.01
"""
MINE = """\
from undrift.methods.fedavg import FedAvg

class Mine(FedAvg):
    \"\"\"FedAvg.\"\"\"

    mu: float = 1.0
"""
OWN = CONVEX + '[[method]]\nfile = "mine.py"\nname = "mine"\nlr = 0.02\n'


def refused(text, *flags):
    """The complaints about a spec."""
    with pytest.raises(BadSpec) as caught:
        parse(text, "s.toml", flags)
    return caught.value.complaints


def complaints(text, *flags):
    """The same, as a user reads them."""
    return [str(complaint) for complaint in refused(text, *flags)]


def paths(value, at=()):
    """Every path of a parsed document."""
    if isinstance(value, list):
        value = dict(enumerate(value))
    for key, inner in value.items() if isinstance(value, dict) else ():
        yield (*at, key)
        yield from paths(inner, (*at, key))
