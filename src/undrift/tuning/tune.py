"""The methods of a spec, each with the settings that are best on its problem."""

from __future__ import annotations

import dataclasses
import json
import math
import shutil
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

from undrift._files import finite, read_json, write_whole
from undrift.core.method import Method
from undrift.core.options import OF_RUNS, RunOptions
from undrift.core.params import BadParameters, hints, made, not_allowed
from undrift.core.problem import Problem
from undrift.core.stopping import USUALLY, EarlyStopping, Goal
from undrift.records.folder import BadFolder, Recipe, digests
from undrift.records.folder import made as made_folder
from undrift.runs.api import DEFAULTS
from undrift.runs.calls import Methods, Save, experiment_of, settle
from undrift.runs.events import Began, Emit, Measured, ignore
from undrift.runs.jobs import ExecutorLike, pool
from undrift.runs.prepare import Task, lay_out, ready, resolve, threads
from undrift.runs.progress import Say, speaker, watched
from undrift.spec.document import toml
from undrift.spec.errors import BadSpec, Complaint
from undrift.spec.reader import load
from undrift.spec.schema import Entry, Settings, Spec, Values, as_toml
from undrift.spec.space import Several, Space, Tuning, grid_of, spaces, whole
from undrift.sweeps.search import Make, Search, Setting, Tried, Tuned, parted
from undrift.tuning.found import Tunings, note

USUAL = tuple(2.0**k for k in range(-3, 4))
"""What a step is multiplied by, where nothing is said of what to try."""
SPACE = "space.toml"
"""What was asked for."""
TRIED = "tried"
"""The folder in that of a search with what was tried of each method, which a search continues."""
TOGETHER = 8
"""Settings that Optuna is asked for at a time: they run side by side."""
OPTUNA = {"tpe": "TPESampler", "gp": "GPSampler", "qmc": "QMCSampler"}
Hear = Callable[[str, list[Tried]], object]
"""Is told the label of a method, and all of its runs so far."""


@dataclasses.dataclass(frozen=True)
class Contest:
    """Methods to be tuned on problems that are there."""

    laid: Mapping[int, Sequence[Task]]
    """The tasks, for the seed of each trial."""
    spaces: Mapping[str, Space]
    """By label."""
    tuning: Tuning
    goal: Goal
    draws: Callable[[int], int] = int

    @property
    def tasks(self) -> Sequence[Task]:
        """Those of the first trial."""
        return self.laid[self.tuning.seeds[0]]

    def search(self, k: int, make: Make, rounds: int, **how: Any) -> Search:
        """A search on the problem of the k-th task, by trials of so many rounds."""
        given = {name: v for name, v in vars(self.tasks[k].setup).items() if name != "engine"}
        problems = {seed: tasks[k].problem for seed, tasks in self.laid.items()}
        return Search(make, problems, rounds, self.goal, draws=self.draws, **given, **how)

    def tune(self, k: int, folder: Path | None, heard: Hear, emit: Emit = ignore) -> Tuned | None:
        """Tune the k-th method; what was tried of it is kept in the folder, and not run again."""
        task, tuning = self.tasks[k], self.tuning
        space = self.spaces.get(task.label) or usual(task.method)
        file = folder / TRIED / f"{k}.json" if folder else None
        if not space:
            return None

        def hear(runs: list[Tried]) -> None:
            if file:
                write_whole(file, json.dumps([finite(one.row()) for one in runs]))
            heard(task.label, runs)

        rounds, name = tuning.rounds or task.rounds, type(task.method).__name__
        for seed in tuning.seeds:
            emit(Began(task.label, seed, rounds))
        search = self.search(
            k,
            partial(_made, task),
            rounds,
            halve=tuning.halve,
            gradients=tuning.gradients,
            seconds=tuning.seconds,
            known=_kept(file) if file else (),
            heard=hear,
            looked=lambda seed, done: emit(Measured(task.label, name, seed, {"round": done})),
            apart=(*OF_RUNS, *task.method.steering),
        )
        grid = grid_of(space, type(task.method))
        with threads(task.problem, task.setup):
            if all(grid.values()):
                return search.tune(grid, tuning.extend)
            explore(search, space, type(task.method), tuning)
            return search.found()

    def tuned(self, folder: Path | None, heard: Hear, emit: Emit = ignore) -> Tunings:
        """All of them."""
        found = {task.label: self.tune(k, folder, heard, emit) for k, task in enumerate(self.tasks)}
        return Tunings({label: one for label, one in found.items() if one}, self.tuning.seeds)


def _made(task: Task, setting: dict[str, float], problem: Problem) -> Method:
    """The method of a task with other values; those left to theory follow them."""
    method = resolve(dataclasses.replace(task.written, **setting), problem, task.setup)
    return ready(dataclasses.replace(task, method=method, problem=problem)).method


def explore(search: Search, space: Space, kind: type[Method], tuning: Tuning) -> None:
    """Try ``tuning.samples`` settings of ``space``: drawn at random, or by Optuna from how earlier
    ones did.
    """

    def at(share: Callable[[str], float]) -> Setting:
        return tuple((n, whole(n, kind, some.at(share(n)))) for n, some in space.items())

    if tuning.sampler == "random":
        rng = Random(tuning.seeds[0])
        search.run([at(lambda _: rng.random()) for _ in range(tuning.samples)])
        return
    try:
        import optuna
    except ImportError:
        raise BadParameters(
            "tune",
            {"sampler": f"sampler {tuning.sampler} needs Optuna: pip install 'undrift[optuna]'"},
        ) from None
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    sampler = getattr(optuna.samplers, OPTUNA[tuning.sampler])(seed=tuning.seeds[0])
    study, left = optuna.create_study(sampler=sampler), tuning.samples
    while left > 0 and not search.over():
        asked = [study.ask() for _ in range(min(TOGETHER, left))]
        settings = [at(partial(trial.suggest_float, low=0.0, high=1.0)) for trial in asked]
        search.run(settings)
        left -= len(asked)
        # Ranks, as late, diverged and given up runs have no number that could be compared.
        order = sorted(search.tried, key=lambda setting: search.badness(search.tried[setting]))
        for trial, setting in zip(asked, settings, strict=True):
            study.tell(trial, order.index(setting) / len(order))


def usual(method: Method) -> Space:
    """What is tried where nothing is said: its step, or else what holds its steps back."""
    value = getattr(method, method.step_field, None)
    if not isinstance(value, float | int) or value <= 0:
        return {}
    return {method.step_field: Several(values=[value * factor for factor in USUAL])}


def contest_of(spec: Spec) -> Contest:
    """What ``spec``, read to be tuned, asks for. Raises :class:`BadSpec`."""
    complaints, laid = list[Complaint](), dict[int, list[Task]]()
    if both := sorted({*spec.seeds}.intersection(spec.tune.seeds)):
        text = f"seed {both[0]} is one of those that are shown: tune with others"
        raise BadSpec([spec.origin.complaint(("tune", "seed"), text)])
    for seed in spec.tune.seeds:
        laid[seed] = (
            lay_out(spec, seed, complaints) if spec.anew or not laid else laid[spec.tune.seeds[0]]
        )
        if complaints:
            raise BadSpec(complaints)
    return Contest(
        laid,
        {entry.label: entry.space for entry in spec.entries},
        spec.tune,
        goal_of(spec, spec.tune),
        spec.draws_at,
    )


def goal_of(settings: Settings, tuning: Tuning) -> Goal:
    """What settings are compared by."""
    if tuning.target is not None:
        of = tuning.goal or settings.best or USUALLY
        return EarlyStopping(metric=of.metric, mode=of.mode, target=tuning.target)
    targets = {"gap": settings.target, "accuracy": settings.target_accuracy}
    given = [EarlyStopping(metric=n, target=v) for n, v in targets.items() if v is not None]
    return tuning.goal or next(iter(given), settings.best or settings.stop or USUALLY)


def tune_spec(
    spec: Spec,
    folder: Path | None = None,
    heard: Hear = lambda *_: None,
    jobs: int | ExecutorLike = 1,
    emit: Emit = ignore,
) -> Tunings:
    """Tune every method of a spec that was read for it; what is in ``folder`` is not run again.

    ``jobs`` processes, or those of an executor, take a method each.
    """
    if jobs != 1 and folder is not None:
        with pool(jobs, len(spec.entries)) as processes:
            parts = [
                processes.submit(tune_part, str(folder.absolute()), k)
                for k in range(len(spec.entries))
            ]
            for k, part in enumerate(parts):
                part.result()
                heard(spec.entries[k].label, _kept(folder / TRIED / f"{k}.json"))
    found = contest_of(spec).tuned(folder, heard, emit)
    entries = [
        _settled(entry, found[entry.label]) if entry.label in found else entry
        for entry in spec.entries
    ]
    found.spec = dataclasses.replace(
        spec,
        name=f"{spec.name[:93]}-tuned",  # a name has at most 100 letters
        entries=tuple(entries),
    )
    if folder:
        found.write(folder)
    return found


def tune_part(folder: str, k: int) -> None:
    """Tune the k-th method of the search in a folder, and keep there what was tried."""
    spec = load(Path(folder) / SPACE, tune=True)
    contest_of(spec).tune(k, Path(folder), lambda *_: None)


def told(say: Say, label: str, runs: list[Tried]) -> None:
    """Say how far the search of a method is."""
    settings = len({one.setting for one in runs})
    say(f"{label}: {settings} settings, {sum(one.gradients for one in runs):,} gradients")


def begin(recipe: Recipe, folder: Path, afresh: bool = False) -> None:
    """A folder for a search; one that holds another search is refused, or emptied of it."""
    file, document = folder / SPACE, recipe.document()
    if isinstance(recipe, Spec):
        document["tune"] = as_toml(recipe.tune)
    asked = {**recipe.sources, SPACE: toml(document).encode()}
    there = {name: (folder / name).read_bytes() for name in asked if (folder / name).exists()}
    if afresh:
        shutil.rmtree(folder / TRIED, ignore_errors=True)
    elif file.exists() and there != asked:
        changed = ", ".join(name for name in asked if there.get(name) != asked[name])
        raise BadFolder(
            f"{folder} holds another search, by its {changed}: --overwrite replaces it, or use "
            "-s name=NAME, in Python another folder"
        )
    made_folder(folder)
    for name, content in asked.items():
        write_whole(folder / name, content)


def _kept(file: Path) -> list[Tried]:
    """What an earlier search has tried."""
    rows = read_json(file.read_bytes()) if file.exists() else []
    return [
        Tried(
            **row
            | {
                "setting": tuple(row["setting"].items()),
                "value": math.nan if row["value"] is None else row["value"],
            }
        )
        for row in rows
    ]


def _settled(entry: Entry, found: Tuned) -> Entry:
    """A method of a spec with the values that were found, and beside it how."""
    numbers, own = parted(found.best)
    return dataclasses.replace(
        entry,
        method=dataclasses.replace(entry.method, **numbers),
        options=made(RunOptions, vars(entry.options) | own),
        given={**entry.given, **own},
        space={},
        tuned=note(found),
    )


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
        **settings: as those of :func:`undrift.run`; progress is shown as there.

    >>> import undrift as ud
    >>> found = ud.tune(ud.Scaffold(lr=0.1), "quadratic", {"lr": [0.01, 0.04]}, rounds=30, steps=4)
    >>> found["Scaffold"].best
    {'lr': 0.04}
    """
    how, folder = made(Tuning, tuning or {}), Path(save) if save else None
    given: Values = {name: settings.pop(name, usual) for name, usual in DEFAULTS.items()}
    call = settle(method, problem, {**given, "rounds": rounds}, settings)
    experiment = experiment_of(call._replace(save=Save(folder or "tuned")))
    wanted, recipe = _spaces(experiment.tasks, space or {}), experiment.recipe
    if isinstance(recipe, Spec):
        entries = [dataclasses.replace(e, space=wanted[e.label]) for e in recipe.entries]
        recipe = dataclasses.replace(recipe, entries=tuple(entries), tune=how)
    elif jobs != 1:
        text = "several processes need a named problem and methods of undrift's own"
        raise BadParameters("tune", {"jobs": text})
    else:
        known = {name: str(value) for name, value in digests(vars(experiment)).items()}
        asked = as_toml({"space": wanted, "tune": how, "code": known})
        recipe = dataclasses.replace(recipe, tables=recipe.tables | asked)
    if folder:
        begin(recipe, folder)
    heard = partial(told, speaker(given["progress"]))
    laid = dict.fromkeys(how.seeds, experiment.tasks)
    with watched(given["progress"], wanted, how.seeds, "", ignore) as emit:
        if isinstance(recipe, Spec):
            return tune_spec(recipe, folder, heard, jobs, emit)
        contest = Contest(laid, wanted, how, goal_of(call.settings, how))
        found = contest.tuned(folder, heard, emit)
    if folder:
        found.write(folder)
    return found


def _spaces(tasks: Sequence[Task], given: Mapping[str, object]) -> dict[str, Space]:
    """What is to be tried of each method."""
    if not isinstance(given, Mapping):
        text = not_allowed("space", given, 'a table, as {"lr": [0.1, 0.2]}')
        raise BadParameters("tune", {"space": text})
    found, shared, wrong = dict[str, Space](), {*given} - {task.label for task in tasks}, set[str]()
    for task in tasks:
        own = given.get(task.label)
        table = own if isinstance(own, Mapping) else given
        several = spaces(table, type(task.method))
        found[task.label] = {name: Several.read(value) for name, value in several.items()}
        shared -= several.keys()
        wrong |= table.keys() - several.keys() if table is own else set()
    if wrong := wrong | shared:
        known = sorted({name for task in tasks for name in hints(type(task.method))})
        text = f"no method has {', '.join(sorted(wrong))} with several values; there are "
        raise BadParameters("tune", {"space": text + ", ".join(known)})
    return found
