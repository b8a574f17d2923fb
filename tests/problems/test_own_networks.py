"""Networks of many kinds train as they do in a plain loop, and come back as they were given."""

import copy
import warnings

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional as F

import undrift as ud
from tests.objectives.world import CPU
from undrift.models.net import seeded
from undrift.problems import Neural

RNG = np.random.default_rng(5)
TOKENS = torch.tensor(RNG.integers(0, 9, (48, 6)))
NEXT = torch.tensor(RNG.integers(0, 9, (48, 6)))
LABELS = torch.tensor(RNG.integers(0, 3, 48))
NUMBERS = torch.tensor(RNG.normal(size=(48, 6)))
SPLIT = ud.data.iid(48, clients=3)


class Reader(nn.Module):
    """The next token at every place; the embedding is the head too."""

    def __init__(self, body):
        super().__init__()
        self.words, self.body, self.head = nn.Embedding(9, 8), body, nn.Linear(8, 9, bias=False)
        self.head.weight = self.words.weight
        self.register_buffer("scale", torch.tensor(0.5))

    def forward(self, tokens):
        h = self.body(self.words(tokens) * self.scale)
        return self.head(h[0] if isinstance(h, tuple) else h).transpose(1, 2)


class LowRank(nn.Module):
    """A frozen layer and a trained correction of rank one, with a trained strength."""

    def __init__(self):
        super().__init__()
        self.base = nn.Linear(6, 3).requires_grad_(False)
        self.down, self.up = nn.Linear(6, 1, bias=False), nn.Linear(1, 3, bias=False)
        self.strength = nn.Parameter(torch.tensor(1.5))

    def forward(self, x):
        return self.base(x) + self.strength * self.up(self.down(x))


class Autoencoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.inside, self.outside = nn.Linear(6, 2), nn.Linear(2, 6)

    def forward(self, x):
        z = self.inside(x).tanh()
        return self.outside(z), z


def rebuilt(outputs, targets):
    return F.mse_loss(outputs[0], targets) + 0.1 * outputs[1].abs().mean()


NETWORKS = {
    "LSTM": (lambda: Reader(nn.LSTM(8, 8, batch_first=True)), (TOKENS, NEXT), F.cross_entropy),
    "GRU": (lambda: Reader(nn.GRU(8, 8, batch_first=True)), (TOKENS, NEXT), F.cross_entropy),
    "transformer": (
        lambda: Reader(nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True)),
        (TOKENS, NEXT),
        F.cross_entropy,
    ),
    "low rank": (LowRank, (NUMBERS, LABELS), None),
    "two outputs": (Autoencoder, (NUMBERS, NUMBERS), rebuilt),
    "1-d convolutions": (
        lambda: nn.Sequential(
            nn.Unflatten(1, (1, 6)),
            nn.Conv1d(1, 4, 3),
            nn.LayerNorm(4),
            nn.Flatten(),
            nn.Linear(16, 3),
        ),
        (NUMBERS, LABELS),
        None,
    ),
}


def network(what):
    with seeded(0):
        return NETWORKS[what][0]()


def problem(what, **options):
    _, train, loss = NETWORKS[what]
    return Neural(network(what), train, SPLIT, loss=loss, **options)


def loop(what, rounds, steps, lr):
    """FedAvg on all samples by torch.optim, one module after another, in float64."""
    _, (x, y), loss = NETWORKS[what]
    server, loss = network(what).double(), loss or F.cross_entropy
    x, y = (v.double() if v.is_floating_point() else v for v in (x, y))
    for _ in range(rounds):
        ends = []
        for part in map(torch.from_numpy, SPLIT):
            mine = copy.deepcopy(server)
            trained = [p for p in mine.parameters() if p.requires_grad]
            optimiser = torch.optim.SGD(trained, lr=lr)
            for _ in range(steps):
                optimiser.zero_grad()
                loss(mine(x[part]), y[part]).backward()
                optimiser.step()
            ends.append(mine)
        with torch.no_grad():
            for p, *others in zip(*(m.parameters() for m in (server, *ends)), strict=True):
                p.copy_(torch.stack(others).mean(0))
    return server


@pytest.mark.parametrize("what", NETWORKS)
def test_a_run_is_a_plain_loop(what):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        run = ud.run(ud.FedAvg(lr=0.1), problem(what), rounds=3, steps=2, dtype="float64")
    want = loop(what, 3, 2, 0.1)
    got = run.problem.module(run.x).double()
    trained = [p for p in got.parameters() if p.requires_grad]
    nn.utils.vector_to_parameters(run.x, trained)
    assert got.state_dict().keys() == network(what).state_dict().keys()
    for name, v in want.state_dict().items():
        torch.testing.assert_close(got.state_dict()[name], v, rtol=1e-10, atol=1e-12)
    assert run.history.last["loss"] < run.history.rows[0]["loss"]
    module = run.module()
    assert not module.training and next(module.parameters()).dtype == torch.float32
    if what in ("LSTM", "transformer"):
        assert module.head.weight is module.words.weight
    if what == "low rank":
        assert torch.equal(module.base.weight, network(what).base.weight)
        assert run.problem.dim == 10


def test_training_starts_from_the_weights_given():
    trained = ud.run(ud.FedAvg(lr=0.1), problem("LSTM"), rounds=2, steps=2).module()
    again = Neural(trained, (TOKENS, NEXT), SPLIT, loss=F.cross_entropy)
    assert torch.equal(again.start().float(), nn.utils.parameters_to_vector(trained.parameters()))


def test_a_module_in_half_precision_is_trained_in_that_of_the_run():
    half = Neural(network("low rank").bfloat16(), (NUMBERS, LABELS), SPLIT)
    run = ud.run(ud.FedAvg(lr=0.1), half, rounds=1, steps=1)
    assert run.x.dtype == torch.float32 and run.module().up.weight.dtype == torch.bfloat16


class Named(nn.Module):
    def __init__(self):
        super().__init__()
        self.words, self.head = nn.Embedding(9, 6), nn.Linear(6, 3)

    def forward(self, numbers, tokens):
        h = self.words(tokens).mean(1) + numbers
        return {"kind": self.head(h), "size": h.sum(1)}


def both(outputs, targets):
    kind = F.cross_entropy(outputs["kind"], targets[0])
    return kind + F.mse_loss(outputs["size"], targets[1])


def test_a_recording_takes_several_inputs_and_targets():
    """The arguments of a recording are single tensors."""
    with seeded(0):
        net = Named()
    train = {"tokens": TOKENS, "numbers": NUMBERS}, (LABELS, NUMBERS[:, 0])
    task = Neural(net, train, SPLIT, loss=both).to(torch.float64, CPU)
    y = task.start() + 0.1 * torch.randn(3, task.dim, dtype=torch.float64)
    batch = torch.tensor([[3, 1, 0], [2, 4, 5], [0, 1, 2]])
    f = task.at()
    given = f._arguments(f._inputs(y, batch))
    flat = given.flat()
    assert all(v is None or isinstance(v, torch.Tensor) for v in flat) and len(flat) == 9
    again = given.rows(0).like(flat)
    torch.testing.assert_close(f._gradients(y, again), f.grad(y, batch), rtol=0, atol=0)


def test_what_a_gpu_does_not_record(monkeypatch):
    task = problem("two outputs")
    f = task.at()
    monkeypatch.setattr(task.placed, "device", torch.device("cuda"))
    assert task.placed.alone and f._captures(torch.zeros(3, 8))
    assert not f._captures(torch.zeros(3, 7)), "the last mini-batch of an epoch is short"
    monkeypatch.setattr(task.placed.network, "draws", True)
    assert not f._captures(torch.zeros(3, 8))


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.parametrize("what", NETWORKS)
@pytest.mark.parametrize("batch", [8, 7], ids=["whole", "padded"])
def test_a_gpu_gives_the_numbers_of_a_processor(what, batch):
    ends = [
        ud.run(
            ud.Scaffold(lr=0.05), problem(what, compiled=False), rounds=3, epochs=1, batch=batch,
            dtype="float64", device=device,
        ).x.to(CPU)
        for device in ("cpu", "cuda")
    ]  # fmt: skip
    torch.testing.assert_close(*ends, rtol=1e-8, atol=1e-9)
