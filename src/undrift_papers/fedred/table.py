"""FedRed, Table 1: rounds to an accuracy, local steps per round, and kinds of guarantee."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator

import undrift.methods  # noqa: F401, fills the registry
from undrift.core.costs import placeholder
from undrift.core.method import Method, Round, registry
from undrift.core.params import THEORY
from undrift.core.problem import Constants
from undrift.theory import prescribe
from undrift_papers.fedrecu.memory import vectors_held
from undrift_papers.fedred.complexities import (
    dane_rounds,
    daneplus_accuracy,
    daneplus_condition,
    daneplus_rounds,
    fedred_rounds,
    gd_rounds,
    rule,
    scaffnew_rounds,
    scaffnew_weight,
    svrp_contractions,
)
from undrift_papers.fedred.orders import AT, NC, SC, At, C, Quantity, order, same_order
from undrift_papers.quoted import Quoted, QuotedRow, QuotedTable, cell

SETTINGS = (SC, C, NC)
UNKNOWN = ("unknown", "unknown")
PRINTED: tuple[tuple[str, str, str, tuple[tuple[str, str], ...]], ...] = (
    # algorithm, method, guarantee, then (rounds, local steps) of each setting
    ("GD", "GD", "deterministic", (("L/μ log(R0²/ε)", "1"), ("L R0²/ε", "1"), ("L F0/ε", "1"))),
    ("Scaffold", "Scaffold", "deterministic",
     (("L/μ log(R0²/ε)", "∀K ≥ 1"), ("L R0²/ε", "∀K ≥ 1"), ("L F0/ε", "∀K ≥ 1"))),
    ("FedDyn", "FedDyn", "deterministic",
     (("L/μ log((R0² + A²/L)/ε)", "-"), ("(L R0² + A²)/ε", "-"), ("L F0/ε", "-"))),
    ("InexactDane", "InexactDANE", "deterministic",
     (("L/μ log(R0²/ε)", "m"), ("L R0²/ε", "m"), ("L F0/ε", "m"))),
    ("Scaffnew", "Scaffnew", "in expectation",
     (("√(L/μ) log((R0² + H0²/μ)/ε)", "√(L/μ)"), ("(μ L R0² + H0²/μ)/ε", "1/μ"), UNKNOWN)),
    ("MimeMVR", "MimeMVR", "deterministic",
     (UNKNOWN, UNKNOWN, ("δ_B G F0/(√n ε^(3/2)) + G²/(n ε) + δ_B F0/ε", "L/δ_B"))),
    ("SONATA", "SONATA", "deterministic", (("δ_A/μ log(R0²/ε)", "-"), UNKNOWN, UNKNOWN)),
    ("CE-LGD", "CELGD", "in expectation", (UNKNOWN, UNKNOWN, ("δ_B F0/ε", "L/δ_B"))),
    ("SVRP-GD", "SVRP", "in expectation",
     (("(n + δ_A²/μ) log(R0²/ε)", "(L δ_A² + μ)/(μ δ_A² + μ) log(max(μ² n/δ_A², 1)/ε)"),
      UNKNOWN, UNKNOWN)),
    ("DANE (this work)", "DANE", "deterministic",
     (("δ_A/μ log(R0²/ε)", "-"), ("δ_A R0²/ε", "-"), ("-", "-"))),
    ("DANE+-GD (this work)", "DANEPlus", "deterministic",
     (("δ_A/μ log(R0²/ε)", "L/(μ + δ_A) log(L/(μ + δ_A) (r+1))"),
      ("δ_A R0²/ε", "L/δ_A log(L/δ_A (r+1))"), ("δ_B F0/ε", "L/δ_B R"))),
    ("FedRed-GD (this work)", "FedRed", "in expectation",
     (("(δ_A + μ)/μ log(R0²/ε)", "L/δ_A"), ("δ_A R0²/ε", "L/δ_A"), ("δ_B F0/ε", "L/δ_B"))),
)  # fmt: skip
EXACT = (
    "undrift's FedDyn takes K gradient steps, as its authors' code does; the guarantee is for exact"
    " local solutions"
)
WHY = {("FedDyn", setting): EXACT for setting in SETTINGS} | {
    ("Scaffnew", SC): (
        "H0² weighs γ²/p² = 1/(L μ) in Scaffnew's potential; H0²/μ has not the dimension of R0²"
    ),
    ("Scaffnew", C): (
        "there is no μ in the convex setting: the printed letter must be the probability p of "
        "communicating, in both cells; no rule prescribes it without μ"
    ),
    ("SONATA", SC): (
        "the paper's text (Section 1) says δ_B; undrift has no rule for SONATA's β. On a star with "
        "unit step it is DANE, for which Corollary 21 gives δ_A"
    ),
    ("SVRP", SC): (
        "with η = μ/(2δ_A²) the proximal point contracts by 1/(1 + ημ), hence μ², as the paper's "
        "Section 1 has it elsewhere; undrift solves the proximal step exactly. The printed steps "
        "are not of one dimension: η makes the condition number (L μ + 2δ_A²)/(μ² + 2δ_A²)"
    ),
}
SOURCES = {
    "GD": "bounds.fedrecu at τ = 1",
    "Scaffold": "rule of Scaffold.lr",
    "FedDyn": "FedDyn.solves",
    "Scaffnew": "bounds.scaffnew, rules of lr and p",
    "SONATA": "the paper's text; SONATA.solves",
    "SVRP": "theorems.svrp_eta; SVRP.solves",
    "DANE": "bounds.dane, rule of lam; DANE.solves",
    "DANEPlus": "bounds.daneplus, rules of lam and lr",
    "FedRed": "bounds.fedred_gd, rules of eta and p",
}
NOTES = (
    "Printed rounds are O(·). Ours are the rounds after which the bound of theory, at the "
    "prescribed hyper-parameters, is below ε: the powers are fitted where μ << δ << L and ε is "
    "small, the constant is the bound's. Two cells are the same if their powers are.",
    "GD is derived as FedRecu with one local step, and SVRP from its step rule and the contraction "
    "of a proximal point. DANE+'s local steps are log(reduction asked by Corollary 5's rule) over "
    "the contraction of gradient descent on the subproblem.",
    "Guarantees are ours throughout: in expectation where a method throws coins or draws single "
    "clients.",
    "Not derived, as undrift has no bound or rule: the rounds of Scaffold, FedDyn, InexactDane, "
    "MimeMVR and CE-LGD, Scaffnew's without μ, and DANE+'s nonconvex local steps (Corollary 2).",
    "Where δ_A < μ, DANE's bound asks for log(R0²/ε)/log(1 + μ/δ_A) rounds, more than the printed "
    "δ_A/μ log; FedRed's local steps stop growing at 2L/μ.",
    "Two printed cells are mended: MimeMVR's sum, which the text at hand has in one denominator, "
    "and DANE's local steps, of which it has the footnote's letter only.",
    "Caption: δ_A and δ_B are defined in (3) and (2), not in (2) and (1). Footnote g says Scaffold "
    "where it means Scaffnew, twice.",
)

Derive = Callable[[str, At], Quoted]
"""The cell of a printed text, at some constants."""


def quoted(printed: str, at: At) -> Quoted:
    return cell(printed)


def stated(text: str) -> Derive:
    """Ours is what the paper says elsewhere, or what there is without a rule of theory."""
    return lambda printed, at: cell(printed, text)


def fitted(claim: Quantity, ours: Quantity) -> Derive:
    """The printed order, and the one fitted to ours."""
    return lambda printed, at: same_order(printed, claim, ours, at)


def local_work(name: str) -> Derive:
    """- if a method solves its local problem, K if it takes local steps, else 1."""

    def derive(printed: str, at: At) -> Quoted:
        cls = registry[name]
        if cls.solves:
            return cell(printed, "-")
        return cell(printed, "K" if vectors_held(placeholder(cls)) else "1")

    return derive


def inverse_p(name: str, claim: Quantity) -> Derive:
    """Local steps of random communication."""
    return fitted(claim, lambda at: 1 / rule(name, at)["p"])


def svrp_rounds(printed: str, at: At) -> Quoted:
    """With the n of the other regime, in which renewing the anchor is what takes time."""
    found = same_order(
        printed,
        lambda a: (a.n + a.delta_A**2 / a.mu) * a.log,
        lambda a: (a.n + svrp_contractions(a)) * a.log,
        at,
    )
    return found._replace(ours=f"(n + {order(svrp_contractions, at)}) log(R0²/ε)")


def scaffnew_logarithm(printed: str, at: At) -> Quoted:
    """With the control variates inside the logarithm."""
    found = same_order(printed, lambda a: math.sqrt(a.L / a.mu) * a.log, scaffnew_rounds, at)
    dual = same_order("", lambda a: 1 / a.mu, scaffnew_weight, at)
    inside = f"(R0² + H0²{dual.ours.removeprefix('1')})"
    return Quoted(printed, found.ours.replace("R0²", inside), found.same and dual.same)


def scaffold_steps(printed: str, at: At) -> Quoted:
    """Any number, if the prescribed step makes up for it."""
    constants = Constants(L=at.L, mu=at.mu)
    method = registry["Scaffold"](**{"lr": THEORY})
    far = [K * prescribe(method, constants, steps=K)["lr"] for K in (1, 3, 1000)]
    return cell(printed, "∀K ≥ 1" if math.isclose(min(far), max(far)) else "K")


def daneplus_steps(printed: str, at: At) -> Quoted:
    """log(accuracy) / contraction, factor by factor."""

    def condition(a: At) -> float:
        return a.L / (a.mu + a.delta_A)

    factor = same_order(printed, condition, daneplus_condition, at)
    inner = same_order(printed, lambda a: condition(a) * a.r1, daneplus_accuracy, at)
    return Quoted(printed, f"{factor.ours} log({inner.ours})", factor.same and inner.same)


ROUNDS: dict[tuple[str, str], Derive] = {
    ("GD", SC): fitted(lambda a: a.L / a.mu * a.log, gd_rounds),
    ("GD", C): fitted(lambda a: a.L * a.R2 / a.eps, gd_rounds),
    ("GD", NC): fitted(lambda a: a.L * a.F0 / a.eps, gd_rounds),
    ("Scaffnew", SC): scaffnew_logarithm,
    ("SONATA", SC): stated("δ_B/μ log(R0²/ε)"),
    ("SVRP", SC): svrp_rounds,
    ("DANE", SC): fitted(lambda a: a.delta_A / a.mu * a.log, dane_rounds),
    ("DANE", C): fitted(lambda a: a.delta_A * a.R2 / a.eps, dane_rounds),
    ("DANE", NC): stated("-"),
    ("DANEPlus", SC): fitted(lambda a: a.delta_A / a.mu * a.log, daneplus_rounds),
    ("DANEPlus", C): fitted(lambda a: a.delta_A * a.R2 / a.eps, daneplus_rounds),
    ("DANEPlus", NC): fitted(lambda a: a.delta_B * a.F0 / a.eps, daneplus_rounds),
    ("FedRed", SC): fitted(lambda a: (a.delta_A + a.mu) / a.mu * a.log, fedred_rounds),
    ("FedRed", C): fitted(lambda a: a.delta_A * a.R2 / a.eps, fedred_rounds),
    ("FedRed", NC): fitted(lambda a: a.delta_B * a.F0 / a.eps, fedred_rounds),
}
"""(method, setting) -> how our cell is derived; the others are only quoted."""
STEPS: dict[tuple[str, str], Derive] = {
    **{(name, s): local_work(name) for name in ("GD", "FedDyn", "DANE") for s in SETTINGS},
    **{("Scaffold", setting): scaffold_steps for setting in SETTINGS},
    ("Scaffnew", SC): inverse_p("Scaffnew", lambda a: math.sqrt(a.L / a.mu)),
    ("Scaffnew", C): stated("1/p"),
    ("SONATA", SC): local_work("SONATA"),
    ("SVRP", SC): local_work("SVRP"),
    ("DANEPlus", SC): daneplus_steps,
    ("DANEPlus", C): daneplus_steps,
    ("FedRed", SC): inverse_p("FedRed", lambda a: a.L / a.delta_A),
    ("FedRed", C): inverse_p("FedRed", lambda a: a.L / a.delta_A),
    ("FedRed", NC): inverse_p("FedRed", lambda a: a.L / a.delta_B),
}


def guarantee(name: str) -> str:
    """In expectation where coins are thrown or single clients drawn."""
    method = placeholder(registry[name])
    drawn = any(p.who == "one" or p.reduction == "pick" for p in method.phases(Round(0, [2])))
    coins = type(method).local_steps is not Method.local_steps
    return "in expectation" if drawn or coins else "deterministic"


def fedred_complexities() -> QuotedTable:
    def rows() -> Iterator[QuotedRow]:
        for algorithm, name, printed, cells in PRINTED:
            for setting, (rounds, local) in zip(SETTINGS, cells, strict=True):
                at, where = AT[setting], (name, setting)
                found = (
                    ROUNDS.get(where, quoted)(rounds, at),
                    STEPS.get(where, quoted)(local, at),
                )
                source = SOURCES[name] if any(c.ours for c in found) else ""
                last = cell(printed, guarantee(name))
                yield QuotedRow((algorithm, setting), (*found, last), source, WHY.get(where, ""))

    return QuotedTable(
        title="FedRed, Table 1: rounds to accuracy ε and local steps per round",
        names=("algorithm", "setting"),
        values=("rounds", "local steps", "guarantee"),
        rows=tuple(rows()),
        notes=NOTES,
    )
