"""A run is a folder: what was run, where, and what was measured."""

from __future__ import annotations

import dataclasses
import io
import json
import os
import shutil
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Literal, NoReturn, Self

from undrift._files import hold, read_json, release
from undrift.core.params import AUTO
from undrift.records.journal import CHECKPOINTS, COMPLETE, ENDED, PARQUET, BadFolder, Journal
from undrift.records.part import PART, WHOLE, RunPart
from undrift.records.rows import CLIENTS, LEFT_OUT, METRICS, Outcome, Row, columns
from undrift.spec.document import parsed, read, toml
from undrift.spec.errors import BadSpec
from undrift.spec.schema import Spec, Table, Values, identity_of, normal

__all__ = [
    "CHECKPOINTS",
    "COMPLETE",
    "ENDED",
    "FILES",
    "METRIC_SAMPLES",
    "MODELS",
    "PYTHON",
    "BadFolder",
    "Busy",
    "Folder",
    "Outcome",
    "Recipe",
    "Row",
    "made",
]

FILES = {
    "spec.toml": "what was run, with every default written out",
    "environment.json": "versions and hardware, caveats of the data, digests of what was run",
    "partition.json": "samples of each class that each client holds, where samples have classes",
    METRICS: "one row per evaluation, appended during the run",
    LEFT_OUT: "clients whose work did not count, in which round and why, if there were any",
    CLIENTS: "each client's loss and metrics at every evaluation, if per_client is set",
    PARQUET: "the same rows as columns, once the run is over",
    COMPLETE: "how each method ended, once the run is over",
    "models": "the last and the best model of each method and seed: undrift export",
    CHECKPOINTS: "the states that methods ended with, of at most 64 MB each, for more rounds",
    "log.txt": "messages, with their times",
    "gap.png": "the curves",
    "accuracy.png": "the curves, where the optimum is not known",
    "loss.png": "the curves, where there is no accuracy either",
    "report.html": "all of it for a browser, by undrift report",
}
MODELS = "models"
FOLDERS = (MODELS, CHECKPOINTS, "tensorboard")
METRIC_SAMPLES = "metric_samples"
"""The key of environment.json with what :attr:`Problem.metric_samples` said."""
SPECS = "specs"
"""The key of environment.json with the identities of the recipes that made the run: the first, and
those that asked for more rounds.
"""
PYTHON = "python"
"""The key of [problem] with the class of a problem that only its author's program can build."""
MORE_ROUNDS = (
    "A run has no fewer rounds than it had, and more only where the states that it ended with were "
    'kept (those above 64 MB and of federations were not) and no step is "auto", which depends on '
    "the rounds. "
)
"""What is said of a folder that holds the same run with other rounds."""
ELSEWHERE = (
    "in another folder (-s name=NAME), or in place of this run (--overwrite; in Python, "
    "overwrite=True)"
)


@dataclasses.dataclass(frozen=True)
class Script:
    """The recipe of a run that was called from Python."""

    name: str
    tables: Values
    """The document without its name."""
    sources: Mapping[str, bytes] = dataclasses.field(default_factory=dict)

    @property
    def identity(self) -> str:
        return identity_of(self.tables, self.sources)

    def document(self) -> Values:
        return {"name": self.name, **self.tables}


Digests = str | Mapping[str, str | None] | None
"""Of the data of a run: one, or that of every seed where seeds decide them; ``None``: not known."""
Recipe = Spec | Script
"""What a run folder is made from: a spec, or a call of ``undrift.run`` that no spec can say."""


class Busy(BadFolder):
    """A folder that another process is running."""


def made(path: Path) -> None:
    """Make a folder, or refuse one that cannot be made."""
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise BadFolder(f"{path}: {error.strerror}; choose another folder") from None


class Folder(Journal):
    """``ROOT/NAME``: the recipe, the environment and the journal of a run."""

    def __init__(self, path: Path):
        super().__init__(path)
        self._held: int | None = None

    @classmethod
    def of_run(cls, path: str | Path) -> Self:
        """The folder of a run, finished or not; :class:`BadFolder` if it is none."""
        found = cls(Path(path))
        if not found.file("spec.toml").is_file():
            lacks = "it has no spec.toml" if found.path.is_dir() else "there is no such folder"
            raise BadFolder(f"{path} is not the folder of a run: {lacks}")
        return found

    def state(
        self, recipe: Recipe, part: RunPart = WHOLE
    ) -> Literal["new", "same", "unfinished", "shorter", "other"]:
        """What it holds, compared with a part of ``recipe``; a shorter run has fewer rounds."""
        if not self.file("spec.toml").is_file():
            there = set(os.listdir(self.path)) if self.path.is_dir() else set()
            # A start that was cut short has left these two.
            if clash := sorted(there & FILES.keys() - {"environment.json", "partition.json"}):
                text = f"{self.path} is not the folder of a run, and holds {clash[0]}"
                raise BadFolder(f"{text}; choose another name or --out")
            return "new"
        if self.part != part:
            return "other"
        # Files of code count by their bytes: a spec names them, and says nothing of their content.
        files = {name: self.file(name) for name in recipe.sources}
        kept = {name: file.read_bytes() for name, file in files.items() if file.is_file()}
        before, now = normal(self.document()), normal(recipe.document())
        if kept == dict(recipe.sources) and before == now:
            return "same" if self.complete else "unfinished"
        longer = {**before, "rounds": now.get("rounds")} == now and self._can_go_on(before, now)
        return "shorter" if kept == dict(recipe.sources) and longer else "other"

    def refuse_other(self, data: Digests, code: Mapping[str, str | None]) -> str:
        """Refuse a run on other data or with other code, by their digests; says what could not be
        compared, if anything.
        """
        before, now = digests(self.environment), digests({"data": data, "code": code})
        # What is on one side only has changed; what is there without a digest cannot be compared.
        unknown = [n for n in before.keys() & now.keys() if None in (before[n], now[n])]
        changed = [n for n in before | now if n not in unknown and before.get(n) != now.get(n)]
        if changed:
            raise BadFolder(
                f"{self.path} holds this run with other {' and '.join(changed)}: its code or data "
                f"have changed since. Put that back, or run it anew: {ELSEWHERE}"
            )
        if not unknown:
            return ""
        what = " and ".join(sorted(unknown))
        return f"{self.path}: {what} cannot be compared with what the run began with."

    def document(self) -> Values:
        """The spec that was run, as TOML holds it."""
        path = self.file("spec.toml")
        try:
            return parsed(read(path), str(path)) if os.path.exists(path) else {}
        except BadSpec as error:
            raise BadFolder(str(error)) from None

    def refuse_changes(self, recipe: Recipe, part: RunPart = WHOLE) -> NoReturn:
        """Refuse to be the folder of a part of ``recipe``, which is not what it holds."""
        old, new = flat(normal(self.document())), flat(normal(recipe.document()))
        old[PART], new[PART] = map(str, (self.part, part))
        keys = [k for k in dict.fromkeys([*old, *new]) if old.get(k) != new.get(k) and k != "name"]
        told = [f"{k} was {old.get(k, 'not set')} and is {new.get(k, 'not set')}" for k in keys[:5]]
        changed = "; ".join(told) or f"other code in {', '.join(recipe.sources)}"
        more = MORE_ROUNDS if keys == ["rounds"] else ""
        raise BadFolder(f"{self.path} holds another run: {changed}. {more}Run it {ELSEWHERE}")

    @property
    def from_python(self) -> str:
        """Why only the program that made the run can continue it; empty if a spec says it all."""
        if PYTHON not in self.document().get("problem", {}):
            return ""
        return (
            f"{self.path} was made by undrift.run with a problem, a method or a function that only "
            "that program has: run the same call again"
        )

    @property
    def environment(self) -> Values:
        """Where it was run."""
        try:
            return dict(read_json(self._content("environment.json")))
        except (ValueError, TypeError):
            return {}

    @property
    def partition(self) -> Values | None:
        """``classes``, and ``counts`` of each client's samples by class."""
        content = self._content("partition.json")
        return dict(read_json(content)) if content else None

    @property
    def identity(self) -> str:
        """Digests of spec, data and code at the start, or the key of a kept run of ``reproduce``.

        A checkpoint belongs to the run with its identity.
        """
        found = self.environment
        about = [*found.get(SPECS, [])[:1], *map(found.get, ("data", "code", "key"))]
        return " ".join(map(str, filter(None, about)))

    def identity_of(self, label: str, seed: int) -> str:
        """The identity of the checkpoints of one method and seed."""
        return f"{self.identity} {label!r} {seed}"

    @property
    def part(self) -> RunPart:
        """Which part of the run it has."""
        return RunPart.read(self.environment.get(PART, WHOLE))

    def start(
        self,
        recipe: Recipe,
        environment: Mapping[str, object],
        partition: Mapping[str, object] | None = None,
    ) -> None:
        """Make the folder, or empty it of an earlier run; other files in it stay."""
        made(self.path)
        self.lock()
        self.tidy()
        # Without the first file the run is not finished; spec.toml tells whose it is, so it stays.
        # Where there is none, files of the same names are not those of a run.
        run = self.file("spec.toml").is_file()
        for name in (COMPLETE, *FILES) if run else ():
            if name not in (*FOLDERS, "spec.toml"):
                self.file(name).unlink(missing_ok=True)
        for name in FOLDERS if run else ():
            shutil.rmtree(self.file(name), ignore_errors=True)
        # Before the recipe: a run that has one is continued, and nobody would write this again.
        if partition is not None:
            self.write("partition.json", json.dumps(partition) + "\n")
        self._write_recipe(recipe, environment)

    def extend(self, recipe: Recipe) -> None:
        """Make it the folder of a ``recipe`` with more rounds: what has ended goes on from there.

        If it is cut short, what is there is one of the two runs, and none of its rows is lost.
        """
        self.lock()
        self.tidy()
        self.gather()
        about = self.environment
        going = self._going_on(normal(self.document()))
        if self.complete or going:
            self.reopen([outcome.key for outcome in going])
            self.file(PARQUET).unlink(missing_ok=True)
        # The recipe comes last: until it is there, the folder is that of the shorter run.
        self._write_recipe(recipe, about | {SPECS: [*about.get(SPECS, []), recipe.identity]})

    def _going_on(self, before: Table) -> list[Outcome]:
        """Those that ended with their last round, which the top of the spec sets."""
        bound = {entry["label"] for entry in before["method"] if "rounds" in entry}
        return [one for one in self.outcomes() if one.status == "done" and one.label not in bound]

    def _can_go_on(self, before: Table, now: Table) -> bool:
        """Whether there are more rounds, and the states that they begin from were kept.

        With more rounds short runs would find another step.
        """
        given = [{**entry, "label": ""} for entry in before["method"]]
        if before["rounds"] >= now["rounds"] or any(AUTO in entry.values() for entry in given):
            return False
        places = {entry["label"]: k for k, entry in enumerate(before["method"])}
        there = last_rounds(self.file(CHECKPOINTS).glob("*.safetensors"))
        return all(
            one.same_as is not None or checkpoint(places[one.label], one.seed) in there
            for one in self._going_on(before)
        )

    def resume(self) -> None:
        """Lock an unfinished run and mend its journal."""
        self.lock()
        self.tidy()
        self.mend()

    def finish(self, outcomes: Sequence[Outcome]) -> None:
        """Write the rows as Parquet too, and mark the run as over."""
        import pyarrow
        from pyarrow import parquet

        if not self.file(METRICS).exists():
            self.write(METRICS, "")
        content = io.BytesIO()
        parquet.write_table(pyarrow.table(columns(self.rows())), content)
        self.write(PARQUET, content.getvalue())
        # summary.json is written last, since it marks the run as over: a kill before it leaves an
        # unfinished run, and one after it only what tidy() removes.
        self.conclude(outcomes)
        # Not the lock: no other process may come before all is tidy.
        Journal.close(self)
        self.tidy()
        self.close()

    def tidy(self) -> None:
        """Remove what a crash in the middle of a write left, and the checkpoints of a finished run,
        but for the last ones.
        """
        for folder in (self.path, self.file(CHECKPOINTS), self.file(MODELS)):
            for part in folder.glob(".*.part"):
                part.unlink(missing_ok=True)
        if self.complete:
            self.file(ENDED).unlink(missing_ok=True)
            files = [*self.file(CHECKPOINTS).glob("*.safetensors")]
            kept = {f"{name}-{round}" for name, round in last_rounds(files).items()}
            for file in files:
                if file.stem not in kept:
                    file.unlink(missing_ok=True)
            with suppress(OSError):  # some are left
                self.file(CHECKPOINTS).rmdir()

    def close(self) -> None:
        super().close()
        if self._held is not None:
            release(self.path, self._held)
            self._held = None

    def lock(self) -> None:
        """Keep other processes out until :meth:`close`, or until this process ends."""
        if self._held is None:
            try:
                self._held = hold(self.path)
            except BlockingIOError:
                raise Busy(f"{self.path} is in use: another undrift is running it") from None

    def _write_recipe(self, recipe: Recipe, environment: Mapping[str, object]) -> None:
        # spec.toml last: a folder that has it has everything the spec names.
        self.write("environment.json", json.dumps(environment, indent=2) + "\n")
        for name, content in recipe.sources.items():
            self.write(name, content)
        self.write("spec.toml", toml(recipe.document()))


def flat(table: Table, before: str = "") -> dict[str, object]:
    """Dotted key -> value, methods by their labels."""
    found: dict[str, object] = {}
    for key, value in table.items():
        inner = value
        if key == "method" and isinstance(value, list):
            inner = {str(entry.get("label", k)): entry for k, entry in enumerate(value)}
        if isinstance(inner, Mapping):
            found |= flat(inner, f"{before}{key}.")
        else:
            found[f"{before}{key}"] = value
    return found


def digests(about: Table) -> dict[str, str | None]:
    """Digests in an environment of what a recipe does not say: data and code, each by its name."""
    data = about.get("data")
    by_seed = data if isinstance(data, Mapping) else {}
    named = {f"data of seed {seed}": digest for seed, digest in by_seed.items()} or {"data": data}
    return named | dict(about.get("code") or {})


def checkpoint(k: int, seed: int) -> str:
    """What the names of the checkpoints of the k-th method with one seed begin with."""
    return f"{k}-{seed}"


def last_rounds(files: Iterable[Path]) -> dict[str, int]:
    """The last round that there is a checkpoint of, by what its name begins with."""
    found = dict[str, int]()
    for file in files:
        name, _, round = file.stem.rpartition("-")
        if round.isdecimal():
            found[name] = max(found.get(name, 0), int(round))
    return found
