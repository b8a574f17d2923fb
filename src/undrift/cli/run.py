"""``run`` and ``resume``: a spec becomes a folder and a table."""

from __future__ import annotations

import dataclasses
import errno
import json
import os
import traceback
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from undrift.cli.folders import missing, place
from undrift.cli.output import FAILED, OK, refuse, result, result_json, say
from undrift.report.summary import aim, metric, print_summaries, summarise
from undrift.report.text import count
from undrift.runs.folder import FILES, BadFolder, Folder, Outcome
from undrift.spec.errors import BadSpec
from undrift.spec.overrides import Flag
from undrift.spec.reader import load
from undrift.spec.schema import Spec
from undrift.spec.vary import varied

if TYPE_CHECKING:
    from undrift.cli.experiment import Experiment, Stop


def run(
    source: str, changes: Sequence[str], root: Path, overwrite: bool, check: bool, pause: float | None, store: str,
    as_json: bool, logs: Sequence[str] = (),
) -> int:  # fmt: skip
    with refusing():
        loggable(logs)
        flags: list[str | Flag] = [*changes, *placed(store)]
        spec = load(source, flags, lambda files: executes(Path(source).parent, files))
        if check:
            from undrift.cli.rehearse import rehearse

            return rehearse(spec, store, as_json)
        folder = Folder(root / spec.name)
        state = folder.state(spec)
        if overwrite:
            return perform(spec, folder, False, pause, store, as_json, logs)
        if state == "other":
            remedy = "Use --overwrite to replace it, or another name: -s name=NAME"
            same = folder.document() == spec.document()
            what = (
                f"a run of this spec with other code ({', '.join(spec.sources)})"
                if same
                else "another spec's run"
            )
            refuse([f"{folder.path} holds {what}"], remedy)
        if state == "same":
            known(spec, folder)
            folder.tidy()
            unlogged = ", so nothing was logged" * bool(logs)
            say(f"{folder.path} holds this run already{unlogged}; --overwrite runs it again.")
            return report(folder, as_json)
        return perform(spec, folder, state == "unfinished", pause, store, as_json, logs)


def resume(
    name: str,
    pause: float | None,
    store: str,
    as_json: bool,
    logs: Sequence[str] = (),
    trust: bool = False,
) -> int:
    with refusing():
        loggable(logs)
        folder = Folder(place(name))
        if wrong := missing(name):
            refuse([wrong])
        if not folder.file("spec.toml").is_file():
            raise BadFolder(f"{folder.path} is not the folder of a run: there is no spec.toml")
        if folder.complete:
            folder.tidy()
            say(f"{folder.path} is finished" + ", so nothing was logged" * bool(logs) + ".")
            return report(folder, as_json)
        spec = load(
            folder.file("spec.toml"),
            placed(store),
            code=lambda files: (executes if trust else distrust)(folder.path, files),
        )
        if folder.state(spec) == "other":
            raise BadFolder(
                f"{folder.file('spec.toml')} is from another version of undrift: run the spec it came from"
            )
        return perform(spec, folder, True, pause, store, as_json, logs)


def placed(store: str) -> list[Flag]:
    """What ``--store`` changes in a spec."""
    return [] if store == "auto" else [Flag(f"engine.store={store}", f"--store {store}")]


def executes(place: Path, files: Mapping[str, Sequence[str]]) -> None:
    """Say whose code is about to be executed."""
    for file, labels in files.items():
        say(f"Executes {place / file}: the Python code of {', '.join(labels)}.")


def distrust(place: Path, files: Mapping[str, Sequence[str]]) -> None:
    """Refuse the code that a folder brings."""
    named = ", ".join(f"{place / file} ({', '.join(labels)})" for file, labels in files.items())
    refuse(
        [
            f"{named}: Python code in the folder, which would be executed. If you trust it: {again(place, files)}"
        ]
    )


def again(place: Path, code: Collection[str]) -> str:
    """The command that goes on with a run; a folder that brings code has to be trusted."""
    return f"undrift resume {place}" + " --trust" * bool(code)


def writable(path: Path) -> None:
    """Refuse a folder that cannot be made or written; trying leaves nothing behind."""
    new: list[Path] = []
    try:
        new += [place for place in (path, *path.parents) if not place.exists()]
        path.mkdir(parents=True, exist_ok=True)
        if not os.access(path, os.W_OK | os.X_OK):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
    except OSError as error:
        refuse([f"{path}: {error.strerror or error}: nothing can be kept there"])
    finally:
        for place in new:
            with suppress(OSError):
                place.rmdir()


def loggable(logs: Sequence[str]) -> None:
    if logs:
        from undrift.runs.loggers import missing

        if wrong := missing(logs):
            refuse(wrong)


@contextmanager
def refusing() -> Iterator[None]:
    """What is wrong with a spec or a folder is told, and nothing is run."""
    try:
        yield
    except (BadSpec, BadFolder) as error:
        refuse(getattr(error, "complaints", [error]))
    except BrokenPipeError:
        raise
    except OSError as error:
        say(f"{error.filename}: {error.strerror or error}")
        raise SystemExit(FAILED) from None


def perform(
    spec: Spec,
    folder: Folder,
    again: bool,
    pause: float | None,
    store: str,
    as_json: bool,
    logs: Sequence[str] = (),
) -> int:
    """Run what is left of a spec."""
    from undrift.cli.experiment import Stop, make

    writable(folder.path)
    say(
        f"{spec.name}: {count(len(spec.entries), 'method')} on {spec.problem_name}, {count(len(spec.seeds), 'seed')}"
    )
    experiment = make(spec, store)
    say(experiment.takes)
    try:
        (go_on if again else begin)(folder, experiment)
        share(folder, experiment)
        if logs:
            from undrift.runs.loggers import Log

            folder.listeners.append(Log(folder, logs, say))
        stop = Stop()
        outcomes = work(folder, experiment, pause, stop)
        if outcomes is None:
            return interrupted(folder, spec, stop)
        draw(folder, spec)
        folder.finish(outcomes)
    except OSError as error:
        return broken(folder, spec, error)
    except (BadSpec, BadFolder):
        raise
    except (Exception, KeyboardInterrupt) as error:
        unfinished(folder, spec, error)
        raise
    finally:
        folder.close()
    code = report(folder, as_json)
    say(
        f"\nKept in {folder.path}: {', '.join(name for name in FILES if folder.file(name).exists())}"
    )
    say(f"In a browser: undrift report {folder.path}")
    return code


def go_on(folder: Folder, experiment: Experiment) -> None:
    """A folder that holds a part of the run."""
    from undrift.runs.environment import environment

    spec, before = experiment.spec, folder.environment
    if before.get("spec", spec.identity) != spec.identity:
        raise BadFolder(
            f"{' or '.join(['spec.toml', *spec.sources])} in {folder.path} is not what this run was begun with; put "
            "that back, or "
            "run this one elsewhere: undrift run SPEC -s name=NAME"
        )
    same_data(folder, experiment.data)
    for text in folder.resume(
        {(entry.label, seed) for entry in spec.entries for seed in spec.seeds}
    ):
        say(f"{text}: what is missing is run again.")
    say(
        f"Goes on in {folder.path}: {len(folder.outcomes())} of {len(spec.entries) * len(spec.seeds)} are done."
    )
    now = {
        key: value
        for key, value in environment(spec.device).items()
        if before.get(key, value) != value
    }
    if now:
        changes = ", ".join(f"{key} was {before[key]} and is {value}" for key, value in now.items())
        say(
            f"Since it began, {changes}: its numbers may differ from those of a run without a break."
        )
        folder.log(f"goes on where {changes}")


def known(spec: Spec, folder: Folder) -> None:
    """Whether a finished run is one on the data that are there now."""
    from undrift.cli.experiment import make

    data = None
    if "data" in folder.environment:
        try:
            data = make(spec).data
        except BadSpec as error:
            say(f"The data cannot be loaded now: {error}")
    same_data(folder, data)


def same_data(folder: Folder, data: str | None) -> None:
    """Refuse a folder of a run on other data than ``data``."""
    before = folder.environment.get("data")
    if before is None or data is None:
        say(
            f"Whether {folder.path} was run on the same data cannot be told: there is no digest of them."
        )
    elif before != data:
        raise BadFolder(
            f"{folder.path} holds a run of this spec on other data: their digest was {str(before)[:12]} and is "
            f"{data[:12]}. Put those data back, or run it anew: undrift run SPEC --overwrite, or -s name=NAME"
        )


def begin(folder: Folder, experiment: Experiment) -> None:
    """An empty folder for a new run."""
    from undrift.runs.environment import environment

    chosen = [
        f"{task.entry.label}: {', '.join(f'{f} = {getattr(task.method, f):.6g}' for f in fields)} (theory)"
        for task in experiment.tasks
        if (fields := task.entry.method.open_fields())
    ]
    about = {"note": experiment.note, "spec": experiment.spec.identity, "data": experiment.data}
    about = {key: value for key, value in about.items() if value}
    folder.start(experiment.spec, environment(experiment.spec.device) | about, chosen)


def share(folder: Folder, experiment: Experiment) -> None:
    """Who holds what, where samples have classes."""
    problem = experiment.tasks[0].problem
    counts = problem.label_counts()
    if counts is not None and not folder.file("partition.json").exists():
        share = {"classes": list(problem.class_names), "counts": counts.long().tolist()}
        folder.write("partition.json", json.dumps(share) + "\n")


def work(
    folder: Folder, experiment: Experiment, pause: float | None, stop: Stop
) -> list[Outcome] | None:
    """How every method ended with every seed; ``None`` if the user stopped it."""
    from undrift.cli.progress import progress

    bar, outcomes = progress(note=experiment.note), []
    try:
        with stop, suppress(KeyboardInterrupt):
            for outcome in experiment.perform(folder, bar, stop, pause):
                outcomes.append(outcome)
                same = (
                    f"as seed {outcome.same_as}, for no seed changes it"
                    if outcome.same_as is not None
                    else ""
                )
                folder.log(
                    f"{outcome.label}, seed {outcome.seed}: {same or outcome.note or outcome.status}"
                )
    finally:
        bar.close()
    spec = experiment.spec
    whole = (
        len(outcomes) == len(spec.entries) * len(spec.seeds) and outcomes[-1].status != "stopped"
    )
    return outcomes if whole else None


def interrupted(folder: Folder, spec: Spec, stop: Stop) -> int:
    folder.log("interrupted")
    rows = folder.rows() if folder.file("metrics.jsonl").exists() else []
    say(f"Interrupted. Kept: {count(len(rows), 'row')} in {folder.file('metrics.jsonl')}.")
    say(
        f"Go on: {again(folder.path, spec.sources)}"
        + f". See them: undrift compare {folder.path}" * bool(rows)
    )
    return stop.code


def unfinished(folder: Folder, spec: Spec, error: BaseException) -> None:
    """Before the end by an error that nobody foresaw: the log has all of it, and the rows are kept."""
    if folder.file("spec.toml").is_file():
        if isinstance(error, Exception):
            folder.log("".join(traceback.format_exception(error)).rstrip())
        say(
            f"What was measured before is kept in {folder.path}. Go on: {again(folder.path, spec.sources)}"
        )


def broken(folder: Folder, spec: Spec, error: OSError) -> int:
    """The folder cannot be written any more."""
    say(f"{error.filename or folder.path}: {error.strerror or error}")
    if folder.file("spec.toml").is_file():
        say(
            f"What was measured before is kept. Once there is room to write: {again(folder.path, spec.sources)}"
        )
    return FAILED


def draw(folder: Folder, spec: Spec) -> None:
    from undrift.report.figures import image, panels

    rows = folder.rows() if folder.file("metrics.jsonl").exists() else []
    if rows:
        column, title = metric(rows), f"{spec.name}: {spec.problem_name}"
        figure = panels(
            {title: rows}, aim(spec.document(), column), smooth=spec.smooth, note=folder.note
        )
        folder.write(f"{column}.png", image(figure))


def report(folder: Folder, as_json: bool) -> int:
    """The table of a finished run, on standard output; the exit code."""
    rows, outcomes = folder.rows(), folder.outcomes()
    target = aim(folder.document(), metric(rows))
    summaries = summarise(rows, target, outcomes)
    if as_json:
        result_json(
            {
                "name": folder.name,
                "folder": str(folder.path),
                "target": target,
                "note": folder.note,
                "varied": varied(folder.document()),
                "methods": [s.document() for s in summaries],
                "runs": [dataclasses.asdict(outcome) for outcome in outcomes],
            }
        )
    else:
        result(
            print_summaries(summaries, target, note=folder.note, varied=[varied(folder.document())])
        )
        for note in notes(outcomes):
            result(note)
    return FAILED if all(o.status in ("diverged", "failed") for o in outcomes) else OK


def notes(outcomes: Sequence[Outcome]) -> list[str]:
    """What went wrong and what to try, once per method."""
    first = {outcome.label: outcome for outcome in reversed(outcomes) if outcome.note}
    return [f"\n{label} {outcome.note}" for label, outcome in reversed(first.items())]
