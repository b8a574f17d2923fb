"""The papers' methods and first baselines against NumPy transcriptions, round by round."""

import numpy as np
import pytest
import torch

import undrift.methods as um
from tests.methods.world import (
    FED,
    FEW,
    FLIPS,
    ROUNDS,
    SEED,
    UNEVEN,
    X0,
    L,
    P,
    agree,
    points,
    problem_of,
)
from tests.reference import averaging, correction, papers
from undrift.core.streams import Streams
from undrift.engines import Simulate

CASES = {
    "gd": (um.GD(lr=1 / L), {}, lambda: averaging.gd(FED, X0, ROUNDS, eta=1 / L)),
    "fedavg": (
        um.FedAvg(lr=0.1 / L, server_lr=0.7),
        {"steps": UNEVEN, "cohort": 3},
        lambda: averaging.fedavg(
            FED, X0, ROUNDS, eta_l=0.1 / L, steps=UNEVEN, eta_g=0.7, cohorts=FEW
        ),
    ),
    "fedprox": (
        um.FedProx(lr=0.1 / L, mu=0.8),
        {"steps": UNEVEN, "cohort": 3},
        lambda: averaging.fedprox(
            FED, X0, ROUNDS, eta_l=0.1 / L, mu=0.8, steps=UNEVEN, cohorts=FEW
        ),
    ),
    "scaffold": (
        um.Scaffold(lr=0.1 / L, server_lr=0.9),
        {"steps": UNEVEN, "cohort": 3},
        lambda: correction.scaffold(
            FED, X0, ROUNDS, eta_l=0.1 / L, steps=UNEVEN, eta_g=0.9, cohorts=FEW
        ),
    ),
    "scaffold-I": (
        um.Scaffold(lr=0.1 / L, option="I"),
        {"steps": 4, "cohort": 3},
        lambda: correction.scaffold(
            FED, X0, ROUNDS, eta_l=0.1 / L, steps=4, option="I", cohorts=FEW
        ),
    ),
    "fedlin": (
        um.FedLin(lr=0.2 / L),
        {"steps": UNEVEN},
        lambda: correction.fedlin(FED, X0, ROUNDS, eta=0.2 / L, tau=UNEVEN),
    ),
    "fedlin-topk": (
        um.FedLinTopK(lr=0.05 / L, k_server=2, k_client=3),
        {"steps": 4},
        lambda: correction.fedlin(FED, X0, ROUNDS, eta=0.05 / L, tau=4, k_server=2, k_client=3),
    ),
    "fedtrack": (
        um.FedTrack(lr=0.2 / L),
        {"steps": 4},
        lambda: correction.fedtrack(FED, X0, ROUNDS, eta=0.2 / L, tau=4),
    ),
    "scaffnew": (
        um.Scaffnew(lr=1 / L, p=P),
        {},
        lambda: correction.scaffnew(FED, X0, FLIPS, gamma=1 / L, p=P),
    ),
    "dane": (um.DANE(lam=1.5), {}, lambda: papers.dane(FED, X0, ROUNDS, lam=1.5)),
    "dane+": (
        um.DANEPlus(lam=2.0, lr=1 / (L + 2), mu=0.5),
        {"steps": 60},
        lambda: papers.dane_plus(FED, X0, ROUNDS, lam=2.0, smoothness=L, mu=0.5, max_steps=60),
    ),
    "dane+-fixed": (
        um.DANEPlus(lam=2.0, lr=1 / (L + 2), stop=False),
        {"steps": 4},
        lambda: papers.dane_plus(FED, X0, ROUNDS, lam=2.0, smoothness=L, steps=4),
    ),
    "dane+-fgd-fixed": (
        um.DANEPlus(lam=2.0, lr=1 / (L + 2), mu=0.5, solver="fgd", stop=False),
        {"steps": 4},
        lambda: papers.dane_plus(
            FED, X0, ROUNDS, lam=2.0, smoothness=L, mu=0.5, solver="fgd", steps=4
        ),
    ),
    "dane+-rand": (
        um.DANEPlus(lam=2.0, lr=1 / (L + 2), average="rand"),
        {"steps": 60},
        lambda: papers.dane_plus(
            FED, X0, ROUNDS, lam=2.0, smoothness=L, max_steps=60, average="rand",
            picks=[int(Streams(SEED).at("one", r).integers(FED.N)) for r in range(ROUNDS)],
        ),
    ),
    "dane+-dual": (
        um.DANEPlusDual(lam=2.0, m=1.5, lr=1 / (L + 2)),
        {"steps": 60},
        lambda: papers.dane_plus(
            FED, X0, ROUNDS, lam=2.0, smoothness=L, max_steps=60, control="dual", m=1.5
        ),
    ),
    "dane+-dual-exact": (
        um.DANEPlusDual(lam=2.0, m=1.5, lr=1.0, solver="exact"),
        {},
        lambda: papers.dane_plus(FED, X0, ROUNDS, lam=2.0, solver="exact", control="dual", m=1.5),
    ),
}  # fmt: skip
for solver, transcription in (("gd", papers.fedred_gd), ("exact", papers.fedred)):
    for reset in (False, True):
        CASES[f"fedred-{solver}-{reset}"] = (
            um.FedRed(eta=L, lam=1.3, p=P, solver=solver, reset_local=reset),
            {},
            lambda t=transcription, r=reset: t(FED, X0, FLIPS, eta=L, lam=1.3, reset_local=r),
        )
        CASES[f"fedred-dual-{solver}-{reset}"] = (
            um.FedRedDual(eta=L, lam=1.3, p=P, m=0.9, solver=solver, reset_local=reset),
            {},
            lambda t=transcription, r=reset: t(
                FED, X0, FLIPS, eta=L, lam=1.3, control="dual", m=0.9, reset_local=r
            ),
        )
CASES["fedred-rand"] = (
    um.FedRed(eta=L, lam=1.3, p=P, average="rand"),
    {},
    lambda: papers.fedred_gd(
        FED, X0, FLIPS, eta=L, lam=1.3, average="rand",
        picks=[int(Streams(SEED).at("pick", r, step=1).integers(FED.N)) for r in range(ROUNDS)],
    ),
)  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_points_are_those_of_the_transcription(name):
    method, setting, transcription = CASES[name]
    agree(method, setting, transcription())


@pytest.mark.parametrize("tau", [1, 2, 3, 5, 10])
def test_fedrecu_is_algorithm_1(tau):
    alpha = 8 / (13 * tau * L)
    x_minus2 = np.random.default_rng(4).normal(size=(FED.N, FED.d))
    expected = papers.fedrecu(FED, None, ROUNDS, alpha=alpha, tau=tau, x_minus2=x_minus2)
    got = points(um.FedRecu(lr=alpha), FED, expected[0], ROUNDS, steps=tau)
    np.testing.assert_allclose(got, expected, rtol=0, atol=1e-12)


@pytest.mark.parametrize("tau", [1, 2, 3, 5])
def test_fedcet_is_algorithm_2(tau):
    """x0 is the paper's x(-2): the first round ends at t = -1, after two steps."""
    alpha = 0.2 / (tau * L)
    c = 0.5 / (tau * alpha)
    expected = papers.fedcet(FED, X0, ROUNDS, alpha=alpha, c=c, tau=tau)
    got = points(um.FedCET(lr=alpha, c=c), FED, X0, ROUNDS + 1, steps=tau)
    np.testing.assert_allclose(got[1:], expected, rtol=0, atol=1e-11)


def gradients(x):
    return np.stack([FED.grad(i, x[i]) for i in range(FED.N)])


@pytest.mark.parametrize("tau", [1, 2, 3, 5])
def test_extra_is_its_two_step_recursion(tau):
    """A round ends with X(t), t + 1 a multiple of tau; with tau = 1 the first mean, that of X(0),
    is left out.

    The server stands for the mean of 2 X(t) - X(t-1), which is that of X(t+1) but for the change of
    the gradients.
    """
    alpha, rounds, trace = 0.1 / L, 8, []
    expected = correction.extra_local(FED, X0, rounds + 1, alpha=alpha, tau=tau, trace=trace)
    path = [np.tile(X0, (FED.N, 1)), *(row["x"] for row in trace)]
    engine = Simulate(um.EXTRA(lr=alpha), problem_of(FED), steps=tau, x0=torch.as_tensor(X0))
    for k in range(1, rounds + 1):
        engine.run_round()
        t = k * tau - (tau > 1)
        assert engine.ledger.iterations == t
        np.testing.assert_allclose(engine.clients.x.numpy(), path[t], rtol=0, atol=1e-11)
        np.testing.assert_allclose(
            engine.x.numpy(), (2 * path[t] - path[t - 1]).mean(0), rtol=0, atol=1e-11
        )
        change = alpha * (gradients(path[t]) - gradients(path[t - 1])).mean(0)
        np.testing.assert_allclose(
            engine.x.numpy() - change, expected[k + (tau == 1)], rtol=0, atol=1e-11
        )


def test_fast_gradient_descent_of_daneplus():
    """Constant-momentum Nesterov steps; the rule is tested at the extrapolated point."""
    lam, mu = 2.0, 0.7
    lr, q = 1 / (L + lam), np.sqrt((mu + lam) / (L + lam))
    got = points(um.DANEPlus(lam=lam, lr=lr, mu=mu, solver="fgd"), FED, X0, 6, steps=80)
    x = X0
    for r in range(6):
        g = [FED.grad(i, x) for i in range(FED.N)]
        ends = []
        for i in range(FED.N):

            def grad_f(y, i=i, x=x, g=g):
                return FED.grad(i, y) - (g[i] - sum(g) / FED.N) + lam * (y - x)

            y = v = x
            for _ in range(80):
                y_new = v - lr * grad_f(v)
                v = y_new + (1 - q) / (1 + q) * (y_new - y)
                y = y_new
                bound = lam * (mu + lam) / (8 * (r + 1) * (r + 2)) * np.sum((v - x) ** 2)
                if np.sum(grad_f(v) ** 2) <= bound:
                    break
            ends.append(v)
        x = sum(ends) / FED.N
        np.testing.assert_allclose(got[r + 1], x, rtol=0, atol=1e-11)
