"""``run`` and ``resume``: a spec becomes a folder and a table."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from undrift.cli.places import missing, place
from undrift.cli.talk import FAILED, INTERRUPTED, OK, refuse, result, result_json, say
from undrift.report.summary import Summary, aim, metric, print_summaries, summarise
from undrift.report.text import count
from undrift.runs.folder import FILES, BadFolder, Folder, Outcome
from undrift.runs.spec import BadSpec, Spec, load

ENDS = {"done": "all rounds run", "reached": "target reached", "stopped": "stopped by you"}


def run(
    source: str, changes: Sequence[str], root: Path, overwrite: bool, check: bool, pause: float | None, as_json: bool
) -> int:
    with refusing():
        spec = load(source, changes)
        if check:
            from undrift.cli.rehearse import rehearse

            return rehearse(spec, as_json)
        folder = Folder(root / spec.name)
        state = "new" if overwrite and folder.state(spec) else folder.state(spec)
        if state == "other":
            remedy = "Use --overwrite to replace it, or another name: -s name=NAME"
            refuse([f"{folder.path} holds another spec's run"], remedy)
        if state == "same":
            say(f"{folder.path} holds this run already; --overwrite runs it again.")
            return report(folder, as_json)
        return perform(spec, folder, state == "unfinished", pause, as_json)


def resume(name: str, pause: float | None, as_json: bool) -> int:
    with refusing():
        folder = Folder(place(name))
        if wrong := missing(name):
            refuse([wrong])
        if not folder.file("spec.toml").is_file():
            raise BadFolder(f"{folder.path} is not the folder of a run: there is no spec.toml")
        spec = load(folder.file("spec.toml"))
        state = folder.state(spec)
        if state == "other":
            raise BadFolder(f"{folder.file('spec.toml')} is from another version of undrift: run the spec it came from")
        if state == "same":
            say(f"{folder.path} is finished.")
            return report(folder, as_json)
        return perform(spec, folder, True, pause, as_json)


@contextmanager
def refusing() -> Iterator[None]:
    """What is wrong with a spec or a folder is told, and nothing is run."""
    try:
        yield
    except (BadSpec, BadFolder) as error:
        refuse(getattr(error, "complaints", [error]))


def perform(spec: Spec, folder: Folder, again: bool, pause: float | None, as_json: bool) -> int:
    """Run what is left of a spec."""
    from undrift.cli.experiment import make

    say(f"{spec.name}: {count(len(spec.entries), 'method')} on {spec.problem_name}, {count(len(spec.seeds), 'seed')}")
    experiment = make(spec)
    try:
        if again:
            folder.resume()
            say(f"Goes on in {folder.path}: {len(folder.outcomes())} of {len(spec.entries) * len(spec.seeds)} are done.")
        else:
            begin(folder, experiment)
        outcomes = work(folder, experiment, pause)
        if outcomes is None:
            return interrupted(folder)
        draw(folder, spec)
        folder.finish(outcomes)
    except OSError as error:
        return broken(folder, error)
    finally:
        folder.close()
    code = report(folder, as_json)
    say(f"\nKept in {folder.path}: {', '.join(name for name in FILES if folder.file(name).exists())}")
    return code
