"""FedRecu, Tables 1 and 2: memory and communication; step sizes, rates and gradients."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from fractions import Fraction

import undrift.methods  # noqa: F401, fills the registry
from undrift.core.costs import costs, placeholder
from undrift.core.method import registry
from undrift.core.params import THEORY
from undrift.core.problem import Constants
from undrift.theory import prescribe, steps
from undrift_papers import theorems
from undrift_papers.fedrecu.memory import vectors_held
from undrift_papers.quoted import QuotedRow, QuotedTable, cell

# FedRecu, Table 1

RUNNING = "the printed extra vector is a running average of iterates, which undrift does not store"
MEMORY = (
    # algorithm, method, memory (strongly convex / convex / nonconvex), sent per tau local steps
    # (tau >= 2 / tau = 1)
    ("FedRecu (this work)", "FedRecu", "2 / 2 / 3", "2 / 1",
     "the printed count leaves out the stored gradient of the previous point, which exact "
     "gradients could recompute and mini-batches could not; its nonconvex 3 adds a running "
     "average"),
    ("FedLin (Mitra et al. 2021b)", "FedLin", "3 / 4 / 4", "2 / 2", RUNNING),
    ("SCAFFOLD (Karimireddy et al. 2020)", "Scaffold", "4 / 5 / 5", "2 / 2", RUNNING),
    ("FedTrack (Mitra et al. 2021a)", "FedTrack", "3 / - / 4", "2 / 2", RUNNING),
    ("Huang et al. 2023", "", "- / - / 4", "2 / 2", ""),
    ("Huang et al. 2024", "", "- / - / 5", "2 / 2", ""),
    ("Sun & Wei 2022", "", "4 / - / -", "2 / 2", ""),
)  # fmt: skip


def fedrecu_memory() -> QuotedTable:
    def rows() -> Iterator[QuotedRow]:
        for algorithm, name, memory, sent, why in MEMORY:
            held = ups = source = ""
            if name:
                method, source = placeholder(registry[name]), f"{name}.work, costs({name})"
                held = " / ".join(
                    n if n == "-" else str(vectors_held(method)) for n in memory.split(" / ")
                )
                ups = f"{costs(method, steps=2).up} / {costs(method, steps=1).up}"
            yield QuotedRow((algorithm,), (cell(memory, held), cell(sent, ups)), source, why)

    kept = ", ".join(
        f"{name} {costs(placeholder(registry[name])).client}" for _, name, *_ in MEMORY if name
    )
    return QuotedTable(
        title="FedRecu, Table 1: memory of a client and communication, in vectors of model size",
        names=("algorithm",),
        values=("memory SC / C / NC", "sent per round τ ≥ 2 / τ = 1"),
        rows=tuple(rows()),
        notes=(
            "Ours is what a local step needs at hand: the local point and whatever the step, or "
            "the lines after the last step, still read. It does not depend on convexity.",
            "With its gradient counted, FedRecu holds what FedLin holds; the two also send the "
            "same, and are the same recursion (tests/methods). The saving is one vector, where "
            "gradients are exact and computed twice.",
            f"From round to round a client keeps less: {kept} (`costs().client`).",
        ),
    )


# FedRecu, Table 2

STRICT = "the theorem excludes the limit, where its bound is infinite"
FLOOR = (
    "at a constant step the bound keeps a floor proportional to σ², which α = O(1/√K) removes "
    "(Remark 7)"
)
SWAPPED = "SG and EG are swapped in print: Theorem"
STEPS = (
    # assumption, algorithm, method, step, rate, gradients
    ("convex", "FedRecu (this work)", "FedRecu", "8/(13τL)", "o(1/K)", "EG", ""),
    ("convex", "FedRecu (this work)", "FedRecu", "1/(6τL)", "O(1/K)", "SG", f"{STRICT}; {FLOOR}"),
    ("convex", "FedLin (Mitra et al. 2021b)", "FedLin", "1/(10τL)", "O(1/K)", "EG", ""),
    ("convex", "SCAFFOLD (Karimireddy et al. 2020)", "Scaffold", "1/(81τL)", "O(1/K)", "SG", ""),
    ("convex", "Mukherjee et al. 2023", "", "1/(20τL)", "O(1/K)", "SG", ""),
    ("convex", "Khaled et al. 2020", "", "1/(10τL)", "O(1/K)", "SG", ""),
    ("convex", "Qu et al. 2021", "", "O(1/√K)", "O(1/√K)", "SG", ""),
    ("nonconvex", "FedRecu (this work)", "FedRecu", "8/(17τL)", "O(1/K)", "SG",
     f"{SWAPPED} 2, exact gradients, has this step"),
    ("nonconvex", "FedRecu (this work)", "FedRecu", "1/(13τL)", "O(1/K)", "EG",
     f"{SWAPPED} 4, stochastic gradients, has this step; {STRICT}; {FLOOR}"),
    ("nonconvex", "FedLin (Mitra et al. 2021b)", "FedLin", "1/(26τL)", "O(1/K)", "EG", ""),
    ("nonconvex", "FedTrack (Mitra et al. 2021a)", "FedTrack", "1/(18τL)", "O(1/K)", "EG", ""),
    ("nonconvex", "SCAFFOLD (Karimireddy et al. 2020)", "Scaffold", "1/(24τL)", "O(1/K)", "SG", ""),
    ("nonconvex", "Allouah et al. 2024", "", "1/(16τL)", "O(1/K)", "SG", ""),
    ("nonconvex", "12 others, in one cell", "", "", "O(1/√K)", "", ""),
    ("nonconvex", "Kim et al. 2023", "", "adaptive", "O(1/√K)", "SG", ""),
)  # fmt: skip
RATES: dict[tuple[str, str], Callable[[float, int, float], float]] = {
    # (assumption, gradients) -> FedRecu's bound at L = tau = 1 as a function of (lr, K, sigma)
    ("convex", "SG"): lambda lr, K, sigma: theorems.fedrecu_convex_stochastic(
        1, 1, lr, K, 1, sigma
    ),
    ("nonconvex", "EG"): lambda lr, K, sigma: theorems.fedrecu_average(1, 1, lr, K, 1),
    ("nonconvex", "SG"): lambda lr, K, sigma: theorems.fedrecu_nonconvex_stochastic(
        1, 1, lr, K, 1, sigma
    ),
}


def fedrecu_steps() -> QuotedTable:
    def rows() -> Iterator[QuotedRow]:
        for assumption, algorithm, name, step, rate, gradients, why in STEPS:
            ours = (
                {kind: step_rule(name, assumption, kind) for kind in ("EG", "SG")} if name else {}
            )
            kinds = [kind for kind, text in ours.items() if text.removeprefix("< ") == step]
            kind = kinds[0] if len(kinds) == 1 else ""
            bound = RATES.get((assumption, kind)) if name == "FedRecu" else None
            cells = (
                cell(step, ours[kinds[0]] if kinds else " or ".join(dict.fromkeys(ours.values()))),
                cell(
                    rate, decay(bound, prescribed_lr(name, assumption, kind), kind) if bound else ""
                ),
                cell(gradients, kind),
            )
            source = f"rule of {name}.lr" if name else ""
            if bound:
                source += ", bounds"
            yield QuotedRow((assumption, algorithm), cells, source, why)

    return QuotedTable(
        title="FedRecu, Table 2: step sizes, rates and gradients (EG exact, SG stochastic)",
        names=("assumption", "algorithm"),
        values=("step", "rate", "gradients"),
        rows=tuple(rows()),
        notes=(
            "A step is its coefficient at τ = L = 1, confirmed to scale as 1/(τL); a rate is the "
            "decay of the bound in K, fitted, with noise where gradients are stochastic.",
            "Gradients are ours where the rule itself tells exact from stochastic ones, which is "
            "FedRecu's only.",
            "o(1/K) is quoted: Theorem 1 is a limit, not a bound. The rates of the other methods "
            "are quoted too.",
            "The 12 others share one printed cell, whose step and gradients the text at hand does "
            "not show; among them Cheng et al. 2024 is undrift's ScaffoldM, for which no rule "
            "could be confirmed.",
        ),
    )


def prescribed_lr(name: str, assumption: str, kind: str, L: float = 1.0, tau: int = 1) -> float:
    constants = Constants(L=L, mu=0.0 if assumption == "convex" else -L)
    method = registry[name](**{"lr": THEORY})
    batch = 1 if kind == "SG" else None
    return prescribe(method, constants, steps=tau, batch=batch)["lr"]


def step_rule(name: str, assumption: str, kind: str) -> str:
    """The rule as c/(tau L), with c taken from the prescribed step."""
    c = prescribed_lr(name, assumption, kind)
    if not math.isclose(prescribed_lr(name, assumption, kind, L=2.5, tau=7) * 2.5 * 7, c):
        raise ValueError(f"the step of {name} does not scale as 1/(tau L)")
    for factor, sign in ((1.0, ""), (steps.STRICT, "< ")):
        simple = Fraction(c / factor).limit_denominator(200)
        if math.isclose(simple * factor, c, rel_tol=1e-9):
            return f"{sign}{simple.numerator}/({simple.denominator}τL)"
    raise ValueError(f"the step of {name} has no simple coefficient: {c}")


def decay(bound: Callable[[float, int, float], float], lr: float, kind: str) -> str:
    """How a bound falls with K: to zero, or to a floor."""
    sigma = float(kind == "SG")
    floor = bound(lr, 10**15, sigma)
    power = math.log2((bound(lr, 1000, sigma) - floor) / (bound(lr, 2000, sigma) - floor))
    text = {1.0: "O(1/K)", 0.5: "O(1/√K)"}[round(power, 3)]
    return text if floor < 1e-9 * bound(lr, 1, sigma) else f"{text} + floor"
