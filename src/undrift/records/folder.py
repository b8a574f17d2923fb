"""A run is a folder: what was run, where, and what was measured."""

from __future__ import annotations

import io
import json
import os
import platform
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryFile
from typing import Literal, Self, get_args

from undrift._files import LOCK, hold, read_json, release
from undrift.core.problem import Samples
from undrift.records.growth import can_go_on, going_on, is_part, last_rounds
from undrift.records.journal import CHECKPOINTS, COMPLETE, ENDED, BadFolder, Journal, Record
from undrift.records.outcome import Outcome
from undrift.records.recipe import PYTHON, Recipe, changes, digest_of_call
from undrift.records.rows import CLIENTS, LEFT_OUT, METRICS, Key, Row, columns
from undrift.spec.beside import sources
from undrift.spec.document import parsed, read
from undrift.spec.errors import BadSpec
from undrift.spec.schema import Values, fingerprint, normal
from undrift.spec.user_files import own_tables

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
    "digest_of_call",
    "made",
    "writable",
]

FILES = {
    "spec.toml": "what was run, with every default written out",
    "environment.json": "versions and hardware, caveats of the data, digests of what was run",
    "partition.json": "samples of each class that each client holds, where samples have classes",
    METRICS: "one row per evaluation, appended during the run",
    LEFT_OUT: "clients whose work did not count, in which round and why, if there were any",
    CLIENTS: "each client's loss and metrics at every evaluation, if per_client is set",
    "metrics.parquet": "the same rows as columns, once the run is over",
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
FEDERATION = ("nodes", "superlink")
"""Folders in it where federate keeps the processes that it starts, before a run begins."""
SEALED = "sealed"
"""The key of environment.json that says that every line of the journal has a seal."""
METRIC_SAMPLES = "metric_samples"
"""The key of environment.json with what :attr:`Problem.metric_samples` said."""
EXTENDED = "extended"
"""The entry of environment.json about recipes with more methods, seeds or rounds."""


class Busy(BadFolder):
    """A folder that another process is running."""


@contextmanager
def _usable(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        reason = error.strerror or error
        raise BadFolder(
            f"{path}: {reason}: nothing can be kept there; choose another folder"
        ) from None


def made(path: Path) -> None:
    """Make a folder, or refuse one that cannot be made or written."""
    with _usable(path):
        path.mkdir(parents=True, exist_ok=True)
        with TemporaryFile(dir=path):
            pass


def writable(path: Path) -> None:
    """Refuse a folder that cannot be made or written; trying leaves nothing behind."""
    with _usable(path):
        new = [place for place in (path, *path.parents) if not place.exists()]
    try:
        made(path)
    finally:
        for place in new:
            with suppress(OSError):
                place.rmdir()


class Folder(Journal):
    """``ROOT/NAME``: the recipe, the environment and the journal of a run."""

    def __init__(self, path: Path):
        super().__init__(path)
        self._held: int | None = None
        self.locks = True
        """Whether the file system has locks, as far as that is known."""

    @classmethod
    def of_run(cls, path: str | Path) -> Self:
        """The folder of a run, finished or not; :class:`BadFolder` if it is none."""
        found = cls(Path(path))
        if not found.file("spec.toml").is_file():
            raise BadFolder(f"{path} is not the folder of a run: it has no spec.toml")
        return found

    @property
    def name(self) -> str:
        return self.path.name

    def state(self, recipe: Recipe) -> Literal["new", "same", "unfinished", "part", "other"]:
        """What it holds, compared with ``recipe``; a part has fewer methods, seeds or rounds."""
        with _usable(self.path):
            there = self.path.exists()
            if self.path.is_symlink() or (there and not self.path.is_dir()):
                raise BadFolder(f"{self.path} is not a folder; choose another name or --out")
        if not there:
            return "new"
        if not self.file("spec.toml").is_file():
            if self._strangers(recipe):
                raise BadFolder(
                    f"{self.path} holds something else than a run; choose another name or --out"
                )
            return "new"
        files = {name: self.file(name) for name in recipe.sources}
        kept = {name: file.read_bytes() for name, file in files.items() if file.is_file()}
        before, now = normal(self.document()), normal(recipe.document())
        if kept == dict(recipe.sources) and before == now:
            return "same" if self.complete else "unfinished"
        part = kept.items() <= recipe.sources.items() and is_part(before, now)
        return "part" if part and can_go_on(self, before, now) else "other"

    def on_data(self, data: str | None) -> bool:
        """Whether the run was on ``data``, a digest; false if that is not known.

        Raises :class:`BadFolder` for a run on other data.
        """
        before = self.environment.get("data")
        if before is None or data is None:
            return False
        if before != data:
            raise BadFolder(
                f"{self.path} holds this run on other data: their digest was {str(before)[:12]} "
                f"and is {data[:12]}. Put those data back, or run it anew: in another folder (-s "
                "name=NAME), or in place of this run (--overwrite; in Python, overwrite=True)"
            )
        return True

    def with_code(self, code: Mapping[str, str], more: bool = False) -> bool:
        """Whether the run was made with ``code``, digests by name; false if that is not known.

        With ``more``, there may be code that the run did not have. It is not known where an earlier
        version made the folder, or another Python compiled the code.

        Raises :class:`BadFolder` for a run with other code.
        """
        about = self.environment
        before, python = about.get("code"), str(about.get("python", "")).split(".")
        if not isinstance(before, dict) or python[:2] != [*platform.python_version_tuple()[:2]]:
            return not (before or code)
        before = before | _extended(about)["code"]
        names = before if more else {**before, **code}
        if changed := [name for name in names if before.get(name) != code.get(name)]:
            raise BadFolder(
                f"{self.path} holds this run with another {' and '.join(changed)}: the code has "
                "changed, or a value that it reads. Put that back, give another folder, or "
                "overwrite=True"
            )
        return True

    def document(self) -> Values:
        """The spec that was run, as TOML holds it."""
        path = self.file("spec.toml")
        try:
            return parsed(read(path), str(path)) if os.path.exists(path) else {}
        except BadSpec as error:
            raise BadFolder(str(error)) from None

    def record(self) -> Record:
        """All that the run has recorded; :class:`BadFolder` if it, or the recipe, was changed."""
        self._check_recipe()
        return super().record()

    def differences(self, recipe: Recipe) -> dict[str, str]:
        """What ``recipe`` changes of the spec that was run: dotted key -> in words.

        Empty if only code has changed.
        """
        return changes(self.document(), recipe.document())

    @property
    def from_python(self) -> str:
        """Why only the program that made the run can continue it; empty if a spec says it all."""
        if PYTHON not in self.document().get("problem", {}):
            return ""
        return (
            f"{self.path} was made by undrift.run with a problem, a method or a function that only "
            "that program has: run the same call again, or "
            f"undrift.resume({str(self.path)!r}, method, problem)"
        )

    @property
    def environment(self) -> Values:
        """Where it was run."""
        try:
            return dict(read_json(self._content("environment.json")))
        except (ValueError, TypeError):
            return {}

    @property
    def note(self) -> str:
        """Caveat printed next to every accuracy."""
        return str(self.environment.get("note", ""))

    def metric_samples(self, rows: Sequence[Row]) -> Samples | None:
        """Which samples losses and accuracies are of; ``None`` where that is not known.

        Folders of older versions do not say it. Of these, networks were measured on test samples
        unless ``rows`` have the training loss as the loss; our other problems have none.
        """
        if METRIC_SAMPLES in (about := self.environment):
            return next((one for one in get_args(Samples) if one == about[METRIC_SAMPLES]), None)
        problem = self.document().get("problem", {})
        kind = str(problem.get(PYTHON, ""))
        if problem.get("name") == "images" or kind.startswith("undrift.problems.neural."):
            of_training = all(row.get("loss") == row.get("train_loss") for row in rows)
            return "train" if of_training else "test"
        ours = kind.startswith("undrift.problems.") or (problem and not kind)
        return "train" if ours and "file" not in problem else None

    @property
    def partition(self) -> Values | None:
        """``classes``, and ``counts`` of each client's samples by class."""
        try:
            found = read_json(self._content("partition.json"))
            classes = [*map(str, found["classes"])]
            counts = [[*map(int, row)] for row in found["counts"]]
        except (OSError, ValueError, TypeError, LookupError):
            return None
        whole = counts and all(len(row) == len(classes) for row in counts)
        return {"classes": classes, "counts": counts} if whole else None

    @property
    def identity(self) -> str:
        """Digests of spec, data and code at the start, or the key of a kept run of ``reproduce``.

        Empty in folders of older versions.
        """
        found = self.environment
        return " ".join(str(found[key]) for key in ("spec", "data", "code", "key") if key in found)

    @property
    def sealed(self) -> bool:
        return self.environment.get(SEALED) is True

    def start(
        self, recipe: Recipe, environment: Mapping[str, object], comments: Sequence[str]
    ) -> None:
        """Make the folder, or empty it of an earlier run; other files in it stay."""
        self.path.mkdir(parents=True, exist_ok=True)
        self.lock()
        self._tidy()
        self._digests.clear()
        self._seals.clear()
        # Without the first file the run is not finished; spec.toml tells whose it is, so it stays.
        for name in (COMPLETE, *FILES, ENDED):
            if name not in (MODELS, CHECKPOINTS, "spec.toml"):
                self.file(name).unlink(missing_ok=True)
        _remove(self.file(MODELS).glob("*.safetensors"))
        with suppress(OSError):
            self.file(MODELS).rmdir()
        _remove(self.file("tensorboard").rglob("events.out.tfevents.*"))
        self._clear()
        about = {**environment, SEALED: True}
        self.write("environment.json", json.dumps(about, indent=2) + "\n")
        self._write_recipe(recipe, comments)

    def extend(
        self, recipe: Recipe, comments: Sequence[str], code: Mapping[str, str] | None
    ) -> None:
        """Make it the folder of a ``recipe`` with more methods, seeds or rounds.

        What has ended stays, and with more rounds goes on from there. If it is cut short, what is
        there is one of the two runs, and none of its rows is lost.
        """
        self.lock()
        self._tidy()
        self.record()  # what was changed is not taken over
        about = self.environment
        specs = [*_extended(about)["specs"], recipe.identity]
        about[EXTENDED] = {"specs": specs, "code": code or {}}
        self.write("environment.json", json.dumps(about, indent=2) + "\n")
        going = going_on(self, normal(self.document()), normal(recipe.document()))
        if self.complete or going:
            self.reopen([outcome.key for outcome in going])
            self.file("metrics.parquet").unlink(missing_ok=True)
        self._write_recipe(recipe, comments)

    def resume(self, planned: Collection[Key] | None = None) -> list[str]:
        """Lock an unfinished run and mend its journal; returns what was dropped, in words."""
        self.lock()
        self._tidy()
        return self.mend(planned)

    def finish(self, outcomes: Sequence[Outcome]) -> None:
        """Write the rows as Parquet, in the order of the outcomes, and mark the run as over."""
        import pyarrow
        from pyarrow import parquet

        if not self.file(METRICS).exists():
            self.write(METRICS, "")
        self.arrange({outcome.key: k for k, outcome in enumerate(outcomes)})
        content = io.BytesIO()
        parquet.write_table(pyarrow.table(columns(self.rows())), content)
        self.write("metrics.parquet", content.getvalue())
        self.conclude(outcomes)
        self._clear(but_last=True)
        self.close()

    def tidy(self) -> None:
        """Remove leftovers of a kill in the last moment of a finished run."""
        self._tidy()
        self._clear(but_last=True)

    def close(self) -> None:
        super().close()
        if self._held is not None:
            release(self.path, self._held)
            self._held = None

    def lock(self) -> None:
        """Keep other processes out until :meth:`close`, or until this process ends."""
        if self._held is None:
            try:
                self._held = hold(self.path, lambda: setattr(self, "locks", False))
            except BlockingIOError:
                raise Busy(f"{self.path} is in use: another undrift is running it") from None

    @property
    def recipes(self) -> set[str]:
        """The identities of the recipe that the run began with, and of those that extended it.

        Empty in folders of older versions, and of kept runs of ``reproduce``.
        """
        about = self.environment
        return {str(about["spec"]), *_extended(about)["specs"]} if "spec" in about else set()

    def made_by(self, identity: str) -> bool:
        """Whether the run began with a recipe of this identity, or was extended by one.

        True where that is not known.
        """
        return identity in (self.recipes or {identity})

    def _write_recipe(self, recipe: Recipe, comments: Sequence[str]) -> None:
        for name, content in recipe.sources.items():
            self.write(name, content)
        head = "".join(f"# {comment}\n" for comment in comments)
        self.write("spec.toml", head + recipe.toml())

    def _check_recipe(self) -> None:
        """Raise :class:`BadFolder` unless the folder has one of its recipes, if they are known."""
        if not (recipes := self.recipes):
            return
        document, files = self.document(), list[str]()
        try:
            if PYTHON in document.get("problem", {}):
                now = digest_of_call(document)
            else:
                files = sorted({table["file"] for table in own_tables(document).values()})
                now = fingerprint(document, sources(self.path, files))
        except (OSError, TypeError, ValueError):  # a file is gone, or it is no spec
            now = None
        if now not in recipes:
            raise BadFolder(
                f"{' or '.join(['spec.toml', *files])} in {self.path} is not what this run began "
                "with. Put that back, or run it anew: undrift run SPEC --overwrite (in Python, "
                "overwrite=True)"
            )

    def _strangers(self, recipe: Recipe) -> bool:
        """Whether it holds more than what :meth:`start` leaves when it is cut short."""
        sources = (Path(name).parts[0] for name in recipe.sources)
        ours = {"environment.json", LOCK, *FEDERATION, *sources}
        return any(file.name not in ours and file.suffix != ".part" for file in self.path.iterdir())

    def _tidy(self) -> None:
        """Remove what a crash in the middle of a write left."""
        for folder in (self.path, self.file(CHECKPOINTS), self.file(MODELS)):
            _remove(folder.glob(".*.part"))

    def _clear(self, but_last: bool = False) -> None:
        """Remove the checkpoints, but for the last ones, and their folder if nothing is in it."""
        if file := self._open.pop(ENDED, None):
            file.close()
        files = [*self.file(CHECKPOINTS).glob("*.safetensors")]
        kept = last_rounds(files) if but_last else {}
        last = {f"{name}-{round}" for name, round in kept.items()}
        old = [file for file in files if file.stem not in last]
        _remove([self.file(ENDED), *old])
        with suppress(OSError):
            self.file(CHECKPOINTS).rmdir()


def _extended(about: Values) -> Values:
    """What environment.json has of recipes with more methods, seeds or rounds."""
    found = about.get(EXTENDED)
    return {"specs": [], "code": {}} | (found if isinstance(found, dict) else {})


def _remove(files: Iterable[Path]) -> None:
    for file in files:
        file.unlink(missing_ok=True)
