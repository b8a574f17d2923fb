"""A network trained by an engine, and by torch's own optimiser, clipping and backward pass as in
the papers' codes.
"""

import pytest
import torch
from tests.objectives.world import DIGITS, PARTS, federation, network, seen
from torch import nn

from undrift.engines import Simulate, Wire
from undrift.methods import FedDyn, FedProx, FedSpeed
from undrift.models import flatten, unflatten

LR, WEIGHT, RHO, DECAY, STEPS, ROUNDS = 0.3, 0.5, 0.2, 0.01, 3, 4
FACTOR = 0.9


class Client:
    """One client's module, set to the server's model, and its training loss on all its samples."""

    def __init__(self, number, x):
        self.net = network().double()
        self.net.load_state_dict(unflatten(x, flatten(self.net)[1]), strict=False)
        samples = torch.from_numpy(PARTS[number])
        self.images, self.labels = seen(DIGITS.images[samples]), DIGITS.labels[samples]

    @property
    def vector(self):
        return torch.cat([p.reshape(-1) for p in self.net.parameters()])

    def loss(self):
        return nn.functional.cross_entropy(self.net(self.images), self.labels)

    def backward(self, loss):
        self.net.zero_grad()
        loss.backward()

    def climb(self):
        """The gradient at y + RHO g/|g| is left in the module, at y."""
        self.backward(self.loss())
        with torch.no_grad():
            length = torch.stack([p.grad.norm() for p in self.net.parameters()]).norm()
            moves = [RHO * p.grad / length for p in self.net.parameters()]
            for p, move in zip(self.net.parameters(), moves, strict=True):
                p += move
        self.backward(self.loss())
        with torch.no_grad():
            for p, move in zip(self.net.parameters(), moves, strict=True):
                p -= move


def speed(client, x, h, lr, clip):
    """FedSpeed: h is the sum of the client's moves; the proximal term is half weight decay, half a
    linear loss.
    """
    optimiser = torch.optim.SGD(client.net.parameters(), lr=lr, weight_decay=DECAY + WEIGHT)
    for _ in range(STEPS):
        client.climb()
        (WEIGHT * (client.vector * (h - x)).sum()).backward()
        norm = nn.utils.clip_grad_norm_(client.net.parameters(), clip)
        optimiser.step()
    return norm


def near(client, x, h, lr, clip):
    """FedProx: FedSpeed's proximal term alone."""
    optimiser = torch.optim.SGD(client.net.parameters(), lr=lr, weight_decay=DECAY + WEIGHT)
    for _ in range(STEPS):
        client.backward(client.loss() - WEIGHT * (client.vector * x).sum())
        norm = nn.utils.clip_grad_norm_(client.net.parameters(), clip)
        optimiser.step()
    return norm


def dynamic(client, x, h, lr, clip):
    """FedDyn: one loss, with the proximal term and the linear one; -WEIGHT h is the stored
    gradient.
    """
    optimiser = torch.optim.SGD(client.net.parameters(), lr=lr, weight_decay=DECAY)
    for _ in range(STEPS):
        y = client.vector
        client.backward(
            client.loss() + WEIGHT * (y * h).sum() + 0.5 * WEIGHT * (y - x).square().sum()
        )
        norm = nn.utils.clip_grad_norm_(client.net.parameters(), clip)
        optimiser.step()
    return norm


@pytest.mark.parametrize("engine", [Simulate, Wire])
@pytest.mark.parametrize(
    ("method", "scope", "clip", "train", "corrects"),
    [
        (
            FedSpeed(lr=LR, lam=1 / WEIGHT, rho=RHO, server_dual="all"),
            "reference",
            0.7,
            speed,
            True,
        ),
        (FedProx(lr=LR, mu=WEIGHT), "reference", 2.0, near, False),
        (FedDyn(lr=LR, alpha=WEIGHT), "whole", 0.7, dynamic, True),
    ],
    ids=["FedSpeed", "FedProx", "FedDyn"],
)
def test_training_as_in_the_codes(engine, method, scope, clip, train, corrects):
    problem = federation()
    machine = engine(
        method,
        problem,
        steps=STEPS,
        cohort=2,
        seed=3,
        schedule=FACTOR,
        training={"weight_decay": DECAY, "clip": clip, "clip_scope": scope},
    )
    x, h, norms = (
        problem.start().double(),
        torch.zeros(problem.clients, problem.dim, dtype=torch.float64),
        [],
    )
    for number in range(ROUNDS):
        members = machine.cohort.draw(machine.streams, number, problem.clients).members.tolist()
        machine.run_round()
        ends = []
        for i in members:
            client = Client(i, x)
            norms.append(float(train(client, x, h[i], LR * FACTOR**number, clip)))
            ends.append(client.vector.detach())
            h[i] += ends[-1] - x
        x = torch.stack(ends).mean(0) + corrects * h.mean(0)
        torch.testing.assert_close(
            machine.x, x, rtol=0, atol=1e-6
        )  # torch's clip divides by the norm plus 1e-6
    assert min(norms) < clip < max(norms)
