"""What a run gives back in Python, and what a run folder holds."""

from __future__ import annotations

import base64
import dataclasses
import warnings
from collections.abc import Collection, Iterable, Sequence
from functools import cached_property
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, get_args

import numpy as np
import torch
from numpy.typing import NDArray

from undrift.core.faults import Rejection
from undrift.core.method import Method
from undrift.core.options import RunOptions
from undrift.core.params import describe, not_allowed, unknown
from undrift.core.problem import OF_CLIENTS, OF_OWN_MODELS, Problem, Samples, Unsupported
from undrift.core.stopping import USUALLY, Goal
from undrift.engines import Engine, Ledger
from undrift.plots.columns import BOUND_OF, axis
from undrift.plots.curves import bounding, draw, drawn, entries, finish, image, line_styles
from undrift.records import models
from undrift.records.differences import against, curves
from undrift.records.folder import Folder, Outcome, Row
from undrift.records.rows import ENDS, Key, choose, columns, key_of
from undrift.report.comparison import common, compare, read
from undrift.report.numbers import NONE, count
from undrift.report.summary import summarise
from undrift.report.table import Form, Table
from undrift.report.tables import Differences, results
from undrift.runs.clients import ClientHistory, RowColumns, at_model
from undrift.runs.promises import bounds_of
from undrift.spec.reader import load as load_spec
from undrift.spec.schema import Table as Document
from undrift.spec.user_files import distrust

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from torch import nn

COSTS = tuple(field.name for field in dataclasses.fields(Ledger))
KEYS = ("label", "method", "seed")
SHOWN = 8
"""Rows of a history in a notebook."""
SIZE, DOTS = (5.0, 3.0), 100
"""Inches of its small pictures, and dots of an inch: a saved notebook holds them all."""


class History(RowColumns):
    """Columns by name, of the rows of one method; a value a problem does not have is NaN.

    ``vectors`` is what each participating client sent and received so far, in vectors of model
    size.
    """

    def __init__(self, rows: Iterable[Row] = ()) -> None:
        super().__init__(
            {name: v for name, v in row.items() if name not in KEYS and v is not None}
            for row in rows
        )

    def __getitem__(self, column: str) -> NDArray[np.float64]:
        if not any(column in row for row in self._rows):
            raise KeyError(f"{column} was not recorded; there are {', '.join(self)}")
        return np.array([row.get(column, np.nan) for row in self._rows])

    @property
    def rows(self) -> list[Row]:
        """One mapping per evaluation."""
        return self._rows

    @property
    def last(self) -> Row:
        return self._rows[-1]

    def __repr__(self) -> str:
        return f"History({len(self._rows)} rows; last: {self.ending()})"

    def _repr_html_(self) -> str:
        wanted = [name for name in self if name not in COSTS]
        few = np.linspace(0, len(self._rows) - 1, min(len(self._rows), SHOWN)).astype(int)
        rows = [[_short(self._rows[k].get(name, NONE)) for name in wanted] for k in few]
        one = [{"label": "", "seed": 0, **row} for row in self._rows]
        return _page(f"History: {count(len(one), 'row')}", Table(wanted, rows), one)

    def ending(self, without: Collection[str] = ()) -> str:
        """The last row in words, but for some columns."""
        last = self._rows[-1] if self._rows else {}
        shown = [f"{k}={_short(v)}" for k, v in last.items() if k not in without]
        return ", ".join(shown) or "empty"


def _short(value: object) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)


@dataclasses.dataclass(repr=False)
class Run:
    """One method on one problem with one seed, over."""

    method: Method
    problem: Problem
    engine: Engine | None
    """The engine it ended with; ``None`` if the run is from a folder."""
    history: History
    status: str
    """``done``, ``reached`` (a target), ``early`` (stopped early), ``diverged`` or ``stuck``
    (rounds could not be counted).
    """
    label: str = ""
    seed: int = 0
    note: str = ""
    """Why it stopped early; what happened and what to try, where it diverged or was stuck."""
    model: torch.Tensor | None = dataclasses.field(default=None, repr=False)
    """The last model; of a run that diverged, the last sound one."""
    left_out: Sequence[Rejection] = ()
    """Clients whose work did not count, in which round and phase, and why."""
    client_rows: Sequence[Row] = dataclasses.field(default=(), repr=False)
    """What each client had at every row, if it was asked for."""
    best: models.Best | None = None
    """The best model that was measured, by the gap, else the accuracy, else the loss, or by what
    ``best`` or ``stop`` said; ``None`` where it is not known.
    """
    same_as: int | None = None
    """The seed whose run stands for this one, where no seed changes it."""
    options: RunOptions = dataclasses.field(default_factory=RunOptions, repr=False)
    """How it was run, besides method, problem and seed."""
    goal: Goal = USUALLY
    """By what it is judged: what ``best`` or ``stop`` said."""

    @cached_property
    def per_client(self) -> ClientHistory:
        """Each client's loss and metrics on its own samples, at the end and over time.

        Over time if the run was asked to measure it (``per_client=True``). Otherwise the last
        model is measured now.
        """
        if self.client_rows:
            return ClientHistory(self.client_rows)
        now = int(self.history.last["round"]) if self.history.rows else 0
        return ClientHistory([at_model(self.problem, self.x, now)])

    @property
    def x(self) -> torch.Tensor:
        """The server's last model; of a run that diverged, the last sound one."""
        found = self.model
        if self.engine is not None and self.status != "diverged":
            found = self.engine.x
        if found is None:
            raise Unsupported(f"{self.label}, seed {self.seed} has no model: {self.note}")
        return found.clone()

    def module(self) -> nn.Module:
        """The network with the server's last model, where the problem is one."""
        return models.module(self.problem, self.x)

    def predictions(self) -> tuple[object, object]:
        """Outputs and targets of the last model, where the problem is a network: on the test
        samples where there are some, else on the training samples.
        """
        return self.problem.predictions(self.x)

    def plot(
        self,
        y: str | None = None,
        x: str = "round",
        ax: Axes | None = None,
        bounds: bool = False,
    ) -> Axes:
        """Draw one recorded column against another.

        Without ``y`` that is what the run is judged by: what ``best`` or ``stop`` said, else the
        gap where the optimum is known, else the accuracy, else the loss. With ``bounds`` of the
        gap, so is what a theorem promises of it.
        """
        return self._alone().plot(y, x, ax, bounds)

    def _alone(self) -> Runs:
        alone = dataclasses.replace(self, same_as=None)
        return Runs({(self.label or type(self.method).__name__, self.seed): alone})

    def __repr__(self) -> str:
        of_clients = (name for name in self.history if name.startswith((OF_CLIENTS, OF_OWN_MODELS)))
        shown = self.history.ending({*COSTS, *of_clients})
        note = f"; {self.note}" if self.note else ""
        return f"Run({self.method} on {self.problem}: {self.status}; {shown}{note})"

    def _repr_html_(self) -> str:
        return self._alone().html(f"{self.method} on {self.problem}")


class Runs(dict[Key, Run]):
    """Several runs by (label, seed), in the order they were run in.

    ``runs[label]`` is enough where a method was run with one seed.

    >>> import undrift as ud
    >>> methods = [ud.FedAvg(lr=0.05), ud.Scaffold(lr=0.05)]
    >>> runs = ud.run(methods, "quadratic", rounds=3, steps=2, seed=[0, 1])
    >>> list(runs)[:2], runs["FedAvg", 1].status
    ([('FedAvg', 0), ('Scaffold', 0)], 'done')
    """

    folder: Path | None = None
    """Where they are kept."""
    varied: str = ""
    """What the seeds vary, in words."""

    def __missing__(self, key: Key | str) -> Run:
        label, seed = (key, None) if isinstance(key, str) else key
        return self[choose(self, label, seed)]

    @property
    def records(self) -> list[Row]:
        """Every recorded row, with its label, method and seed: ``pandas.DataFrame`` takes them.

        A method that no seed changes was run with one of them, and has the rows of that one.
        """
        return [
            {"label": label, "method": type(run.method).__name__, "seed": seed, **row}
            for (label, seed), run in self.items()
            if run.same_as is None
            for row in run.history.rows
        ]

    def table(self, form: Form = "text") -> str:
        """How each method ended: means ± standard deviations over its seeds.

        As text, or in the form "markdown", "latex" (for the package booktabs) or "html".
        """
        if form not in get_args(Form):
            raise ValueError(not_allowed("form", form, describe(Form)))
        return self._results().shown(form)

    def _results(self) -> Table:
        found = summarise(self.records, None, self._outcomes, goal=self._declared)
        return results(
            found,
            varied=[self.varied],
            samples=self._samples,
            declared=self._declared.metric is not None,
        )

    @property
    def _declared(self) -> Goal:
        return next((run.goal for run in self.values()), USUALLY)

    def against(self, baseline: str, target: float | None = None) -> Differences:
        """How much the others differ from the method with that label, seed by seed.

        In the end that is by what ``best`` or ``stop`` said, else the gap where the optimum is
        known, else the accuracy, else the loss; with a ``target`` for that number also in the
        rounds to it. Of a gap the target is 1e-6 of the first one, unless it is given.
        """
        labels = [*dict.fromkeys(label for label, _ in self)]
        if baseline not in labels:
            raise KeyError(f"no method is called {baseline!r}; there are {', '.join(labels)}")
        goal = self._declared.settled(*self.records)
        found = against(self.records, self._outcomes, goal, target, baseline)
        return Differences(baseline, goal.column(), found)

    @property
    def _outcomes(self) -> list[Outcome]:
        return [
            Outcome(
                label,
                type(run.method).__name__,
                seed,
                run.status,
                {},
                note=run.note,
                same_as=run.same_as,
            )
            for (label, seed), run in self.items()
        ]

    def plot(
        self,
        y: str | None = None,
        x: str = "round",
        ax: Axes | None = None,
        bounds: bool = False,
    ) -> Axes:
        """Draw one column of every run against another, on the same axes.

        A method has one colour; of several seeds it is their mean, in a band of one standard
        deviation. With ``bounds`` the gap has theorems' bounds too, dashed; of methods without one
        a warning says why.
        """
        rows, column = self.records, y or self._declared.column(*self.records)
        if wrong := {x, column} - columns(rows).keys():
            raise KeyError(unknown("column", wrong.pop(), columns(rows)))
        if ax is None:
            import matplotlib.pyplot as plt

            _, ax = plt.subplots(figsize=(6, 4), layout="constrained")
        first = {label: run for (label, _), run in reversed(self.items())}
        promised, without = bounds_of(
            (label, run.method, run.problem, run.options, run.history.rows)
            for label, run in reversed(first.items())
            if bounds and column == "gap"
        )
        for text in without:
            warnings.warn(text, stacklevel=2)
        _drawn_on(ax, rows, x, column, self._samples, promised)
        return ax

    @property
    def _samples(self) -> Samples | None:
        return common(run.problem.metric_samples for run in self.values())

    def _repr_html_(self) -> str:
        return self.html(f"Runs in {self.folder}" if self.folder else "Runs")

    def html(self, title: str) -> str:
        """A table and a picture, as a notebook shows them."""
        return _page(title, self._results(), self.records, self._declared, self._samples)

    def __repr__(self) -> str:
        where = f" in {self.folder}" if self.folder else ""
        return f"Runs{where}:\n{self.table()}"


@dataclasses.dataclass(frozen=True, repr=False)
class Recorded:
    """A run folder, finished or not, read into memory.

    The folder may be that of ``undrift run`` or of ``undrift.run(..., save=...)``.
    """

    folder: Folder
    spec: Document
    """What was run, with every default written out."""
    records: list[Row]
    """One mapping per evaluation, of all methods and seeds."""
    outcomes: list[Outcome]
    """How each method ended with each seed, as far as it has."""
    left_out: list[Row] = dataclasses.field(default_factory=list)
    """Clients whose work did not count: ``label``, ``seed``, ``round`` (counted from 0),
    ``phase``, ``client`` and ``reason``.
    """

    client_rows: list[Row] = dataclasses.field(default_factory=list)
    """What each client had at every row, if the run was asked to measure it (``per_client``)."""

    def history(self, label: str, seed: int | None = None) -> History:
        """The columns of one method; ``seed`` may be left out where it has one."""
        return History(_of_one(self.records, label, seed))

    def per_client(self, label: str, seed: int | None = None) -> ClientHistory:
        """Each client's numbers with one method; ``seed`` may be left out where it has one."""
        if not self.client_rows:
            raise Unsupported(
                f"{self.folder.path} has no numbers of single clients: run it with "
                "per_client = true"
            )
        return ClientHistory(_of_one(self.client_rows, label, seed))

    @cached_property
    def models(self) -> dict[Key, dict[str, dict[str, torch.Tensor]]]:
        """(label, seed) -> ``last`` and ``best`` -> the tensors of the server's model by name."""
        return {
            o.key: {which: models.read(self.folder.file(file)) for which, file in o.files.items()}
            for o in self.outcomes
        }

    def module(
        self, label: str, seed: int | None = None, best: bool = False, trust: bool = False
    ) -> nn.Module:
        """The trained network of a method, where a spec says how to build it.

        ``trust`` lets it execute the Python files that the folder brings.
        """
        _, file = models.find(self.folder, label, seed, best)
        tensors = models.read(file)
        if self.folder.from_python:
            raise Unsupported(
                f"{self.folder.path} describes its problem, but only the program that made it can "
                "build that: give your own module the tensors in models, by load_state_dict"
            )
        code = None if trust else distrust("found.module(..., trust=True)")
        spec = load_spec(self.folder.file("spec.toml"), code=code)
        problem = spec.problem.drawn(spec.vary, spec.seeds[0] if seed is None else seed).build()
        net = models.module(problem, problem.start())
        net.load_state_dict(tensors)
        return net

    def _repr_html_(self) -> str:
        (found,) = compare(read([self.folder]))
        title = f"Recorded in {self.folder.path}"
        return _page(title, found.results(), found.rows, found.goal, found.samples)

    def __repr__(self) -> str:
        ends = ", ".join(
            f"{o.label} (seed {o.seed}): {ENDS[o.status].words}" for o in self.outcomes
        )
        return f"Recorded({self.folder.path}, {len(self.records)} rows; {ends or 'unfinished'})"


def _of_one(rows: Sequence[Row], label: str, seed: int | None) -> list[Row]:
    """The rows of one method and seed; :class:`KeyError` if there is none, or several."""
    key = choose(map(key_of, rows), label, seed)
    return [row for row in rows if key_of(row) == key]


def _drawn_on(
    ax: Axes,
    rows: Sequence[Row],
    x: str,
    y: str,
    samples: Samples | None = None,
    promised: Sequence[Row] = (),
) -> None:
    """One column of every method against another, with theorems' bounds if there are some."""
    found = curves(rows)
    styles = bounding(line_styles(found), {row["label"]: row[BOUND_OF] for row in promised})
    draw(ax, found | curves(promised), x, y, styles)
    finish(ax, axis(x), axis(y, samples=samples), zero=False)
    if x == "round":
        ax.locator_params(axis="x", integer=True)
    if shown := entries([ax]):
        ax.legend([*shown.values()], [*shown], frameon=False, fontsize="small")


def _page(
    title: str,
    table: Table,
    rows: Sequence[Row],
    goal: Goal = USUALLY,
    samples: Samples | None = None,
) -> str:
    """For a notebook: a title, a table, its notes and the curves that the runs are judged by.

    The picture brings its white paper, so that it can be read in a dark notebook too.
    """
    said = "<br>".join(map(escape, table.notes))
    parts = [f"<p><b>{escape(title)}</b></p>", *([table.html()] if rows else [])]
    parts.append(f"<p><small>{said}</small></p>" if said else "")
    y, known = goal.column(*rows), columns(rows)
    # With nothing finite to draw, as where everything diverged at once, there is no picture.
    if "round" in known and any(v == v for v in drawn(known.get(y, ()), y)):
        from matplotlib.figure import Figure

        figure = Figure(figsize=SIZE, layout="constrained")
        _drawn_on(figure.subplots(), rows, "round", y, samples)
        content = base64.b64encode(image(figure, "png", DOTS)).decode()
        about = f'alt="{escape(axis(y))} against rounds"'
        parts.append(f'<img src="data:image/png;base64,{content}" {about}>')
    return "\n".join(filter(None, parts))
