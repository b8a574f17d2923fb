"""FedSpeed's ascent step near a saddle: within rho of it the perturbed gradient points back to it.

On -c/2 x^2 it is taken at x - rho sign(x), where it is c (rho - |x|) sign(x).
"""

import pytest
import torch

from undrift.engines import Simulate
from undrift.methods import FedSpeed
from undrift.problems import Quadratic


@pytest.mark.parametrize("rho", [0.02, 0.05, 0.1])
@pytest.mark.parametrize("part", [0.3, 0.9, 1.1, 3.0])
def test_a_saddle_holds_what_is_within_rho(rho, part):
    saddle = Quadratic([[[1.0, 0.0], [0.0, -0.5]]] * 2, [[0.0, 0.0]] * 2)

    def end(perturb):
        x0 = torch.tensor([0.0, part * rho], dtype=torch.float64)
        machine = Simulate(FedSpeed(lr=0.1, lam=10.0, rho=rho, perturb=perturb), saddle, steps=5, x0=x0)
        for _ in range(30):
            machine.run_round()
        return float(machine.x[1])

    assert abs(end(perturb=True)) < rho if part < 1 else end(perturb=True) > 10 * rho
    assert end(perturb=False) > 10 * rho
