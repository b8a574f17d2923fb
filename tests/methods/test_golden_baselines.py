"""The other methods against their independent NumPy transcriptions, round by round."""

import pytest

import undrift.methods as um
from tests.methods.world import FED, FEW, ROUNDS, SEED, UNEVEN, X0, L, agree
from tests.reference import averaging, correction, fedspeed_acg, variance
from undrift.core.streams import Streams

LR = 0.1 / L
PARTIAL = {"steps": UNEVEN, "cohort": 3}
EVEN = {"steps": 4, "cohort": 3}
LOCAL = {"eta_l": LR, "steps": UNEVEN, "cohorts": FEW}
PICKS = [int(Streams(SEED).at("one", r).integers(FED.N)) for r in range(ROUNDS)]


def blocks(p):
    """FedPD's coin of every round of local work: true where it communicates."""
    flips = []
    for r in range(ROUNDS):
        flips += [False] * (int(Streams(SEED).at("coins", r).geometric(1 - p)) - 1) + [True]
    return flips


def renewals(p):
    """SVRP's coins, as seen by the transcription: after which rounds the anchor moves."""
    return [Streams(SEED).at("coins", r).random() < p for r in range(1, ROUNDS + 1)]


def fedopt(kind, **given):
    return lambda: kind(FED, X0, ROUNDS, eta_g=0.3, tau=0.01, **LOCAL, **given)


def fedspeed(**given):
    return lambda: fedspeed_acg.fedspeed(FED, X0, ROUNDS, **LOCAL, **given)


def fedadmm(**given):
    return lambda: correction.fedadmm(FED, X0, ROUNDS, rho=0.7, **LOCAL, **given)


def fedpd(p, **given):
    flips = blocks(p)
    return lambda: correction.fedpd(FED, X0, len(flips), steps=4, coins=flips, **given)


def mimemvr(**given):
    return lambda: variance.mimemvr(FED, X0, ROUNDS, eta=LR, a=0.4, steps=4, **given)


CASES = {
    "fedavgm": (
        um.FedAvgM(lr=LR, beta=0.6, server_lr=0.8),
        PARTIAL,
        lambda: averaging.fedavgm(FED, X0, ROUNDS, beta=0.6, eta_g=0.8, **LOCAL),
    ),
    "fedadam": (um.FedAdam(lr=LR, server_lr=0.3, tau=0.01), PARTIAL, fedopt(averaging.fedadam)),
    "fedyogi": (um.FedYogi(lr=LR, server_lr=0.3, tau=0.01), PARTIAL, fedopt(averaging.fedyogi)),
    "fedadagrad": (
        um.FedAdagrad(lr=LR, server_lr=0.3, tau=0.01),
        PARTIAL,
        fedopt(averaging.fedadagrad),
    ),
    "fedcm": (
        um.FedCM(lr=LR, alpha=0.3, server_lr=0.9),
        EVEN,
        lambda: averaging.fedcm(
            FED, X0, ROUNDS, eta_l=LR, alpha=0.3, steps=4, eta_g=0.9, cohorts=FEW
        ),
    ),
    "fedacg": (
        um.FedACG(lr=LR, lam=0.8, beta=0.3),
        PARTIAL,
        lambda: fedspeed_acg.fedacg(
            FED, X0, ROUNDS, eta=LR, lam=0.8, beta=0.3, steps=UNEVEN, cohorts=FEW
        ),
    ),
    "feddyn": (
        um.FedDyn(lr=LR, alpha=0.7),
        PARTIAL,
        lambda: correction.feddyn(FED, X0, ROUNDS, alpha=0.7, **LOCAL),
    ),
    "feddc": (
        um.FedDC(lr=LR, alpha=0.2),
        PARTIAL,
        lambda: correction.feddc(FED, X0, ROUNDS, alpha=0.2, **LOCAL),
    ),
    "fedadmm-active": (um.FedADMM(lr=LR, rho=0.7), PARTIAL, fedadmm(server="active")),
    "fedadmm-all": (um.FedADMM(lr=LR, rho=0.7, rule="all"), PARTIAL, fedadmm(server="all")),
    "fedadmm-delta": (
        um.FedADMM(lr=LR, rho=0.7, rule="delta", server_lr=0.5),
        PARTIAL,
        fedadmm(server="delta", eta_g=0.5),
    ),
    "fedpd": (um.FedPD(lr=LR, eta=1.2), {"steps": 4}, fedpd(0.0, eta=1.2, eta1=LR)),
    "fedpd-skip": (um.FedPD(lr=LR, eta=1.2, p=0.4), {"steps": 4}, fedpd(0.4, eta=1.2, eta1=LR)),
    "fedpd-server": (
        um.FedPD(lr=LR, eta=1.2, p=0.4, from_server=True),
        {"steps": 4},
        fedpd(0.4, eta=1.2, eta1=LR, start="server"),
    ),
    "fedpd-vr": (
        um.FedPDVR(eta=1.2, gamma=LR, p=0.4),
        {"steps": 4},
        fedpd(0.4, eta=1.2, gamma=LR, oracle="II"),
    ),
    "scaffold-m": (
        um.ScaffoldM(lr=LR, gamma=0.3 / L, beta=0.4),
        EVEN,
        lambda: correction.scaffold_m(
            FED, X0, ROUNDS, eta_l=LR, gamma=0.3 / L, beta=0.4, steps=4, cohorts=FEW
        ),
    ),
    "sonata": (
        um.SONATA(beta=1.5, alpha=0.6),
        {},
        lambda: variance.sonata(FED, X0, ROUNDS, beta=1.5, alpha=0.6),
    ),
    "inexact-dane": (
        um.InexactDANE(lam=1.5, lr=0.05, stop=False),
        {"steps": 4},
        lambda: variance.inexact_dane(FED, X0, ROUNDS, lam=1.5, eta=0.05, steps=4),
    ),
    "mime": (
        um.Mime(lr=LR, beta=0.7, server_lr=0.9),
        PARTIAL,
        lambda: variance.mime(
            FED, X0, ROUNDS, eta=LR, beta=0.7, eta_g=0.9, steps=UNEVEN, cohorts=FEW
        ),
    ),
    "mimelite": (
        um.MimeLite(lr=LR, beta=0.7, server_lr=0.9),
        PARTIAL,
        lambda: variance.mimelite(
            FED, X0, ROUNDS, eta=LR, beta=0.7, eta_g=0.9, steps=UNEVEN, cohorts=FEW
        ),
    ),
    "mimemvr": (um.MimeMVR(lr=LR, a=0.4), {"steps": 4}, mimemvr()),
    "mimemvr-fresh": (um.MimeMVR(lr=LR, a=0.4, fresh=True), {"steps": 4}, mimemvr(refresh="fresh")),
    "mimemvr-lite": (um.MimeMVR(lr=LR, a=0.4, lite=True), {"steps": 4}, mimemvr(lite=True)),
    "ce-lgd": (
        um.CELGD(lr=LR, beta=0.6),
        {"steps": 4},
        lambda: variance.ce_lgd(FED, X0, ROUNDS, eta=LR, beta=0.6, steps=4, picks=PICKS),
    ),
    "svrp": (
        um.SVRP(eta=0.2, p=0.4),
        {},
        lambda: variance.svrp(FED, X0, ROUNDS, eta=0.2, picks=PICKS, coins=renewals(0.4)),
    ),
}
for normalise in (True, False):
    for dual in ("active", "all"):
        CASES[f"fedspeed-{normalise}-{dual}"] = (
            um.FedSpeed(lr=LR, lam=1.5, rho=0.05, alpha=0.8, normalise=normalise, server_dual=dual),
            PARTIAL,
            fedspeed(lam=1.5, rho=0.05, alpha=0.8, normalise=normalise, server_dual=dual),
        )
CASES |= {
    "table-7-none": (
        um.FedSpeed(lr=LR, prox=False, correct=False, perturb=False),
        PARTIAL,
        lambda: averaging.fedavg(FED, X0, ROUNDS, **LOCAL),
    ),
    "table-7-prox": (
        um.FedSpeed(lr=LR, lam=1.5, correct=False, perturb=False),
        PARTIAL,
        fedspeed(lam=1.5, correction=False),
    ),
    "table-7-prox-correct": (
        um.FedSpeed(lr=LR, lam=1.5, perturb=False),
        PARTIAL,
        fedspeed(lam=1.5),
    ),
    "table-7-prox-perturb": (
        um.FedSpeed(lr=LR, lam=1.5, rho=0.1, correct=False),
        PARTIAL,
        fedspeed(lam=1.5, rho=0.1, correction=False, normalise=True),
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_points_are_those_of_the_transcription(name):
    method, setting, transcription = CASES[name]
    agree(method, setting, transcription())
