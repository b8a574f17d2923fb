"""Numbers that float64 has and float32 does not."""

import numpy as np
import pytest
import torch
from torch import nn

import undrift as ud
from undrift.core.params import BadParameters

HUGE = 1e39
FLOAT32 = torch.float32, torch.device("cpu")


def with_huge(*shape, at):
    values = np.random.default_rng(0).normal(size=shape)
    values[at] = HUGE
    return values


def regression():
    return ud.problems.LeastSquares(with_huge(2, 5, 3, at=(1, 4, 2)), np.ones((2, 5)))


def classes(kind):
    signs = np.array([1.0, -1.0] * 5) if kind is ud.problems.Logistic else np.arange(10) % 2
    return kind(with_huge(10, 3, at=(7, 2)), signs, [np.arange(5), np.arange(5, 10)])


@pytest.mark.parametrize(
    ("problem", "place"),
    [
        (regression, "A"),
        (lambda: ud.problems.LeastSquares(np.ones((2, 2, 3)), with_huge(2, 2, at=(0, 1))), "b"),
        (lambda: ud.problems.Quadratic(with_huge(2, 3, at=(0, 0)) ** 2, np.ones((2, 3))), "A"),
        (lambda: classes(ud.problems.Logistic), "features"),
        (lambda: classes(ud.problems.Softmax), "features"),
    ],
)
def test_a_convex_problem_refuses_them_in_float32_alone(problem, place):
    made = problem()
    with pytest.raises(ValueError) as caught:
        made.to(*FLOAT32)
    assert str(caught.value).startswith(f"{place} in float32")
    assert made.to(torch.float64, torch.device("cpu")).dtype == torch.float64


def neural(inputs, targets, **more):
    return ud.Neural(nn.Linear(3, 1), (inputs, targets), loss=nn.MSELoss(), **more)


PARTS = [[0, 2], [1, 3]]


@pytest.mark.parametrize("field", ["inputs", "targets"])
def test_a_network_refuses_them_as_it_is_run(field):
    data = {"inputs": np.ones((4, 3)), "targets": np.ones((4, 1))}
    data[field][3, 0] = -HUGE
    problem = neural(**data, parts=PARTS)
    with pytest.raises(BadParameters) as caught:
        ud.run(ud.FedAvg(lr=0.1), problem, rounds=1)
    assert [*caught.value.problems] == ["train"]
    said = f"sample 3 of train (client 1): its {field} are not finite in float32"
    assert said in caught.value.problems["train"]
    assert ud.run(ud.FedAvg(lr=1e-90), problem, rounds=1, dtype="float64").status
