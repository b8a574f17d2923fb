"""Which method, for the problem of a spec: those that can run, raced with their steps tuned.

All begin with an eighth of what a run may send; half of them go on with a quarter, with a half and
with all of it. What is recommended was measured, at the budget of the spec, and so is FedAvg, which
goes on whatever comes of it.
"""

from __future__ import annotations

import dataclasses
import math
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from undrift._files import write_whole
from undrift.core.costs import costs, placeholder
from undrift.core.method import Method
from undrift.core.params import values
from undrift.methods import registry
from undrift.plots.curves import GREY, finish, grid, legend, line_styles, plain, save
from undrift.report.numbers import duration
from undrift.report.table import Table
from undrift.runs.prepare import Task, resolve, threads
from undrift.runs.promises import bounds_of
from undrift.spec.schema import PER_METHOD, Spec
from undrift.sweeps.search import Tried, Tuned
from undrift.tuning.found import note, page
from undrift.tuning.recipes import by_step
from undrift.tuning.tune import Contest, contest_of

if TYPE_CHECKING:
    from matplotlib.figure import Figure

STEP = "step"
BASELINE = "FedAvg"
"""Goes on to the last heat, and into the spec of the best."""
SHARES = (1 / 8, 1 / 4, 1 / 2, 1.0)
"""Of the budget that methods have in each heat; half of them go on to the next."""
LAST = 4
"""Methods in the last heat, at least."""
WIDE = tuple(4.0**k for k in range(-2, 4))
FINE = tuple(2.0**k for k in range(-2, 3))
"""What the step before is multiplied by: in the first heat, and in the later ones."""
SHOWN = 8
"""Methods in the picture, besides those that none beats."""
MOST = 10**7
"""Rounds up to which bounds are looked at."""
FIRST = 1 / 16
"""The first step where the problem does not know its smoothness."""


class Entrant(NamedTuple):
    """A method with its best step, and what it took to the target, or to the end of its budget."""

    step: float
    reached: float | None
    """The round in which it reached the target."""
    value: float
    """The number that methods are judged by, at the end."""
    rounds: float
    vectors: int
    """Per client."""
    gradients: int
    """Of all clients."""
    raced_with: float
    """The share of the budget with which it left."""
    tuned: Tuned
    """With all that was tried of it, in earlier heats too."""

    def badness(self, by: str) -> tuple[float, ...]:
        """By this it comes before others: what it sent to the target, else how far it came."""
        late = math.inf if self.reached is None else getattr(self, by)
        return -self.raced_with, late, self.tuned.goal.badness(self.tuned.column, self.value)


@dataclasses.dataclass(frozen=True)
class Advice:
    """The methods from the best to the worst, and those that were not tried."""

    entrants: dict[str, Entrant]
    refused: dict[str, str]
    """By method: why it cannot run here."""
    bounds: dict[str, int]
    """By method: the rounds in which a theorem promises the target, with the steps of theory."""
    spec: Spec
    """The three best, and FedAvg."""

    @property
    def first(self) -> Tuned:
        """What was found for the best."""
        return next(iter(self.entrants.values())).tuned

    def table(self) -> Table:
        """All of them."""
        rows = []
        for name, one in self.entrants.items():
            row = {"method": name, "step": f"{one.step:.3g}"}
            if self.first.target is not None:
                row[self.first.by] = "-" if one.reached is None else f"{one.reached:g}"
            row[self.first.column] = f"{one.value:.3g}" if math.isfinite(one.value) else "diverged"
            row |= {"vectors": f"{one.vectors:,}", "gradients": f"{one.gradients:,}"}
            if self.bounds:
                most = self.bounds.get(name)
                row["rounds by bound"] = "-" if most is None else f"<= {most:,}"
            rows.append(row | {"raced with": f"{one.raced_with:g} of the budget"})
        notes = [
            "vectors per client and gradients of all: to the target, or in all if that was missed",
            "step: the length of a local step; other hyper-parameters follow from it; an exact "
            "minimiser counts as one gradient",
        ]
        if self.bounds:
            notes.append(
                "rounds by bound: what a theorem promises with the steps of theory, no measurement"
            )
        if self.refused:
            why = [f"{name}: {text}" for name, text in self.refused.items()]
            notes.append(f"not tried: {'; '.join(why)}")
        return Table([*rows[0]], [[*row.values()] for row in rows], ["raced with"], notes, "Advice")

    def document(self) -> dict[str, object]:
        """For JSON."""
        names = Entrant._fields[:-1]  # what was found in all has its hyper-parameters
        return {
            "methods": [
                {"method": name, **{field: getattr(one, field) for field in names}}
                | {"hyper_parameters": values(one.tuned.method)}
                for name, one in self.entrants.items()
            ],
            "refused": self.refused,
            "by": self.first.by,
        }

    def figure(self) -> Figure:
        """What methods sent against what they computed; a line joins those that none beats."""
        figure, (ax,) = grid(1, 1)
        # Where none reached a target, or there is none: those of the last heat.
        best = {name: one for name, one in self.entrants.items() if one.reached is not None} or {
            name: one for name, one in self.entrants.items() if one.raced_with == 1
        }
        places = {name: (one.gradients, one.vectors) for name, one in best.items()}
        every = sorted(places.values())
        front = [at for k, at in enumerate(every) if all(at[1] < before[1] for before in every[:k])]
        shown = [name for k, name in enumerate(best) if k < SHOWN or places[name] in front]
        for name, style in line_styles(shown).items():
            shape = {"color": style["color"], "marker": style["marker"], "linestyle": "none"}
            ax.plot(*places[name], label=plain(name), **shape)
        ax.plot(*zip(*front, strict=True), color=GREY, linewidth=1, label="not beaten in both")
        ax.set_xscale("log")
        finish(ax, "gradients of all clients", "vectors per client", zero=False)
        legend(figure, [ax])
        return figure

    def write(self, folder: Path) -> None:
        """The spec to run, the table and the picture."""
        write_whole(folder / "advice.md", page(self.table()))
        save(self.figure(), folder / "pareto.png")
        write_whole(folder / "advised.toml", self.spec.toml())
        for name, content in self.spec.sources.items():
            write_whole(folder / name, content)


def advise(
    spec: Spec,
    stateless: bool = False,
    exchanges: int | None = None,
    by: str = "vectors",
    heard: Callable[[str], object] = lambda _: None,
    heats: Sequence[float] = SHARES,
    keep: bool = False,
) -> Advice:
    """Race the methods that can run on the problem of ``spec``, read to be tuned.

    ``stateless``: clients keep nothing; ``exchanges``: the most in a round; ``by``: what is scarce,
    vectors or rounds; ``keep`` all methods to the last heat.
    """
    contest = contest_of(spec)
    task = contest.tasks[0]
    local, smooth = (
        max(task.setup.local_steps(task.problem.samples)),
        task.problem.cheap_constants.L,
    )
    make = partial(by_step, local=local, dim=task.problem.dim, convex=smooth is not None)
    first = 1 / smooth if smooth else FIRST
    why = {n: _unfit(make(n, first), task, stateless, exchanges) for n in registry}
    own = "a method of your own, whose step advise does not know: tune it with undrift tune"
    why |= {each.label: own for each in spec.entries if "file" in each.given}
    racing, found = [name for name, text in why.items() if not text], dict[str, Entrant]()
    began = time.monotonic()
    with threads(task.problem, task.setup):
        for share in heats:
            for name in racing:
                before = found.get(name)
                steps = [before.step * k for k in FINE] if before else [first * k for k in WIDE]
                tried = before.tuned.tried if before else []
                found[name] = enter(partial(make, name), steps, contest, share, by, tried)
                if len(found) == 1 and not before:
                    # Half of the methods with twice the budget: a heat takes what the first does.
                    alike = sum(heats) / share if keep else len(heats)
                    seconds = (time.monotonic() - began) * len(racing) * alike
                    heard(f"About {duration(seconds)}, if all take as long as {name}.")
            ranked = sorted(found, key=lambda name: found[name].badness(by))
            best = ranked[: len(racing)]
            heard(f"{share:g} of the budget, {len(best)} methods: {', '.join(best[:3])} ahead")
            if not keep:
                best = best[: max(LAST, math.ceil(len(best) / 2))]
                best += [name for name in racing if name == BASELINE and name not in best]
            racing = best
    entrants = {name: found[name] for name in ranked}
    one = entrants[ranked[0]].tuned
    bounds = promised(task, ranked, one.target) if one.column == "gap" and one.target else {}
    return Advice(
        entrants,
        {name: text for name, text in why.items() if text},
        bounds,
        _advised(spec, entrants),
    )


def promised(task: Task, names: Sequence[str], target: float) -> dict[str, int]:
    """The rounds in which theorems promise a gap, by method, where they promise it at all."""
    problem, counts = task.problem, np.unique(np.geomspace(1, MOST, 600).astype(int)).tolist()
    found, first = dict[str, int](), problem.metrics(problem.start())
    for name in names:
        with suppress(ValueError):  # no theorem sets its hyper-parameters here, or gets so far
            method = resolve(placeholder(registry[name]), problem, task.setup)
            each = 1 / (getattr(method, "p", 1.0) or 1.0)
            later = [{"round": k, "iterations": k * each} for k in counts]
            rows, _ = bounds_of([(name, method, problem, task.setup, [first, *later])])
            gaps = zip(counts, rows, strict=False)
            found[name] = min(k for k, row in gaps if row["gap"] <= target)
    return found


def _unfit(method: Method, task: Task, stateless: bool, exchanges: int | None) -> str:
    """Why a method cannot run here; empty if it can."""
    spent = costs(method)
    if stateless and spent.client:
        return f"its clients keep {spent.client} vectors"
    if exchanges is not None and spent.syncs > exchanges:
        return f"{spent.syncs} exchanges in a round"
    reasons = dataclasses.replace(task, method=method).refuse()
    return reasons[0].text if reasons else ""


def enter(
    make: Callable[[float], Method],
    steps: Sequence[float],
    contest: Contest,
    share: float,
    by: str,
    before: Sequence[Tried] = (),
) -> Entrant:
    """Tune the step of one method, with a share of the budget: that of FedAvg for all rounds.

    ``before`` has what was tried of it in earlier heats.
    """
    sent, rounds = costs(make(steps[0])), contest.tasks[0].rounds
    vectors = sent.up + sent.down
    rounds = max(1, round(share * (rounds if by == "rounds" else 2 * rounds / vectors)))
    tuned = contest.search(0, lambda setting, _: make(setting[STEP]), rounds).tune({STEP: steps})
    each = sum(one.gradients for one in tuned.runs) / max(1, sum(one.rounds for one in tuned.runs))
    until = tuned.result.reached or rounds
    spent = until, round(until * vectors), round(until * each)
    return Entrant(
        tuned.best[STEP],
        tuned.result.reached,
        tuned.result.value,
        *spent,
        share,
        dataclasses.replace(tuned, tried=[*before, *tuned.tried]),
    )


def _advised(spec: Spec, entrants: Mapping[str, Entrant]) -> Spec:
    """The spec of the three best, with FedAvg beside them."""
    chosen = dict.fromkeys([*[*entrants][:3], *({BASELINE} & entrants.keys())])
    kept = {key: v for key, v in spec.entries[0].given.items() if key in PER_METHOD}
    entries = [
        dataclasses.replace(
            spec.entries[0],
            label=name,
            method=entrants[name].tuned.method,
            given=kept | {"name": name, "label": name},
            space={},
            tuned=note(entrants[name].tuned),
        )
        for name in chosen
    ]
    return dataclasses.replace(spec, name=f"{spec.name[:92]}-advised", entries=tuple(entries))
