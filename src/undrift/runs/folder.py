"""A run is a folder: what was run, where, and what was measured."""

from __future__ import annotations

import dataclasses
import hashlib
import io
import json
import math
import os
import time
import tomllib
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Literal

from undrift._files import LOCK, hold, release, sync, writing
from undrift.spec.schema import USUAL, Spec

FILES = {
    "spec.toml": "what was run, with every default written out",
    "environment.json": "versions and hardware, what is to be said of the data, digests of the spec and the data",
    "partition.json": "samples of each class that each client holds, where samples have classes",
    "metrics.jsonl": "one row per evaluation, appended as the run goes",
    "metrics.parquet": "the same rows as columns, once the run is over",
    "summary.json": "how each method ended, once the run is over",
    "models": "the last and the best model of each method and seed, once it is over: undrift export",
    "log.txt": "what was said",
    "gap.png": "the curves",
    "accuracy.png": "the curves, where the optimum is not known",
    "loss.png": "the curves, where there is no accuracy either",
    "report.html": "all of it for a browser, by undrift report",
}
COMPLETE = "summary.json"
CHECKPOINTS = "checkpoints"
"""What an unfinished run continues from; gone once it is finished."""
ENDED = f"{CHECKPOINTS}/outcomes.jsonl"
MODELS = "models"
PROOF = "proof"
NEEDED = {"label", "seed", "round", "vectors", "gradients"}
Row = dict[str, Any]


class BadFolder(ValueError):
    """Not a folder a run can be kept in, or read from; the message says what to do."""


@dataclasses.dataclass(frozen=True)
class Outcome:
    """How one method ended with one seed."""

    label: str
    method: str
    seed: int
    status: str
    """``done``, ``reached`` (the target), ``diverged``, ``failed`` or ``stopped`` (by the user)."""
    values: Mapping[str, Any]
    """The hyper-parameters it ran with."""
    note: str = ""
    model: str = ""
    """The SHA-256 of the last model."""
    best: Mapping[str, Any] | None = None
    """``metric``, ``value`` and ``round`` of the best model, where it is known."""
    files: Mapping[str, str] = dataclasses.field(default_factory=dict)
    """Of the ``last`` and the ``best`` model, in the folder; one file where they are the same."""
    seeded: bool = True
    """Whether anything was drawn at random; if not, no seed changes the run."""
    same_as: int | None = None
    """The seed whose run this is too, where no seed changes it."""


class Folder:
    """``ROOT/NAME``. Rows and log lines are on disk as soon as they are given; a write that fails
    leaves no trace.
    """

    def __init__(self, path: Path):
        self.path = path
        self.left: dict[tuple[str, int], set[int]] = {}
        """Rounds that a run which is resumed has rows of, by label and seed."""
        self.listeners: list[Any] = []
        """Told of every row and outcome once it is on disk: ``row(row)``, ``ended(outcome)`` and
        ``close()``.
        """
        self._rows: dict[tuple[str, int], Any] = {}
        """A running digest of the rows, by label and seed."""
        self._open: dict[str, io.FileIO] = {}
        self._held: int | None = None

    @property
    def name(self) -> str:
        return self.path.name

    @property
    def complete(self) -> bool:
        """Whether the run is over."""
        return self.file(COMPLETE).is_file()

    def file(self, name: str) -> Path:
        return self.path / name

    def state(self, spec: Spec) -> Literal["new", "same", "unfinished", "other"]:
        """What is in the folder, as seen from ``spec``."""
        if self.path.is_symlink() or (self.path.exists() and not self.path.is_dir()):
            raise BadFolder(f"{self.path} is not a folder; choose another name or --out")
        if not self.path.exists():
            return "new"
        if not self.file("spec.toml").is_file():
            if self._strangers(spec):
                raise BadFolder(
                    f"{self.path} holds something else than a run; choose another name or --out"
                )
            return "new"
        if USUAL | self.document() != spec.document() or any(
            self._differs(*source) for source in spec.sources.items()
        ):
            return "other"
        return "same" if self.complete else "unfinished"

    def document(self) -> dict[str, Any]:
        """The spec that was run, as TOML holds it."""
        try:
            return tomllib.loads(self.file("spec.toml").read_text(encoding="utf-8"))
        except FileNotFoundError:
            return {}
        except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
            raise BadFolder(f"{self.file('spec.toml')} cannot be read: {error}") from None

    @property
    def environment(self) -> dict[str, Any]:
        """Where it was run."""
        try:
            return dict(json.loads(self.file("environment.json").read_text(encoding="utf-8")))
        except (OSError, ValueError, TypeError):
            return {}

    @property
    def note(self) -> str:
        """What is to be said beside any accuracy."""
        return str(self.environment.get("note", ""))

    @property
    def partition(self) -> dict[str, Any] | None:
        """``classes``, and ``counts`` of each client's samples by class."""
        try:
            found = json.loads(self.file("partition.json").read_text(encoding="utf-8"))
            classes, counts = (
                [*map(str, found["classes"])],
                [[*map(int, row)] for row in found["counts"]],
            )
        except (OSError, ValueError, TypeError, LookupError):
            return None
        whole = counts and all(len(row) == len(classes) for row in counts)
        return {"classes": classes, "counts": counts} if whole else None

    @property
    def identity(self) -> str:
        """Digests of the spec and of the data it was begun with; empty in folders of older
        versions.
        """
        found = self.environment
        return " ".join(str(found[key]) for key in ("spec", "data") if key in found)

    def start(self, spec: Spec, environment: Mapping[str, Any], comments: list[str]) -> None:
        """Make the folder, or empty it of an earlier run; other files in it stay."""
        self.path.mkdir(parents=True, exist_ok=True)
        self.lock()
        self._tidy()
        self._rows.clear()
        for name in (
            COMPLETE,
            *FILES,
            ENDED,
        ):  # without the first the run is not finished; the spec tells whose it is
            if name not in (MODELS, "spec.toml"):
                self.file(name).unlink(missing_ok=True)
        _remove(self.file(MODELS).glob("*.safetensors"))
        with suppress(OSError):
            self.file(MODELS).rmdir()
        _remove(self.file("tensorboard").rglob("events.out.tfevents.*"))
        self._clear()
        head = "".join(f"# {comment}\n" for comment in comments)
        self.write("environment.json", json.dumps(environment, indent=2) + "\n")
        for name, content in spec.sources.items():
            self.write(name, content)
        self.write("spec.toml", head + spec.toml())

    def resume(self, planned: Collection[tuple[str, int]] | None = None) -> list[str]:
        """Go on with an unfinished run: what a crash left half-written is removed.

        So is what is not the run's: rows of no label and seed that is ``planned``, outcomes that
        are not as they were
        written, or whose rows or models are not. Says what.
        """
        self.lock()
        self._tidy()
        for name in ("metrics.jsonl", "log.txt", ENDED):
            with suppress(FileNotFoundError):
                whole, newline, torn = self.file(name).read_bytes().rpartition(b"\n")
                if torn:
                    self.write(name, whole + newline)
        rows = self.rows() if self.file("metrics.jsonl").exists() else []
        own = [row for row in rows if planned is None or (row["label"], row["seed"]) in planned]
        for row in own:
            self.left.setdefault((row["label"], row["seed"]), set()).add(row["round"])
            self._count(row)
        told = self._disown(planned)
        if len(own) < len(rows):
            self.write("metrics.jsonl", "".join(f"{_json(row)}\n" for row in own))
            told.append(
                f"{len(rows) - len(own)} rows are of no method and seed of this run: removed"
            )
        return told

    def write(self, name: str, content: str | bytes) -> None:
        """A whole file at once: no reader ever sees a part of it."""
        with named(self.file(name)), writing(self.file(name)) as file:
            file.write(content.encode() if isinstance(content, str) else content)

    def append(self, row: Mapping[str, Any]) -> None:
        self._line("metrics.jsonl", _json(row))
        self._count(row)
        self._tell("row", row)

    def log(self, text: str) -> None:
        self._line("log.txt", f"{time.strftime('%Y-%m-%d %H:%M:%S')} {text}")

    def ended(self, outcome: Outcome) -> None:
        """One method is through with one seed."""
        self.settle()
        self.file(CHECKPOINTS).mkdir(exist_ok=True)
        self._line(ENDED, json.dumps(dataclasses.asdict(outcome) | {PROOF: self._proof(outcome)}))
        self._tell("ended", outcome)

    def settle(self) -> None:
        """Rows given so far outlive even the machine."""
        if file := self._open.get("metrics.jsonl"):
            with named(self.file("metrics.jsonl")):
                sync(file.fileno())

    def keep(self, label: str, seed: int, last: int) -> None:
        """Forget the rows of one method and seed after the round ``last``."""
        if max(self.left.get((label, seed), ()), default=-1) > last:
            rows = [
                row
                for row in self.rows()
                if (row["label"], row["seed"]) != (label, seed) or row["round"] <= last
            ]
            self._rows.pop((label, seed), None)
            for row in rows:
                if (row["label"], row["seed"]) == (label, seed):
                    self._count(row)
            if file := self._open.pop("metrics.jsonl", None):
                file.close()
            self.write("metrics.jsonl", "".join(f"{_json(row)}\n" for row in rows))

    def finish(self, outcomes: list[Outcome]) -> None:
        """The rows as Parquet, and the mark that the run is over."""
        import pyarrow
        from pyarrow import parquet

        if not self.file("metrics.jsonl").exists():
            self.write("metrics.jsonl", "")
        rows, content = self.rows(), io.BytesIO()
        names = dict.fromkeys(name for row in rows for name in row)  # the first row has no drift
        parquet.write_table(
            pyarrow.table({name: [row.get(name) for row in rows] for name in names}), content
        )
        self.write("metrics.parquet", content.getvalue())
        self.write(
            COMPLETE,
            json.dumps([dataclasses.asdict(outcome) for outcome in outcomes], indent=2) + "\n",
        )
        self._clear()
        self.close()

    def tidy(self) -> None:
        """Remove what a kill in the last moment of a finished run left."""
        self._tidy()
        self._clear()

    def close(self) -> None:
        self._tell("close")
        for file in self._open.values():
            file.close()
        self._open.clear()
        if self._held is not None:
            release(self.path, self._held)
            self._held = None

    def rows(self) -> list[Row]:
        """Every recorded row. A last line cut short by a crash is left out."""
        path = self.file("metrics.jsonl")
        try:
            lines = path.read_text(encoding="utf-8").split("\n")
        except FileNotFoundError:
            raise BadFolder(
                f"{path} does not exist: {self.path} is not the folder of a run"
            ) from None
        except (OSError, UnicodeDecodeError) as error:
            raise BadFolder(f"{path} cannot be read: {error}") from None
        rows = []
        for number, line in enumerate(lines[:-1], 1):
            row = _parsed(line)
            if not (
                isinstance(row, dict) and row.keys() >= NEEDED and isinstance(row["label"], str)
            ):
                raise BadFolder(f"{path}:{number}: not a row of metrics")
            rows.append(row)
        return rows

    def outcomes(self) -> list[Outcome]:
        """How the methods ended; of an unfinished run, those that have."""
        path = self.file(COMPLETE if self.complete else ENDED)
        try:
            text = path.read_text(encoding="utf-8")
            found = (
                json.loads(text)
                if path.name == COMPLETE
                else map(json.loads, text.split("\n")[:-1])
            )
            return [
                Outcome(**{key: v for key, v in entry.items() if key != PROOF}) for entry in found
            ]
        except FileNotFoundError:
            return []
        except (ValueError, TypeError, AttributeError):
            raise BadFolder(f"{path} cannot be read") from None

    def _count(self, row: Mapping[str, Any]) -> None:
        """Another row of its label and seed."""
        known = self._rows.setdefault((row["label"], row["seed"]), hashlib.sha256())
        known.update(f"{_json(row)}\n".encode())

    def _proof(self, outcome: Outcome) -> str:
        """A digest of the run's identity, of how a method ended, and of its rows."""
        rows = self._rows.get((outcome.label, outcome.seed), hashlib.sha256()).hexdigest()
        text = json.dumps([self.identity, dataclasses.asdict(outcome), rows], sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()

    def _disown(self, planned: Collection[tuple[str, int]] | None) -> list[str]:
        """Forget the outcomes that are not sound; says which. Those of older versions cannot be
        told.
        """
        outcomes = self.outcomes()
        if self.complete or not outcomes:
            return []
        lines, sound, told = (
            self.file(ENDED).read_text(encoding="utf-8").split("\n")[:-1],
            list[str](),
            list[str](),
        )
        for line, outcome in zip(lines, outcomes, strict=True):
            proof = json.loads(line).get(PROOF)
            there = all(self.file(name).is_file() for name in outcome.files.values())
            wanted = planned is None or (outcome.label, outcome.seed) in planned
            older = proof is None and not self.identity
            if wanted and there and (older or proof == self._proof(outcome)):
                sound.append(line)
            else:
                told.append(
                    f"{outcome.label}, seed {outcome.seed}: its rows, outcome or model have been changed"
                )
        if told:
            self.write(ENDED, "".join(f"{line}\n" for line in sound))
        return told

    def _tell(self, what: str, *about: Any) -> None:
        for listener in self.listeners:
            getattr(listener, what)(*about)

    def _line(self, name: str, text: str) -> None:
        with named(self.file(name)):
            file = self._open.get(name)
            if file is None:
                file = self._open[name] = io.FileIO(self.file(name), "a")
            line, size = f"{text}\n".encode(), file.seek(0, os.SEEK_END)
            try:
                while line:
                    line = line[file.write(line) :]
            except OSError:
                file.truncate(size)
                raise

    def _strangers(self, spec: Spec) -> bool:
        """Whether there is more than what :meth:`start` leaves when it is cut short."""
        ours = {"environment.json", LOCK, *(Path(name).parts[0] for name in spec.sources)}
        return any(file.name not in ours and file.suffix != ".part" for file in self.path.iterdir())

    def _differs(self, name: str, content: bytes) -> bool:
        return not self.file(name).is_file() or self.file(name).read_bytes() != content

    def lock(self) -> None:
        """One process at a time; the lock of a process that dies is gone."""
        if self._held is None:
            try:
                self._held = hold(self.path)
            except BlockingIOError:
                raise BadFolder(f"{self.path} is in use: another undrift is running it") from None

    def _tidy(self) -> None:
        """Remove what a crash in the middle of a write left."""
        for folder in (self.path, self.file(CHECKPOINTS), self.file(MODELS)):
            _remove(folder.glob(".*.part"))

    def _clear(self) -> None:
        """Remove the checkpoints, and their folder if nothing else is in it."""
        if file := self._open.pop(ENDED, None):
            file.close()
        _remove([self.file(ENDED), *self.file(CHECKPOINTS).glob("*.safetensors")])
        with suppress(OSError):
            self.file(CHECKPOINTS).rmdir()


@contextmanager
def named(path: Path) -> Iterator[None]:
    """An error about a file says which."""
    try:
        yield
    except OSError as error:
        if error.errno and not error.filename:
            error.filename = str(path)
        raise


def _remove(files: Iterable[Path]) -> None:
    for file in files:
        file.unlink(missing_ok=True)


def _json(row: Mapping[str, Any]) -> str:
    """A row on one line; what is not finite is nothing."""
    return json.dumps(
        {
            key: None if isinstance(v, float) and not math.isfinite(v) else v
            for key, v in row.items()
        }
    )


def _parsed(line: str) -> Any:
    try:
        return json.loads(line)
    except ValueError:
        return None
