import numpy as np
import torch
from benchmarks.feddc import FedDCOfAll

from undrift.engines import Simulate
from undrift.methods import FedDC
from undrift.problems import Quadratic


def test_it_trains_as_feddc_does_and_keeps_the_mean_of_the_clients_latest_models():
    rng = np.random.default_rng(0)
    problem = Quadratic(rng.uniform(0.5, 3.0, (4, 5)), rng.standard_normal((4, 5)))
    x0 = torch.ones(5, dtype=torch.float64)
    one, other = (
        Simulate(kind(lr=0.02, alpha=0.1), problem, steps=3, cohort=2, x0=x0)
        for kind in (FedDC, FedDCOfAll)
    )
    latest = x0.repeat(4, 1)
    for _ in range(9):
        one.run_round()
        other.run_round()
        latest[one.site.enders] = one.ends
        s = other.server
        assert torch.equal(s.x, one.x)
        assert torch.allclose(s.mean, latest.mean(0), rtol=0, atol=1e-14)
        assert torch.allclose(s.x - s.h, one.ends.mean(0), rtol=0, atol=1e-14)
    assert not torch.allclose(s.mean, s.x, atol=1e-3)
