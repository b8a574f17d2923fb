"""A vector of weights becomes the module that was given, untrained parts included."""

import pytest
import torch
from torch import nn

from tests.objectives.world import CPU, DIGITS, PARTS, points
from undrift.models.net import seeded
from undrift.problems import Neural


class Own(nn.Module):
    """Buffers saved and not saved, tied weights, dropout, and layers swapped for speed."""

    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(1, 4, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.Dropout(0.5)
        )
        self.first, self.second = nn.Linear(64, 64, bias=False), nn.Linear(64, 64, bias=False)
        self.second.weight = self.first.weight
        self.head = nn.Linear(64, 10)
        self.register_buffer("scale", torch.tensor(0.1))
        self.register_buffer("passing", torch.tensor(2.0), persistent=False)

    def forward(self, x):
        h = self.second(self.first(self.body(x).flatten(1)).tanh()) * self.scale * self.passing
        return self.head(h)


def own():
    with seeded(3):
        return Own()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_weights_come_back_as_the_module_given(dtype):
    given = own().to(dtype)
    problem = Neural(given, DIGITS, PARTS).to(torch.float32, CPU)
    x = points(problem, 1)[0]
    module = problem.module(x)
    assert str(module) == str(given) and not module.training and module is not problem.module(x)
    assert {p.dtype for p in module.parameters()} == {dtype}
    assert module.second.weight is module.first.weight
    assert torch.equal(module.scale, given.scale) and torch.equal(module.passing, given.passing)
    torch.testing.assert_close(
        torch.cat([p.reshape(-1) for p in module.parameters()]), x.to(dtype), rtol=0, atol=0
    )
    pixels = (DIGITS.test_images / 255).to(dtype)
    with torch.no_grad():
        right = (module(pixels).argmax(1) == DIGITS.test_labels).double().mean()
        assert float(right) == problem.metrics(x)["accuracy"]
        loss = nn.functional.cross_entropy(module(pixels), DIGITS.test_labels)
    assert float(loss) == pytest.approx(problem.metrics(x)["loss"], rel=1e-5)


def test_weights_come_back_as_a_state_dict():
    given = own()
    problem = Neural(given, DIGITS, PARTS)
    x = points(problem, 1)[0]
    state = problem.state_dict(x)
    assert list(state) == list(given.state_dict()) and "scale" in state and "passing" not in state
    assert len({v.data_ptr() for v in state.values()}) == len(state)
    assert not any(v.requires_grad for v in state.values())
    module = own()
    module.load_state_dict(state)
    assert all(torch.equal(v, state[name]) for name, v in problem.module(x).state_dict().items())
    assert torch.equal(module.first.weight, problem.module(x).first.weight)


def test_a_module_that_comes_back_is_the_callers():
    problem = Neural(own(), DIGITS, PARTS)
    x = problem.start()
    with torch.no_grad():
        for p in problem.module(x).train().parameters():
            p.zero_()
        for v in problem.state_dict(x).values():
            v.zero_()
    assert problem.metrics(x) == Neural(own(), DIGITS, PARTS).metrics(x)
    assert problem.module(x).head.weight.any()


def test_only_one_models_weights_make_a_module():
    problem = Neural(own(), DIGITS, PARTS)
    with pytest.raises(RuntimeError):
        problem.module(points(problem))
    with pytest.raises(
        ValueError, match=f"{problem.dim} numbers; got a vector of {problem.dim - 1}"
    ):
        problem.state_dict(problem.start()[1:])
