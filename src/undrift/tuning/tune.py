"""The methods of a spec, each with the settings that are best on its problem."""

from __future__ import annotations

import dataclasses
import json
import shutil
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from undrift._files import finite, read_json, write_whole
from undrift.core.cohort import Sampling
from undrift.core.method import Method
from undrift.core.options import OF_RUNS, RunOptions
from undrift.core.params import BadParameters, made, values
from undrift.core.problem import Problem
from undrift.core.stopping import USUALLY, EarlyStopping, Goal
from undrift.records.folder import BadFolder
from undrift.records.folder import made as made_folder
from undrift.runs.api import DEFAULTS
from undrift.runs.calls import Methods, Save, experiment_of, settle
from undrift.runs.jobs import ExecutorLike, pool
from undrift.runs.prepare import Task, lay_out, resolve, threads
from undrift.spec.document import toml
from undrift.spec.errors import BadSpec, Complaint
from undrift.spec.reader import load
from undrift.spec.schema import Spec, as_toml
from undrift.spec.space import Several, Space, Tuning, spaces, whole
from undrift.sweeps.search import Limits, Make, Search, Tried
from undrift.tuning.found import Tunings
from undrift.tuning.samplers import explore

USUAL = tuple(2.0**k for k in range(-3, 4))
"""What a step is multiplied by, where nothing is said of what to try."""
SPACE = "space.toml"
"""What was asked for."""
TRIED = "tried"
"""The folder in that of a search with what was tried of each method, which a search continues."""
Hear = Callable[[str, list[Tried]], object]
"""Is told the label of a method, and all of its runs so far."""


@dataclasses.dataclass(frozen=True)
class Contest:
    """Methods to be tuned on problems that are there."""

    tasks: Sequence[Task]
    problems: Mapping[int, Sequence[Problem]]
    """Those of the tasks, for the seed of each trial."""
    spaces: Mapping[str, Space]
    """By label."""
    tuning: Tuning
    goal: Goal
    draws: Callable[[int], int] = int

    def tune(self, k: int, known: Sequence[Tried], heard: Hear) -> Tunings:
        """The k-th method."""
        task, tuning = self.tasks[k], self.tuning
        space = self.spaces.get(task.label) or usual(task.method)
        if not space:
            return Tunings()
        given = {name: value for name, value in vars(task.setup).items() if name != "engine"}
        search = Search(
            _maker(task),
            {seed: problems[k] for seed, problems in self.problems.items()},
            tuning.rounds or task.rounds,
            self.goal,
            halve=tuning.halve,
            limits=Limits(tuning.gradients or float("inf"), tuning.seconds or float("inf")),
            known=known,
            heard=lambda runs: heard(task.label, runs),
            draws=self.draws,
            apart=(*OF_RUNS, *task.method.steering),
            **given,
        )
        kind = type(task.method)
        grids = {name: some.grid() for name, some in space.items()}
        with threads(task.problem, task.setup):
            if None in grids.values():
                explore(search, space, kind, tuning)
                found = search.found()
            else:
                grid = {n: [whole(n, kind, v) for v in g or ()] for n, g in grids.items()}
                found = search.tune(grid, tuning.extend)
        return Tunings({task.label: found}, search.rounds, self.goal, tuning.seeds)


def _maker(task: Task) -> Make:
    """Makes the method of a task with other values; those left to theory follow them."""

    def make(setting: dict[str, float], problem: Problem) -> Method:
        method = resolve(dataclasses.replace(task.written, **setting), problem, task.setup)
        if reasons := dataclasses.replace(task, method=method, problem=problem).refuse():
            raise BadParameters(task.label, dict(reasons))
        return method

    return make


def usual(method: Method) -> Space:
    """What is tried where nothing is said: its step, or else what holds its steps back."""
    for name in (*method.step_sizes, *method.proximal_weights):
        value = getattr(method, name, None)
        if isinstance(value, float | int) and value > 0:
            return {name: Several(values=[value * factor for factor in USUAL])}
    return {}


def contest_of(spec: Spec) -> Contest:
    """What ``spec``, read to be tuned, asks for. Raises :class:`BadSpec`."""
    complaints: list[Complaint] = []
    tuning, shown = spec.tune, {*spec.seeds}
    if both := sorted(shown.intersection(tuning.seeds)):
        text = f"seed {both[0]} is one of those that are shown: tune with others"
        raise BadSpec([spec.origin.complaint(("tune", "seed"), text)])
    first, *others = tuning.seeds
    tasks = lay_out(spec, first, complaints)
    problems = {first: [task.problem for task in tasks]}
    for seed in others:
        again = lay_out(spec, seed, complaints) if spec.anew and not complaints else tasks
        problems[seed] = [task.problem for task in again]
    if complaints:
        raise BadSpec(complaints)
    by_label = {entry.label: entry.space for entry in spec.entries}
    return Contest(tasks, problems, by_label, tuning, goal_of(spec), spec.draws_at)


def goal_of(spec: Spec) -> Goal:
    """What settings are compared by."""
    tuning, goal = spec.tune, spec.tune.goal
    targets = {"gap": spec.target, "accuracy": spec.target_accuracy}
    if tuning.target is not None:
        of = goal or spec.best or USUALLY
        return EarlyStopping(metric=of.metric, mode=of.mode, target=tuning.target)
    for metric, target in targets.items():
        if target is not None and goal is None:
            return EarlyStopping(metric=metric, target=target)
    return goal or spec.best or spec.stop or USUALLY


def tune_spec(
    spec: Spec,
    folder: Path | None = None,
    heard: Hear = lambda *_: None,
    jobs: int | ExecutorLike = 1,
) -> Tunings:
    """Tune every method of a spec that was read for it; what is in ``folder`` is not run again.

    ``jobs`` processes, or those of an executor, take a method each.
    """
    if jobs != 1 and folder is not None:
        with pool(jobs, len(spec.entries)) as processes:
            numbers = range(len(spec.entries))
            parts = [processes.submit(tune_part, str(folder.absolute()), k) for k in numbers]
            for k, part in enumerate(parts):
                part.result()
                heard(spec.entries[k].label, _kept(folder / TRIED / f"{k}.json"))
    found = tune_all(contest_of(spec), folder, heard)
    found.spec = tuned_spec(spec, found)
    if folder:
        found.write(folder)
    return found


def tune_part(folder: str, k: int) -> None:
    """Tune the k-th method of the search in a folder, and keep there what was tried."""
    file = Path(folder) / TRIED / f"{k}.json"
    contest = contest_of(load(Path(folder) / SPACE, tune=True))
    contest.tune(k, _kept(file), _keeper(file, lambda *_: None))


def begin(spec: Spec, folder: Path, afresh: bool = False) -> None:
    """A folder for a search; one that holds another search is refused, or emptied of it."""
    file, asked = folder / SPACE, spec.document() | {"tune": as_toml(values(spec.tune))}
    if file.exists() and file.read_text(encoding="utf-8") != toml(asked):
        if not afresh:
            text = f"{folder} holds another search: --overwrite replaces it, or use -s name=NAME"
            raise BadFolder(text)
        shutil.rmtree(folder / TRIED, ignore_errors=True)
    made_folder(folder)
    for name, content in spec.sources.items():
        write_whole(folder / name, content)
    write_whole(file, toml(asked))


def tune_all(contest: Contest, folder: Path | None, heard: Hear) -> Tunings:
    """Tune every method, and keep what was tried in a folder."""
    found = Tunings({}, contest.tasks[0].rounds, contest.goal, contest.tuning.seeds)
    for k in range(len(contest.tasks)):
        file = folder / TRIED / f"{k}.json" if folder else None
        one = contest.tune(k, _kept(file), _keeper(file, heard))
        found.update(one)
        found.rounds = one.rounds or found.rounds
    return found


def _kept(file: Path | None) -> list[Tried]:
    """What an earlier search has tried."""
    if file is None or not file.exists():
        return []
    nothing = float("nan")
    rows: list[Any] = read_json(file.read_bytes())
    return [
        Tried(
            tuple((name, value) for name, value in row.pop("setting").items()),
            **{**row, "value": nothing if row["value"] is None else row["value"]},
        )
        for row in rows
    ]


def _keeper(file: Path | None, heard: Hear) -> Hear:
    def keep(label: str, runs: list[Tried]) -> None:
        if file is not None:
            rows = [one._asdict() | {"setting": dict(one.setting)} for one in runs]
            write_whole(file, json.dumps(finite(rows)))
        heard(label, runs)

    return keep


def tuned_spec(spec: Spec, found: Tunings) -> Spec:
    """The spec with the values that were found, and beside each method how."""
    entries = []
    for entry in spec.entries:
        if entry.label in found:
            best = found[entry.label].best
            own = {name: value for name, value in best.items() if name in OF_RUNS}
            of_run = vars(entry.options) | own
            if "cohort" in own:
                of_run["cohort"] = Sampling(int(own["cohort"]))
            numbers = {name: value for name, value in best.items() if name not in OF_RUNS}
            entry = dataclasses.replace(
                entry,
                method=dataclasses.replace(entry.method, **numbers),
                options=RunOptions(**of_run),
                given={**entry.given, **own},
                space={},
                tuned=found.note(entry.label),
            )
        entries.append(entry)
    name = f"{spec.name[:93]}-tuned"  # a name has at most 100 letters
    return dataclasses.replace(spec, name=name, entries=tuple(entries))


def tune(
    method: Methods,
    problem: Problem | str | Mapping[str, object],
    space: Mapping[str, object] | None = None,
    *,
    rounds: int,
    tuning: Tuning | Mapping[str, object] | None = None,
    save: str | Path | None = None,
    jobs: int | ExecutorLike = 1,
    **settings: object,
) -> Tunings:
    """Find the best hyper-parameters of methods on a problem, each by the same effort.

    Settings of one method are run side by side; see docs/step-sizes.md.

    Args:
        method: a method, several, or a mapping from labels to methods; what is not tuned stays.
        problem: as that of :func:`undrift.run`.
        space: values to try by hyper-parameter, of all methods that have it, or such a table for
            each label: a list, or ``{"log": [0.001, 1], "n": 8}``, ``{"linear": [0, 1], "n": 5}``,
            which are drawn without an n; also of steps, batch and cohort. Left out: lr, from an
            eighth to eight times the given one.
        rounds: rounds of a trial.
        tuning: how to search: an undrift.Tuning of seed, goal, target, halve, extend, samples,
            sampler, gradients and seconds.
        save: a folder for what was tried, a table and a picture; the same call continues there.
        jobs: processes that share the methods of a search that is saved, or an executor of them.
        **settings: as those of :func:`undrift.run`.

    >>> import undrift as ud
    >>> found = ud.tune(ud.Scaffold(lr=0.1), "quadratic", {"lr": [0.01, 0.04]}, rounds=30, steps=4)
    >>> found["Scaffold"].best
    {'lr': 0.04}
    """
    how = made(Tuning, tuning or {})
    given = {name: settings.pop(name, usual) for name, usual in DEFAULTS.items()}
    call = settle(method, problem, {**given, "rounds": rounds}, settings)
    folder = Path(save) if save else None
    experiment = experiment_of(call._replace(save=Save(folder or "tuned")))
    wanted = {task.label: _space(task, space or {}) for task in experiment.tasks}
    known = {*wanted, *(name for some in wanted.values() for name in some)}
    if wrong := [name for name in space or {} if name not in known]:
        text = f"no method has {', '.join(wrong)} with several values"
        raise BadParameters("tune", {"space": text})
    if isinstance(recipe := experiment.recipe, Spec):
        entries = [dataclasses.replace(e, space=wanted[e.label]) for e in recipe.entries]
        spec = dataclasses.replace(recipe, entries=tuple(entries), tune=how)
        if folder:
            begin(spec, folder)
        return tune_spec(spec, folder, jobs=jobs)
    if jobs != 1:
        text = "several processes need a named problem and methods of undrift's own"
        raise BadParameters("tune", {"jobs": text})
    goal = how.goal or call.observers.best or call.observers.stop or USUALLY
    if how.target is not None:
        goal = EarlyStopping(metric=goal.metric, mode=goal.mode, target=how.target)
    tasks, problems = experiment.tasks, [task.problem for task in experiment.tasks]
    contest = Contest(tasks, {seed: problems for seed in how.seeds}, wanted, how, goal)
    found = tune_all(contest, folder, lambda *_: None)
    if folder:
        found.write(folder)
    return found


def _space(task: Task, given: Mapping[str, object]) -> Space:
    """What is to be tried of one method."""
    kind, own = type(task.method), given.get(task.label, given)
    table = own if isinstance(own, Mapping) else {}
    own = {name: [*v] if isinstance(v, tuple) else v for name, v in table.items()}
    written = spaces(own, kind)
    others = {name for name in own if name not in written}
    if task.label in given and others:
        text = f"{kind.__name__} has no {', '.join(others)} with several values"
        raise BadParameters("tune", {"space": text})
    return {name: Several.read(value) for name, value in written.items()}
