"""Rates as slopes: rounds to an accuracy on instances of known L, mu and delta, as in Table 1.

Hessians are diagonal. A quarter of the coordinates has curvature mu for every client; the others
lie between mu + delta and L - delta, plus delta for one half of the clients and minus delta for the
other: L, mu, delta_A = delta_B = delta are exact. (Where the mean of convex functions is as flat as
mu, all of them are, so nothing can differ there.)
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Sequence
from statistics import linear_regression
from typing import TYPE_CHECKING, Any, NamedTuple

from undrift import DANE, GD, SONATA, SVRP, DANEPlus, FedDyn, FedRed, Scaffnew, Scaffold
from undrift.core.method import Method
from undrift.core.params import THEORY
from undrift.core.stopping import EarlyStopping
from undrift.methods._shared import AnchorGradient
from undrift.report.table import Table

if TYPE_CHECKING:
    from undrift.core.problem import Problem

CLIENTS, DIM, ACCURACY, SEEDS, MU = 10, 20, 1e-3, 3, 1.0


@dataclasses.dataclass(frozen=True)
class RateSweep:
    """Instances along which one constant grows."""

    axis: str
    L: Sequence[float]
    delta: Sequence[float]

    @property
    def instances(self) -> list[tuple[float, float]]:
        return [(L, delta) for L in self.L for delta in self.delta]

    def place(self, L: float, delta: float) -> float:
        return L if len(self.L) > 1 else delta


SWEEPS = (
    RateSweep("L/μ", (25.0, 50.0, 100.0, 200.0, 400.0), (5.0,)),
    RateSweep("δ/μ", (400.0,), (5.0, 10.0, 20.0, 40.0)),
)


@dataclasses.dataclass(frozen=True)
class Rate:
    """A method with its setting for (L, delta), and the table's exponents along each sweep."""

    label: str
    make: Callable[[float, float], Method]
    rounds: tuple[float, float]
    steps: tuple[float, float] | None = None
    most: int = 1
    """Local steps at most."""
    drawn: bool = False
    """Whether coins are thrown; if so, the mean over seeds counts."""
    every: int = 1
    """Rounds between two measurements."""


T: Any = THEORY
P = 1 / CLIENTS
RATES = (
    Rate("GD", lambda L, d: GD(lr=1 / L), (1, 0)),
    Rate("Scaffold", lambda L, d: Scaffold(lr=T), (1, 0), most=2, every=10),
    Rate("FedDyn", lambda L, d: FedDyn(lr=1 / (2 * L), alpha=L), (1, 0), most=30),
    Rate("Scaffnew", lambda L, d: Scaffnew(lr=T, p=T), (0.5, 0), (0.5, 0), drawn=True),
    Rate("SONATA", lambda L, d: SONATA(beta=d), (0, 1)),
    Rate("SVRP", lambda L, d: SVRP(eta=MU / (2 * d * d), p=P), (0, 2), drawn=True, every=5),
    Rate("DANE", lambda L, d: DANE(lam=T), (0, 1)),
    Rate("DANE+-GD", lambda L, d: DANEPlus(lam=T, lr=T, mu=T), (0, 1), (1, -1), most=5000),
    Rate("FedRed-GD", lambda L, d: FedRed(eta=T, lam=T, p=T), (0, 1), (1, -1), drawn=True),
)
TOLERANCE = 0.1
"""Of an exponent."""

Found = dict[str, dict[str, list[list[float]]]]
"""Axis -> label -> points (place, rounds, local steps of a round)."""


class Exponents(NamedTuple):
    """By label: the table's exponents along a sweep, and ours if enough points were measured."""

    what: str
    """``rounds`` or ``steps``."""
    table: dict[str, float]
    ours: dict[str, float | None]


def settings() -> str:
    """All that decides what is measured."""
    rows = [(r.label, r.most, r.drawn, r.every, r.make(100.0, 10.0)) for r in RATES]
    return repr((CLIENTS, DIM, MU, ACCURACY, SEEDS, SWEEPS, rows))


def instance(L: float, delta: float) -> Problem:
    import numpy as np

    from undrift.problems.quadratic import Quadratic

    rng = np.random.default_rng(0)
    flat = DIM // 4
    sign = np.sign(rng.standard_normal((CLIENTS // 2, DIM)))
    sign[:, :flat] = 0
    curvature = np.concatenate([np.full(flat, MU), np.linspace(MU + delta, L - delta, DIM - flat)])
    return Quadratic.centred(
        curvature + delta * np.concatenate([sign, -sign]), rng.standard_normal((CLIENTS, DIM))
    )


def measure(say: Callable[[str], None]) -> Found:
    """Run every method on every instance."""
    from undrift.runs.prepare import Setup, threads

    at: dict[tuple[float, float], dict[str, tuple[float, float]]] = {}
    for L, delta in dict.fromkeys(point for sweep in SWEEPS for point in sweep.instances):
        problem = instance(L, delta)
        with threads(problem, Setup()):
            at[L, delta] = {rate.label: reach(rate, problem, L, delta) for rate in RATES}
        say(f"rates: L = {L:g}, delta = {delta:g}, mu = {MU:g} done")
    return {
        sweep.axis: {
            rate.label: [[sweep.place(*point), *at[point][rate.label]] for point in sweep.instances]
            for rate in RATES
        }
        for sweep in SWEEPS
    }


def reach(rate: Rate, problem: Problem, L: float, delta: float) -> tuple[float, float]:
    """Rounds until the distance is ``ACCURACY`` of the first, and local steps in each."""
    from undrift.runs.api import run

    close = ACCURACY * problem.metrics(problem.start())["distance"]
    anchors = isinstance(rate.make(L, delta), AnchorGradient)
    rounds, steps, seeds = 0.0, 0.0, SEEDS if rate.drawn else 1
    for seed in range(seeds):
        done = run(
            rate.make(L, delta),
            problem,
            rounds=10**6,
            steps=rate.most,
            seed=seed,
            every=rate.every,
            callbacks=EarlyStopping(metric="distance", target=close),
        )
        if done.status != "reached":
            raise RuntimeError(
                f"{rate.label} did not get there for L = {L:g}, delta = {delta:g}: {done.status}"
            )
        rounds += done.history.last["round"]
        steps += done.history.last["gradients"] / CLIENTS - anchors * done.history.last["round"]
    return rounds / seeds, steps / rounds


def slope(points: Sequence[tuple[float, float]]) -> float | None:
    """The power: least squares of the logarithms; ``None`` for fewer than three points.

    >>> slope([(1.0, 5.0), (2.0, 10.0), (4.0, 20.0)])
    1.0
    """
    if len(points) < 3 or any(y <= 0 for _, y in points):
        return None
    xs, ys = [math.log(x) for x, _ in points], [math.log(y) for _, y in points]
    return linear_regression(xs, ys).slope


def exponents(found: Found) -> list[list[Exponents]]:
    """For each sweep, those of rounds and of local steps."""
    places = list(enumerate(WORDS, 1))
    return [
        [_exponents(found, k, what, place) for place, what in places] for k in range(len(SWEEPS))
    ]


def _exponents(found: Found, k: int, what: str, place: int) -> Exponents:
    points = found[SWEEPS[k].axis]
    table = {rate.label: powers[k] for rate in RATES if (powers := getattr(rate, what))}
    ours = {label: slope([(p[0], p[place]) for p in points[label]]) for label in table}
    return Exponents(what, table, ours)


def text(found: Found) -> list[str]:
    """For the page: rounds, and exponents."""
    lines = ["## Measured: rounds as L and δ grow", "", *(f"* {note}" for note in NOTES), ""]
    for sweep, along in zip(SWEEPS, exponents(found), strict=True):
        points = found[sweep.axis]
        head = ["method", *(f"{sweep.axis} = {p[0]:g}" for p in points[RATES[0].label])]
        for each in along:
            head += [f"exponent of {WORDS[each.what]}: table", "ours", "difference"]
        rows = []
        for rate in RATES:
            row = [rate.label, *(f"{p[1]:.0f}" for p in points[rate.label])]
            for each in along:
                row += _cells(each.table.get(rate.label), each.ours.get(rate.label))
            rows.append(row)
        title = f"Rounds, and how they grow with {sweep.axis}:"
        lines += [title, "", Table(head, rows).markdown(), ""]
    return lines


def _cells(table: float | None, ours: float | None) -> list[str]:
    if table is None:
        return ["", "", ""]
    if ours is None:
        return [f"{table:g}", "", ""]
    return [f"{table:g}", f"{ours:.2f}", f"{ours - table:+.2f}"]


WORDS = {"rounds": "rounds", "steps": "local steps a round"}
NOTES = (
    f"Quadratics of {CLIENTS} clients and {DIM} coordinates with μ = {MU:g} and exact "
    f"δ_A = δ_B = δ; rounds until the distance to the minimiser is {ACCURACY:g} of the first, the "
    f"mean of {SEEDS} seeds where coins are thrown. The exponent is the slope of a least-squares "
    "line through the logarithms.",
    "Hyper-parameters are theory's. It prescribes none for FedDyn (α = L, 30 local steps of "
    "1/(2L)), SONATA (β = δ) and SVRP (η = μ/(2δ²), p = 1/n). Scaffold has 2 local steps of "
    "1/(81·2 L).",
    f"An exponent agrees within {TOLERANCE:g}.",
    "Not shown: the convex and nonconvex columns. They bound the slowest of all functions; a "
    "quadratic with a minimiser converges linearly, so 1/ε is not visible on any one of them. "
    "InexactDANE has no prescribed setting, MimeMVR and CE-LGD have nonconvex rates only.",
)
