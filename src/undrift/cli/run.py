"""``run``: a spec becomes a folder and a table."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from undrift.cli.talk import FAILED, INTERRUPTED, OK, refuse, result, result_json, say
from undrift.report.summary import Summary, print_summaries, summarise
from undrift.report.text import count
from undrift.runs.folder import FILES, BadFolder, Folder, Outcome
from undrift.runs.spec import BadSpec, Spec, load

ENDS = {"done": "all rounds run", "reached": "target reached", "stopped": "stopped by you"}


def run(source: str, changes: Sequence[str], root: Path, overwrite: bool, as_json: bool) -> int:
    try:
        spec = load(source, changes)
        folder = Folder(root / spec.name)
        state = folder.state(spec)
        if state == "same" and not overwrite:
            say(f"{folder.path} holds this run already; --overwrite runs it again.")
            return report(folder, spec.target, as_json)
        if state in ("other", "unfinished") and not overwrite:
            why = "another spec's run" if state == "other" else "this run, unfinished"
            refuse([f"{folder.path} holds {why}"], "Use --overwrite to replace it, or another name: -s name=NAME")
        return perform(spec, folder, as_json)
    except (BadSpec, BadFolder) as error:
        refuse(getattr(error, "complaints", [error]))
    except OSError as error:
        say(f"{error.filename or root}: {error.strerror or error}")
        return FAILED


def perform(spec: Spec, folder: Folder, as_json: bool) -> int:
    from undrift.cli.experiment import Stop, make
    from undrift.cli.progress import progress
    from undrift.runs.environment import environment

    say(f"{spec.name}: {count(len(spec.entries), 'method')} on {spec.problem_name}, {count(len(spec.seeds), 'seed')}")
    experiment = make(spec)
    chosen = [
        f"{entry.label}: {', '.join(f'{f} = {getattr(method, f):.6g}' for f in entry.method.open_fields())} (theory)"
        for entry, method in zip(spec.entries, experiment.methods, strict=True)
        if entry.method.open_fields()
    ]
    folder.start(spec, environment(spec.device), chosen)
    bar, outcomes = progress(), []
    try:
        with Stop() as stop, suppress(KeyboardInterrupt):
            for outcome in experiment.perform(folder.append, bar, stop):
                outcomes.append(outcome)
                folder.log(f"{outcome.label}, seed {outcome.seed}: {outcome.note or outcome.status}")
    finally:
        bar.close()
    if len(outcomes) < len(spec.entries) * len(spec.seeds) or outcomes[-1].status == "stopped":
        return interrupted(folder)
    folder.finish(outcomes)
    draw(folder, spec)
    code = report(folder, spec.target, as_json)
    say(f"\nKept in {folder.path}: {', '.join(name for name in FILES if folder.file(name).exists())}")
    return code


def interrupted(folder: Folder) -> int:
    folder.log("interrupted")
    folder.close()
    rows = folder.rows() if folder.file("metrics.jsonl").exists() else []
    say(f"Interrupted. Kept: {len(rows)} rows in {folder.file('metrics.jsonl')}.")
    if rows:
        say(f"See them: undrift compare {folder.path}. Start again: the same command with --overwrite.")
    return INTERRUPTED


def draw(folder: Folder, spec: Spec) -> None:
    from undrift.report.figures import panels, save

    title = f"{spec.name}: {spec.problem_name}"
    save(panels({title: folder.rows()}, spec.target), folder.file("gap.png"))


def report(folder: Folder, target: float | None, as_json: bool) -> int:
    """The table of a finished run, on standard output; the exit code."""
    rows, outcomes = folder.rows(), folder.outcomes()
    summaries = with_outcomes(summarise(rows, target), outcomes)
    if as_json:
        result_json(
            {
                "name": folder.name,
                "folder": str(folder.path),
                "target": target,
                "methods": [dataclasses.asdict(s) for s in summaries],
                "runs": [dataclasses.asdict(outcome) for outcome in outcomes],
            }
        )
    else:
        result(print_summaries(summaries, target))
        for note in notes(outcomes):
            result(note)
    return FAILED if all(o.status in ("diverged", "failed") for o in outcomes) else OK


def with_outcomes(summaries: list[Summary], outcomes: Sequence[Outcome]) -> list[Summary]:
    """The summaries with how each method ended; a method without a single row is added."""
    known = {s.label: s for s in summaries}
    ends: dict[str, list[str]] = {}
    for outcome in outcomes:
        known.setdefault(outcome.label, Summary(outcome.label))
        ends.setdefault(outcome.label, []).append(outcome.status)
    return [dataclasses.replace(s, status=together(ends.get(label, []))) for label, s in known.items()]


def together(statuses: list[str]) -> str:
    """How some seeds ended, in a few words."""
    counts: dict[str, int] = {}
    for status in statuses:
        counts[status] = counts.get(status, 0) + 1
    words = [ENDS.get(status, status) for status in counts]
    if len(counts) < 2:
        return words[0] if words else "unfinished"
    return ", ".join(f"{word} ({count})" for word, count in zip(words, counts.values(), strict=True))


def notes(outcomes: Sequence[Outcome]) -> list[str]:
    """What went wrong and what to try, once per method."""
    first = {outcome.label: outcome for outcome in reversed(outcomes) if outcome.note}
    return [f"\n{label} {outcome.note}" for label, outcome in reversed(first.items())]
