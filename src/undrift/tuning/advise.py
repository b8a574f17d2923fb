"""Which method, for the problem of a spec: those that can run, raced with their steps tuned.

All begin with an eighth of what a run may send; half of them go on with a quarter, with a half and
with all of it. What is recommended was measured, at the budget of the spec.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from undrift._files import write_whole
from undrift.core.costs import costs, placeholder
from undrift.core.method import Method
from undrift.core.options import refuse
from undrift.core.params import values
from undrift.methods import registry
from undrift.plots.curves import GREY, finish, grid, image, legend, line_styles, plain
from undrift.report.table import Table
from undrift.runs.prepare import Task, resolve, threads
from undrift.runs.promises import bounds_of
from undrift.spec.schema import PER_METHOD, Spec
from undrift.sweeps.search import Search, Tuned
from undrift.tuning.found import Tunings
from undrift.tuning.recipes import by_step
from undrift.tuning.tune import Contest, contest_of

if TYPE_CHECKING:
    from matplotlib.figure import Figure

STEP = "step"
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

    method: Method
    step: float
    reached: int | None
    """The round in which it reached the target."""
    value: float
    """The number that methods are judged by, at the end."""
    rounds: int
    vectors: int
    """Per client."""
    gradients: int
    """Of all clients."""
    tuned: Tuned


@dataclasses.dataclass(frozen=True)
class Advice:
    """The methods from the best to the worst, and those that were not tried."""

    entrants: dict[str, Entrant]
    heats: dict[str, float]
    """By method: the share of the budget with which it left."""
    refused: dict[str, str]
    """By method: why it cannot run here."""
    bounds: dict[str, int]
    """By method: the rounds in which a theorem promises the target, with the steps of theory."""
    about: Tunings
    spec: Spec
    """The three best, and FedAvg."""

    def table(self) -> Table:
        """All of them."""
        rows = []
        for name, one in self.entrants.items():
            value = f"{one.value:.3g}" if math.isfinite(one.value) else "diverged"
            reached = ["-" if one.reached is None else str(one.reached)] if self.about.aims else []
            costs = [f"{one.vectors:,}", f"{one.gradients:,}"]
            share = f"{self.heats[name]:g} of the budget"
            bound = [f"<= {self.bounds[name]:,}" if name in self.bounds else "-"]
            bound = bound if self.bounds else []
            rows.append([name, f"{one.step:.3g}", *reached, value, *costs, *bound, share])
        by = [self.about.by] if self.about.aims else []
        head = ["method", "step", *by, self.about.column, "vectors", "gradients"]
        head += ["rounds by bound", "raced with"] if self.bounds else ["raced with"]
        notes = [
            "vectors per client and gradients of all: to the target, or in all if that was missed",
            "step: the length of a local step; other hyper-parameters follow from it; an exact "
            "minimiser counts as one gradient",
        ]
        if self.bounds:
            text = (
                "rounds by bound: what a theorem promises with the steps of theory, no measurement"
            )
            notes.append(text)
        if self.refused:
            why = "; ".join(f"{name}: {text}" for name, text in self.refused.items())
            notes.append(f"not tried: {why}")
        return Table(head, rows, ["raced with"], notes, "Advice")

    def document(self) -> dict[str, object]:
        """For JSON."""
        methods = []
        for name, one in self.entrants.items():
            row = one._asdict() | {"method": name, "hyper_parameters": values(one.method)}
            del row["tuned"]
            methods.append(row | {"raced_with": self.heats[name]})
        return {"methods": methods, "refused": self.refused, "by": self.about.by}

    def figure(self) -> Figure:
        """What methods sent against what they computed; a line joins those that none beats."""
        figure, (ax,) = grid(1, 1)
        best = [one for one in self.entrants.items() if one[1].reached is not None]
        if not best:  # none reached a target, or there is none: those of the last heat
            best = [one for one in self.entrants.items() if self.heats[one[0]] == 1]
        places = sorted((one.gradients, one.vectors) for _, one in best)
        front = [at for k, at in enumerate(places) if all(at[1] < other[1] for other in places[:k])]
        best = best[:SHOWN] + [
            (name, one) for name, one in best[SHOWN:] if (one.gradients, one.vectors) in front
        ]
        styles = line_styles([name for name, _ in best])
        for name, one in best:
            shape = {"color": styles[name]["color"], "marker": styles[name]["marker"]}
            ax.plot(one.gradients, one.vectors, label=plain(name), linestyle="none", **shape)
        ax.plot(*zip(*front, strict=True), color=GREY, linewidth=1, label="not beaten in both")
        ax.set_xscale("log")
        finish(ax, "gradients of all clients", "vectors per client", zero=False)
        legend(figure, [ax])
        return figure

    def write(self, folder: Path) -> None:
        """The spec to run, the table and the picture."""
        table = self.table()
        write_whole(folder / "advice.md", "\n\n".join([table.markdown(), *table.notes, ""]))
        write_whole(folder / "pareto.png", image(self.figure()))
        for name, content in self.spec.sources.items():
            write_whole(folder / name, content)
        write_whole(folder / "advised.toml", self.spec.toml())


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
    local = max(task.setup.local_steps(task.problem.samples))
    smooth = task.problem.cheap_constants.L

    def make(name: str, step: float) -> Method:
        return by_step(name, step, local, task.problem.dim, smooth is not None)

    first = 1 / smooth if smooth else FIRST
    refused = dict[str, str]()
    for name in registry:
        if why := _unfit(make(name, first), task, stateless, exchanges):
            refused[name] = why
    racing = {name: first for name in registry if name not in refused}
    found, left = dict[str, Entrant](), dict[str, float]()
    with threads(task.problem, task.setup):
        for k, share in enumerate(heats):
            factors = FINE if k else WIDE
            for name, step in racing.items():
                steps = [step * factor for factor in factors]
                one = enter(partial(make, name), steps, contest, share, by)
                before = found[name].tuned if name in found else None
                found[name] = one._replace(tuned=_with(before, one.tuned))
                left[name] = share
            order = sorted(racing, key=lambda name: badness(found[name], contest, by))
            heard(f"{share:g} of the budget, {len(racing)} methods: {', '.join(order[:3])} ahead")
            best = order if keep else order[: max(LAST, math.ceil(len(order) / 2))]
            racing = {name: found[name].step for name in best}
    ranked = sorted(found, key=lambda name: (-left[name], badness(found[name], contest, by)))
    entrants = {name: found[name] for name in ranked}
    about = Tunings({n: one.tuned for n, one in entrants.items()}, task.rounds, contest.goal)
    bounds = promised(task, [*entrants], about.target if about.column == "gap" else None)
    return Advice(entrants, left, refused, bounds, about, _advised(spec, entrants, about))


def promised(task: Task, names: Sequence[str], target: float | None) -> dict[str, int]:
    """The rounds in which theorems promise a gap, by method, where they promise it at all."""
    problem, counts = task.problem, np.unique(np.geomspace(1, MOST, 600).astype(int)).tolist()
    if target is None or problem.optimum is None:
        return {}
    found, first = dict[str, int](), problem.metrics(problem.start())
    for name in names:
        with suppress(ValueError):  # no theorem sets its hyper-parameters here
            method = resolve(placeholder(registry[name]), problem, task.setup)
            each = 1 / (getattr(method, "p", 1.0) or 1.0)
            later = [{"round": k, "iterations": k * each} for k in counts]
            rows, _ = bounds_of([(name, method, problem, task.setup, [first, *later])])
            for count, row in zip(counts, rows, strict=False):
                if row["gap"] <= target:
                    found[name] = count
                    break
    return found


def _unfit(method: Method, task: Task, stateless: bool, exchanges: int | None) -> str:
    """Why a method cannot run here; empty if it can."""
    spent, problem = costs(method), task.problem
    if stateless and spent.client:
        return f"its clients keep {spent.client} vectors"
    if exchanges is not None and spent.syncs > exchanges:
        return f"{spent.syncs} exchanges in a round"
    reasons = refuse(method, task.setup, None, problem) + method.refuse_problem(problem)
    return reasons[0].text if reasons else ""


def enter(
    make: Callable[[float], Method],
    steps: Sequence[float],
    contest: Contest,
    share: float,
    by: str,
) -> Entrant:
    """Tune the step of one method, with a share of the budget: that of FedAvg for all rounds."""
    task, sent = contest.tasks[0], costs(make(steps[0]))
    vectors = sent.up + sent.down
    rounds = task.rounds if by == "rounds" else 2 * task.rounds / vectors
    given = {name: value for name, value in vars(task.setup).items() if name != "engine"}
    search = Search(
        lambda setting, _: make(setting[STEP]),
        {seed: problems[0] for seed, problems in contest.problems.items()},
        max(1, round(share * rounds)),
        contest.goal,
        draws=contest.draws,
        **given,
    )
    tuned = search.tune({STEP: steps})
    runs = [one for one in tuned.tried if dict(one.setting) == tuned.best]
    late = [one.reached for one in runs if one.reached is not None]
    reached = max(late) if len(late) == len(runs) else None
    each = sum(one.gradients for one in runs) / max(1, sum(one.rounds for one in runs))
    value, until = sum(one.value for one in runs) / len(runs), reached or search.rounds
    spent = until, until * vectors, round(until * each)
    return Entrant(tuned.method, tuned.best[STEP], reached, value, *spent, tuned)


def _with(before: Tuned | None, now: Tuned) -> Tuned:
    """What was found, with all that was tried for it in earlier heats too."""
    tried = [*(before.tried if before else ()), *now.tried]
    steps = sorted({dict(one.setting)[STEP] for one in tried})
    return dataclasses.replace(now, tried=tried, grid={STEP: steps})


def badness(one: Entrant, contest: Contest, by: str) -> tuple[float, float]:
    """By this a method comes before others: what it sent to the target, else how far it came."""
    late = math.inf if one.reached is None else getattr(one, by)
    sign = -1 if contest.goal.larger(one.tuned.column) else 1
    return late, sign * one.value if math.isfinite(one.value) else math.inf


def _advised(spec: Spec, entrants: Mapping[str, Entrant], about: Tunings) -> Spec:
    """The spec of the three best, with FedAvg beside them."""
    first, chosen = spec.entries[0], [*entrants][:3]
    chosen += ["FedAvg"] if "FedAvg" in entrants and "FedAvg" not in chosen else []
    entries = []
    for name in chosen:
        method, note = entrants[name].method, about.note(name)
        given = {"name": name, "label": name}
        kept = {key: value for key, value in first.given.items() if key in PER_METHOD}
        entries.append(
            dataclasses.replace(
                first, label=name, method=method, given=kept | given, space={}, tuned=note
            )
        )
    return dataclasses.replace(spec, name=f"{spec.name[:92]}-advised", entries=tuple(entries))
