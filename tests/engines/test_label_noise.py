"""Wrong labels as a fault: which samples, which classes, and that nothing else changes."""

import numpy as np
import pytest
import torch
from tests.rounds import after

from undrift.check.federations import least_squares
from undrift.core.faults import Fault, Faults
from undrift.core.params import BadParameters
from undrift.core.streams import Streams
from undrift.data.images import load_images
from undrift.engines import Simulate, Wire
from undrift.methods import FedAvg
from undrift.models import build
from undrift.problems import Neural
from undrift.problems.named import made

NOISY = [1, 3]
RATE = 0.4


def network(parts=None):
    images = load_images("digits", None, (300, 60))
    parts = np.split(np.arange(300), 5) if parts is None else parts
    return Neural(build("mlp", 1, 8, 10, seed=0, hidden=(8, 8)), images, parts)


PROBLEMS = {
    "logistic": made("logistic", clients=5).build(),
    "softmax": made("softmax-synthetic", clients=5, samples=80, features=4, classes=3).build(),
    "network": network(),
}


def noise(problem, seed=0, **given):
    fault = Fault(kind="label-noise", **{"clients": NOISY, "rate": RATE, **given})
    return Faults([fault], Streams(seed), problem.clients).label_noise(problem.samples)


def labels(problem):
    """The labels of each client; for logistic the rows, which are -label * features."""
    if isinstance(problem, Neural):
        return [problem.placed.samples.train.y[part] for part in problem.parts]
    table = problem.table.labels if hasattr(problem, "table") else problem.rows
    spans = zip(problem.held.first, problem.held.sizes, strict=True)
    return [table[first : first + size] for first, size in spans]


def changed(before, after):
    differs = before != after
    return differs.any(-1) if differs.ndim > 1 else differs


def test_the_first_of_two_faults_that_hit_a_sample_counts():
    problem = PROBLEMS["logistic"]
    plan = [Fault(kind="label-noise", clients=[1], rate=rate) for rate in (0.4, 0.9)]
    (first,), (both,) = (
        Faults(some, Streams(0), problem.clients).label_noise(problem.samples).values()
        for some in (plan[:1], plan)
    )
    hit = first >= 0
    assert np.array_equal(both[hit], first[hit])
    assert 0.8 < (both[~hit] >= 0).mean() < 1


@pytest.mark.parametrize("name", PROBLEMS)
def test_the_right_share_of_the_right_clients_gets_other_labels(name):
    problem = PROBLEMS[name]
    before = [label.clone() for label in labels(problem)]
    drawn = noise(problem)
    wrong = problem.with_label_noise(drawn)
    for client, (old, now, new) in enumerate(
        zip(before, labels(problem), labels(wrong), strict=True)
    ):
        assert torch.equal(old, now)  # the caller's
        if client not in NOISY:
            assert torch.equal(old, new)
            continue
        assert np.array_equal(changed(old, new).numpy(), drawn[client] >= 0)
        if name == "logistic":
            flip = torch.from_numpy(np.where(drawn[client] >= 0, -1.0, 1.0))
            assert torch.equal(new, old * flip[:, None])
    samples = sum(problem.samples[client] for client in NOISY)
    share = sum(int((drawn[client] >= 0).sum()) for client in NOISY) / samples
    assert abs(share - RATE) < 4 * (RATE * (1 - RATE) / samples) ** 0.5


def test_a_label_depends_on_seed_client_and_sample_alone():
    problem = PROBLEMS["softmax"]
    mine, same, other = noise(problem), noise(problem), noise(problem, seed=1)
    assert all(np.array_equal(mine[client], same[client]) for client in NOISY)
    assert not any(np.array_equal(mine[client], other[client]) for client in NOISY)
    alone = noise(problem, clients=[3])
    assert np.array_equal(alone[3], mine[3]) and not np.array_equal(mine[1], mine[3])


@pytest.mark.parametrize("batch", [None, 8])
@pytest.mark.parametrize("name", PROBLEMS)
def test_engines_agree_and_measure_the_true_labels(name, batch):
    problem = PROBLEMS[name]
    given = {"steps": 3, "batch": batch, "seed": 2}
    faults = [Fault(kind="label-noise", share=0.4, rate=RATE)]
    ends = []
    for kind, plan in ((Simulate, faults), (Wire, faults), (Simulate, None)):
        engine = kind(FedAvg(lr=0.05), problem, faults=plan, **given)
        after(4, engine)
        assert engine.metrics() == problem.metrics(engine.x) and not engine.rejections
        ends.append(engine.x)
    noisy, wire, clean = ends
    assert torch.allclose(noisy, wire, rtol=1e-4 if name == "network" else 1e-12, atol=1e-6)
    assert not torch.allclose(noisy, clean, rtol=1e-3, atol=1e-6)


@pytest.mark.parametrize("field", [{"since": 1}, {"until": 3}, {"phase": 0}])
def test_rounds_and_phases_do_not_apply(field):
    with pytest.raises(BadParameters) as wrong:
        Fault(kind="label-noise", **field)
    assert wrong.value.problems.keys() == field.keys()


def test_problems_without_labels_are_refused():
    with pytest.raises(BadParameters) as wrong:
        Simulate(FedAvg(lr=0.1), least_squares(), faults=[Fault(kind="label-noise")])
    assert wrong.value.problems.keys() == {"faults.0.kind"}


def test_a_sample_of_two_clients_has_one_label():
    shared = network([np.arange(10), np.arange(5, 15)])
    with pytest.raises(BadParameters) as wrong:
        Simulate(FedAvg(lr=0.1), shared, faults=[Fault(kind="label-noise", clients=[0])])
    assert wrong.value.problems.keys() == {"faults"}
