"""The theorems' bounds on f(x) - f* as rows beside those of runs, or why there are none."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Sequence

import torch

from undrift.core.method import Method
from undrift.core.options import RunOptions
from undrift.core.problem import COLUMNS, Problem
from undrift.plots.columns import BOUND_OF
from undrift.records.folder import BadFolder, Row
from undrift.report.comparison import RunOnDisk
from undrift.runs.experiment import make
from undrift.runs.prepare import constants_of
from undrift.spec.reader import load
from undrift.spec.user_files import distrust
from undrift.theory import Known, NoRule, Promise, Start

IN_PYTHON = "runs.plot(bounds=True), in the program that made it"
Case = tuple[str, Method, Problem, RunOptions, Sequence[Row]]
"""A method by its label, as it was run with one seed, and its rows from the start on."""


def bounds_of(cases: Iterable[Case]) -> tuple[list[Row], list[str]]:
    """Bounds as rows with labels of their own, and sentences about those that there are not."""
    rows, without = list[Row](), list[str]()
    for case in cases:
        try:
            rows += _promised(*case)
        except NoRule as error:
            without.append(f"No bound for {case[0]}: {error.reason}.")
    return rows, without


def _promised(
    label: str, method: Method, problem: Problem, options: RunOptions, rows: Sequence[Row]
) -> Iterator[Row]:
    promise, first = vars(type(method)).get("promise"), rows[0]
    if not isinstance(promise, Promise):
        raise NoRule("no theorem on f(x) - f* is written down for it")
    usual = dict(vars(RunOptions())) | {"steps": options.steps, "judge": options.judge}
    other = [name for name, value in usual.items() if getattr(options, name) != value]
    if other or problem.keyed:
        raise NoRule(f"its theorem is not about {' or '.join(other or ['noise'])}")
    if (best := problem.optimum) is None or "gap" not in first:
        raise NoRule("needs f*, which the problem does not know")
    constants, estimated = constants_of(problem)
    known = Known(constants, max(options.local_steps(problem.samples)))
    promise.refuse(method, known)
    with torch.no_grad():
        point = best.to(problem.device, problem.dtype).expand(problem.clients, -1)
        spread2 = float(problem.at(None).grad(point).square().sum(-1).mean())
    start = Start(first["gap"], first["distance"] ** 2, spread2)
    about = f"{promise.theorem}, estimated constants" if estimated else promise.theorem
    name = {"label": f"{label}: bound{promise.of} ({about})", BOUND_OF: label}
    for row in rows[1:]:
        spent = {"seed": 0} | {n: v for n, v in row.items() if n in COLUMNS and n != "drift"}
        yield spent | name | {"gap": promise.gap(method, known, start, row[promise.per])}


def recorded(run: RunOnDisk) -> Iterator[Case]:
    """The methods of a recorded run with its first seed, by what its spec builds."""
    if run.folder.from_python:
        raise BadFolder(f"{run.folder.path}: its bounds are drawn by {IN_PYTHON}")
    experiment = make(load(run.folder.file("spec.toml"), code=distrust(IN_PYTHON)))
    ran = {(outcome.label, outcome.seed): outcome.values for outcome in run.outcomes}
    for task in experiment.tasks:
        key = run.prefix + task.label, experiment.seeds[0]
        rows = [row for row in run.rows if (row["label"], row["seed"]) == key]
        if rows and key in ran:
            method = dataclasses.replace(task.method, **ran[key])
            yield key[0], method, task.problem, task.setup, rows
