"""Products in bf16, on a CPU as on a GPU: torch's autocast, in the gradients of mini-batches."""

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import undrift as ud
from undrift.core.params import BadParameters
from undrift.models.net import seeded
from undrift.problems.neural.oracle import NeuralOracle
from undrift.records.journal import BadFolder

generator = torch.Generator().manual_seed(0)
X = torch.randn(60, 6, generator=generator)
LABELS = (X[:, 0] > 0).long() + (X[:, 1] > 0).long()
PARTS = [range(k, 60, 3) for k in range(3)]


NETS = {
    "formula": lambda: nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 3)),
    "stacked": lambda: nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 3)),
    "convolutions": lambda: nn.Sequential(
        nn.Unflatten(1, (1, 6)), nn.Conv1d(1, 4, 3), nn.Tanh(), nn.Flatten(), nn.Linear(16, 3)
    ),
}


def made(name):
    with seeded(0):
        return NETS[name]()


@pytest.mark.parametrize("name", NETS)
def test_gradients_on_a_cpu_are_those_of_autocast(name):
    problem = ud.Neural(made(name), (X, LABELS), PARTS, precision="bf16")
    exact = ud.Neural(made(name), (X, LABELS), PARTS)
    y, batch = problem.start().float().repeat(3, 1), torch.arange(8).repeat(3, 1)
    found, plain = (one.at().grad(y, batch) for one in (problem, exact))
    assert found.dtype == torch.float32
    for client, part in enumerate(PARTS):
        net, samples = made(name), torch.tensor(part)[:8]
        with torch.autocast("cpu", torch.bfloat16):
            F.cross_entropy(net(X[samples]), LABELS[samples]).backward()
        expected = torch.cat([p.grad.reshape(-1) for p in net.parameters()])
        away = float((found[client] - expected).norm() / expected.norm())
        assert away < 0.02 and short(found[client]) > 0.9 > 0.5 > short(plain[client])


def short(v):
    """The share of numbers that bf16 has: all that come from its products."""
    return float((v.bfloat16().float() == v).float().mean())


def test_a_network_that_torch_cannot_run_in_it_is_told():
    class Stubborn(nn.Linear):
        def forward(self, x):
            if torch.is_autocast_enabled("cpu"):
                raise RuntimeError("could not create a primitive")
            return super().forward(x)

    problem = ud.Neural(Stubborn(6, 3), (X, LABELS), PARTS, precision="bf16")
    with pytest.raises(BadParameters) as found:
        ud.run(ud.FedAvg(lr=0.1), problem, rounds=1, batch=4)
    assert "could not create a primitive" in found.value.problems["precision"]


def test_a_run_learns_in_it_and_measures_in_float32():
    given = {"rounds": 30, "steps": 5, "batch": 8}
    low, exact = (
        ud.run(ud.FedAvg(lr=0.3), ud.Neural(made("formula"), (X, LABELS), PARTS, **p), **given)
        for p in ({"precision": "bf16"}, {})
    )
    assert low.history.last["loss"] < 0.7 * low.history["loss"][0]
    assert low.history["loss"][0] == exact.history["loss"][0]
    assert 0 < abs(low.history.last["loss"] - exact.history.last["loss"]) < 0.05
    assert low.x.dtype == torch.float32


def test_it_needs_float32():
    problem = ud.Neural(made("formula"), (X, LABELS), PARTS, precision="bf16")
    with pytest.raises(BadParameters) as found:
        ud.run(ud.FedAvg(lr=0.1), problem, rounds=1, dtype="float64")
    assert [*found.value.problems] == ["precision"]
    with pytest.raises(BadParameters) as found:  # before it is looked whether there is a GPU
        problem.to(torch.float64, torch.device("cuda"))
    assert [*found.value.problems] == ["precision"]


def test_a_saved_run_is_not_continued_in_another_precision(tmp_path):
    def train(precision):
        problem = ud.Neural(made("formula"), (X, LABELS), PARTS, precision=precision)
        return ud.run(ud.FedAvg(lr=0.1), problem, rounds=2, batch=4, save=tmp_path / "run")

    train("f32")
    with pytest.raises(BadFolder):
        train("bf16")


def test_too_little_memory_is_not_blamed_on_the_precision(monkeypatch):
    def full(*_):
        raise torch.OutOfMemoryError("no room")

    problem = ud.Neural(made("stacked"), (X, LABELS), PARTS, precision="bf16")
    monkeypatch.setattr(NeuralOracle, "_differentiated", full)
    with pytest.raises(torch.OutOfMemoryError):
        problem.at().grad(torch.zeros(len(PARTS), problem.dim), torch.zeros(len(PARTS), 1).long())
