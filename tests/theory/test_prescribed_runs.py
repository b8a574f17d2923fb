"""With all that theory prescribes left to it, methods descend for any number of local steps."""

import numpy as np
import pytest

from undrift.engines import Simulate
from undrift.methods import registry
from undrift.problems.logistic import Logistic
from undrift.problems.named import build
from undrift.runs.api import resolve

ROUNDS = 40
RULES = {name: cls.prescribed for name, cls in registry.items() if "prescribed" in vars(cls)}
GIVEN = {"FedProx": {"mu": 0.5}, "FedLinTopK": {"k_server": 2}}
"""What has no rule and no default."""


def logistic(l2, seed, clients=4, rows=12, dim=3):
    """Each client labels by a direction of its own."""
    rng = np.random.default_rng(seed)
    features, directions = rng.normal(size=(clients, rows, dim)), rng.normal(size=(clients, dim))
    labels = np.sign(np.einsum("nrd,nd->nr", features, directions))
    parts = np.arange(clients * rows).reshape(clients, rows)
    return Logistic(features.reshape(-1, dim), labels.reshape(-1), list(parts), l2=l2)


PROBLEMS = {
    "quadratic, condition 5": build("quadratic", clients=5, dim=4, mu=1.0, L=5.0, seed=0),
    "quadratic, condition 50": build("quadratic", clients=3, dim=3, mu=0.1, L=5.0, seed=1),
    "logistic, l2 0.1": logistic(0.1, seed=0),
    "logistic, l2 0.01": logistic(0.01, seed=1),
}


def gaps(method, problem, steps):
    engine = Simulate(method, problem, steps=steps)
    yield problem.metrics(engine.x)["gap"]
    for _ in range(ROUNDS):
        engine.run_round()
        yield problem.metrics(engine.x)["gap"]


@pytest.mark.parametrize("steps", [1, 2, 4, 10])
@pytest.mark.parametrize("name", sorted(RULES))
def test_the_gap_falls(name, steps):
    """By a hundredth at least, as much as FedCET's steps allow, and it is never above the start."""
    open_method = registry[name](**dict.fromkeys(RULES[name], "theory"), **GIVEN.get(name, {}))
    if name == "EXTRA" and steps > 6:
        with pytest.raises(ValueError, match="at most 6"):
            resolve(open_method, PROBLEMS["logistic, l2 0.1"], steps=steps)
        return
    for label, problem in PROBLEMS.items():
        first, *later = gaps(resolve(open_method, problem, steps=steps), problem, steps)
        assert max(later) < first and later[-1] < 0.99 * first, (
            label,
            first,
            max(later),
            later[-1],
        )


def test_the_size_of_mini_batches_reaches_the_rules():
    problem = PROBLEMS["logistic, l2 0.1"]
    method = registry["FedPDVR"](eta="theory", gamma="theory", I=9)
    known = 0.999 / (3 * problem.constants.L)
    assert resolve(method, problem, steps=4).eta == pytest.approx(known / 4)
    assert resolve(method, problem, steps=4, batch=4).eta == pytest.approx(
        known / 7
    )  # Q + sqrt(Q I/B) = 4 + 3


def test_mini_batches_of_all_samples_are_exact():
    problem, method = PROBLEMS["logistic, l2 0.1"], registry["FedRecu"](lr="theory")
    most = max(problem.samples)
    exact, whole, drawn = (
        resolve(method, problem, steps=4, batch=batch).lr for batch in (None, most, most - 1)
    )
    assert exact == whole > 3 * drawn
