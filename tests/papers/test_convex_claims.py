"""The convex experiments of the papers, at the numbers their authors' codes stored."""

import numpy as np
import pytest

import undrift as ud
from undrift.problems import build
from undrift.theory import fedcet


def frobenius_L(problem):
    """max_i |A_i'A_i|_F, the smoothness constant that FedRecu's authors used."""
    return max(np.linalg.norm(problem.hessian(i)) for i in range(problem.clients))


def test_fedrecu_least_squares():
    """Figure 14's setting from x = 0 with tau = 4."""
    problem = build("least-squares", seed=0)
    lr = 8 / (13 * 4 * frobenius_L(problem))
    gaps = ud.run(ud.FedRecu(lr=lr), problem, rounds=160, steps=4).history["gap"]
    np.testing.assert_allclose(gaps[[10, 50, 160]], [1.2e-2, 2.8e-3, 5.8e-5], rtol=0.1)


def test_fedrecu_progress_hardly_depends_on_tau():
    problem = build("least-squares", seed=0)
    ends = [
        ud.run(
            ud.FedRecu(lr=8 / (13 * tau * frobenius_L(problem))), problem, rounds=100, steps=tau
        ).history["gap"][-1]
        for tau in (4, 8, 12, 16)
    ]
    assert max(ends) < 1.3 * min(ends)


@pytest.mark.parametrize(("mu", "L", "factor"), [(2, 1.5, 0.6435), (4, 4, 0.886)])
def test_fedcet_figure_1(mu, L, factor):
    """The published curve has the constants of the authors' code, mu = L = 4 the problem's own."""
    lr = fedcet.search(mu, L, 2)
    method = ud.FedCET(lr=lr, c=fedcet.weight(mu, lr))
    distance = ud.run(method, build("fedcet", hessians="equal"), rounds=30, steps=2).history[
        "distance"
    ]
    np.testing.assert_allclose(distance[2:25] / distance[1:24], factor, atol=5e-4)


@pytest.mark.covering(1)
@pytest.mark.parametrize(
    ("kind", "accuracy"), [("strong", 1e-6), ("convex", 1e-5), ("nonconvex", 1e-4)]
)
def test_fedred_figure_1(kind, accuracy):
    """d = 1000, eta = L and GD's step 1/L: about 20 times fewer communications, gradients within
    1.5 times GD's.

    The paper prints neither lambda nor the accuracy. lambda = p eta at p = 0.05 saves 9 to 17 times
    only; lambda = 1
    and p = 0.035 were picked from about twenty pairs, and are below what the theory asks for.
    """
    problem = build("fedred", kind=kind)
    L, delta, mu = problem.constants.L, problem.constants.delta_A, max(problem.constants.mu, 0.0)
    small = accuracy * problem.metrics(problem.start())["grad_norm"]

    def cost(method, seed=0, steps=1):
        run = ud.run(
            method,
            problem,
            rounds=5000,
            steps=steps,
            seed=seed,
            callbacks=ud.EarlyStopping(metric="grad_norm", target=small),
        )
        assert run.status == "reached"
        return run.history.last["round"], run.history.last["gradients"]

    rounds, gradients = cost(ud.GD(lr=1 / L))
    red = np.mean([cost(ud.FedRed(eta=L, lam=1.0, p=0.035), seed) for seed in range(3)], axis=0)
    assert rounds / red[0] > 18
    assert red[1] / gradients < 1.5
    dane = cost(ud.DANEPlus(lam=delta, lr=1 / (L + delta), mu=mu), steps=2000)
    assert rounds / dane[0] > 20
