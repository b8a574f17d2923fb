"""Local steps write over nothing that a method was given, gave or got."""

import numpy as np
import pytest
import torch
from tests.objectives.world import federation
from tests.rounds import after

from undrift.check.federations import quadratic
from undrift.core import Message, Method, State, Vec, registry
from undrift.engines import Simulate, Wire
from undrift.methods import FedAvg
from undrift.methods._shared import LocalSGD
from undrift.problems import Logistic


class Probe(Method):
    """Two descents of every client, which keep all that passes."""

    lr: float = 0.05
    prox: float = 0.0

    class Server(State):
        x: Vec

    class Client(State):
        c: Vec

    class Down(Message):
        x: Vec

    class Up(Message):
        first: Vec
        second: Vec

    def server(self, x0):
        return self.Server(x=x0)

    def client(self, x0):
        return self.Client(c=x0 + 1)

    def send(self, s):
        return self.Down(x=s.x)

    def work(self, me, got, f):
        held = [me.c, got.x]

        def direction(y, grad):
            held.append(grad(y))
            return held[-1] + me.c

        before = [v.clone() for v in held]
        first = f.sgd(got.x, self.lr, direction, prox=self.prox)
        before += [v.clone() for v in held[2:]]
        kept = first.clone()
        constant = f.sgd(first, self.lr, lambda y, grad: me.c)
        itself = f.sgd(first, self.lr, lambda y, grad: y)
        assert torch.equal(first, kept) and all(map(torch.equal, held, before))
        assert constant.data_ptr() != first.data_ptr() != itself.data_ptr()
        return me, self.Up(first=first, second=constant + itself)

    def merge(self, s, up, cohort):
        return self.Server(x=up.first)


registry.pop("Probe")


class Straight(Probe):
    """Along the gradient, told or not."""

    told: bool = False

    def work(self, me, got, f):
        first = f.sgd(
            got.x, self.lr, (lambda y, grad: grad(y)) if self.told else None, prox=self.prox
        )
        kept = first.clone()
        second = f.sgd(first, self.lr)
        assert torch.equal(first, kept) and not torch.equal(first, second)
        return me, self.Up(first=second, second=first)


registry.pop("Straight")
OPTIONS = [
    {},
    {"training": {"clip": 3.0, "weight_decay": 0.1}},
    *({"training": {"clip": 3.0, "clip_scope": s}} for s in ("whole", "reference")),
]


@pytest.mark.parametrize("engine", [Simulate, Wire])
@pytest.mark.parametrize("options", OPTIONS)
@pytest.mark.parametrize("steps", [3, [1, 4, 2, 3]], ids=str)
def test_the_gradient_is_the_direction_unless_told(engine, options, steps):
    problem, found = quadratic(), []
    for method in (Straight(), Straight(told=True)):
        machine = engine(method, problem, steps=steps, x0=torch.ones(problem.dim), **options)
        after(3, machine)
        found.append(machine)
    torch.testing.assert_close(found[0].x, found[1].x, rtol=1e-13, atol=1e-13)
    assert found[0].ledger == found[1].ledger


@pytest.mark.parametrize("engine", [Simulate, Wire])
@pytest.mark.parametrize("prox", [0.0, 0.3])
@pytest.mark.parametrize("steps", [[4, 4, 4, 4], [1, 4, 2, 3]], ids=str)
def test_sgd_writes_over_nothing(engine, prox, steps):
    problem = quadratic()
    machine = engine(Probe(prox=prox), problem, steps=steps, x0=torch.ones(problem.dim))
    machine.run_round()
    c, x, ends = np.full(problem.dim, 2.0), np.ones(problem.dim), []
    for i, count in enumerate(steps):
        y = x.copy()
        for _ in range(count):
            g = problem.at(np.array([i])).grad(torch.from_numpy(y).unsqueeze(0))[0].numpy()
            y = y - 0.05 * (g + c + prox * (y - x))
        ends.append(y)
    np.testing.assert_allclose(machine.x, np.mean(ends, 0), atol=1e-12)


class Twice(LocalSGD, register=False):
    """A second descent goes on where the first one ended."""

    def work(self, me, got, f):
        y = f.sgd(f.sgd(got.x, self.lr), self.lr)
        return me, self.Up(dy=y - got.x)

    def merge(self, s, up, cohort):
        return s.replace(x=s.x + up.dy)


def uneven():
    """Six clients with 5 to 30 samples."""
    rng, ends = np.random.default_rng(3), np.cumsum([5, 9, 12, 16, 21, 30])
    X = rng.normal(size=(ends[-1], 4))
    return Logistic(X, np.sign(rng.normal(size=len(X))), np.split(np.arange(len(X)), ends[:-1]))


PACES = {
    "steps": ({"steps": [1, 2, 3, 4, 5, 6]}, {"steps": [2, 4, 6, 8, 10, 12]}),
    "epochs": ({"epochs": 1}, {"epochs": 2}),
    "equal": ({"steps": 3}, {"steps": 6}),
}
UNEVEN = {"logistic": uneven, "augmented network": lambda: federation(smooth=True)}


@pytest.mark.covering(1)
@pytest.mark.parametrize("parts", [{}, {"training": {"accumulate": 2}}], ids=["", "accumulate"])
@pytest.mark.parametrize("pace", PACES)
@pytest.mark.parametrize("problem", UNEVEN)
def test_two_descents_draw_the_mini_batches_of_one_twice_as_long(problem, pace, parts):
    problem, (once, twice) = UNEVEN[problem](), PACES[pace]
    runs = [kind(Twice(lr=0.3), problem, batch=4, **parts, **once) for kind in (Simulate, Wire)]
    runs.append(Wire(FedAvg(lr=0.3), problem, batch=4, **parts, **twice))
    after(3, *runs)
    stacked, alone, long = runs
    torch.testing.assert_close(stacked.x, alone.x, rtol=0, atol=1e-12)
    torch.testing.assert_close(alone.x, long.x, rtol=0, atol=1e-12)
    assert stacked.ledger.gradients == alone.ledger.gradients == long.ledger.gradients
