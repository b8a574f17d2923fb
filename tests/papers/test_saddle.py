"""FedSpeed's ascent step near a saddle: where |g| < rho c the perturbed gradient leads back along a
curvature of -c.

For f = x^T H x / 2 it is Hx + rho H^2 x / |Hx|: along an eigenvalue of -c, (1 - rho c / |g|) times
the plain one.
"""

import pytest
import torch

from undrift.engines import Simulate
from undrift.methods import FedSpeed
from undrift.problems import Quadratic

CURVES, C = (1.0, 0.2, -0.5), 0.5
SADDLE = Quadratic(
    [torch.diag(torch.tensor(CURVES, dtype=torch.float64)).tolist()] * 2, [[0.0] * 3] * 2
)


def after(x0, rho, *, rounds=1, steps=1, perturb=True):
    machine = Simulate(
        FedSpeed(lr=0.1, lam=10.0, rho=rho, perturb=perturb), SADDLE, steps=steps, x0=x0
    )
    for _ in range(rounds):
        machine.run_round()
    return machine.x


@pytest.mark.parametrize("rho", [0.02, 0.1])
def test_which_way_one_step_goes(rho):
    draw = torch.Generator().manual_seed(0)
    ways = []
    for _ in range(100):
        x = 2 * rho * torch.rand(3, dtype=torch.float64, generator=draw)
        back = float((torch.tensor(CURVES) * x).norm()) < rho * C
        assert (float(after(x, rho)[2]) < float(x[2])) == back
        assert float(after(x, rho, perturb=False)[2]) > float(x[2])
        ways.append(back)
    assert 5 < sum(ways) < 95


@pytest.mark.parametrize("rho", [0.02, 0.1])
@pytest.mark.parametrize("part", [0.3, 0.9, 1.1, 3.0])
def test_on_its_axis_a_saddle_holds_what_is_within_rho(rho, part):
    x0 = torch.tensor([0.0, 0.0, part * rho], dtype=torch.float64)
    end = float(after(x0, rho, rounds=30, steps=5)[2])
    assert abs(end) < rho if part < 1 else end > 10 * rho
    assert float(after(x0, rho, rounds=30, steps=5, perturb=False)[2]) > 10 * rho
