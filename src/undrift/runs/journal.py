"""The files of a run that grow: rows of metrics, outcomes and the log."""

from __future__ import annotations

import hashlib
import io
import json
import math
import os
import time
from collections.abc import Collection, Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Protocol

from undrift._files import naming, sync, writing
from undrift.runs.outcome import Outcome

METRICS, LOG = "metrics.jsonl", "log.txt"
COMPLETE = "summary.json"
CHECKPOINTS = "checkpoints"
"""The folder an unfinished run continues from; removed once the run is finished."""
ENDED = f"{CHECKPOINTS}/outcomes.jsonl"
PROOF = "proof"
NEEDED = {"label", "seed", "round", "vectors", "gradients"}
Row = dict[str, Any]
Key = tuple[str, int]
"""Label and seed."""


class BadFolder(ValueError):
    """Not a folder a run can be kept in, or read from; the message says what to do."""


class Listener(Protocol):
    """Hears of every row and outcome once it is on disk."""

    def row(self, row: Row) -> None: ...
    def ended(self, outcome: Outcome) -> None: ...
    def close(self) -> None: ...


class Journal:
    """Rows and log lines are on disk as soon as they are given; a failed write leaves no trace."""

    def __init__(self, path: Path):
        self.path = path
        self.left: dict[Key, set[int]] = {}
        """Rounds that an interrupted run has rows of."""
        self.listeners: list[Listener] = []
        self._digests: dict[Key, Any] = {}
        """A running digest of the rows."""
        self._open: dict[str, io.FileIO] = {}

    @property
    def identity(self) -> str:
        """What tells this run from others; part of every proof."""
        return ""

    @property
    def complete(self) -> bool:
        """Whether the run is over."""
        return self.file(COMPLETE).is_file()

    def file(self, name: str) -> Path:
        return self.path / name

    def write(self, name: str, content: str | bytes) -> None:
        """Replace a whole file at once: no reader ever sees a part of it."""
        with naming(self.file(name)), writing(self.file(name)) as file:
            file.write(content.encode() if isinstance(content, str) else content)

    def append(self, row: Row) -> None:
        self._line(METRICS, _json(row))
        self._count(row)
        for listener in self.listeners:
            listener.row(row)

    def log(self, text: str) -> None:
        self._line(LOG, f"{time.strftime('%Y-%m-%d %H:%M:%S')} {text}")

    def ended(self, outcome: Outcome) -> None:
        """Record that one method is through with one seed."""
        self.settle()
        self.file(CHECKPOINTS).mkdir(exist_ok=True)
        self._line(ENDED, json.dumps(outcome.record() | {PROOF: self._proof(outcome)}))
        for listener in self.listeners:
            listener.ended(outcome)

    def settle(self) -> None:
        """Rows given so far survive a crash of the machine."""
        if file := self._open.get(METRICS):
            with naming(self.file(METRICS)):
                sync(file.fileno())

    def keep(self, label: str, seed: int, last: int) -> None:
        """Drop the rows of one method and seed after the round ``last``."""
        if max(self.left.get((label, seed), ()), default=-1) <= last:
            return
        own = [row for row in self.rows() if key_of(row) != (label, seed) or row["round"] <= last]
        self._digests.pop((label, seed), None)
        for row in own:
            if key_of(row) == (label, seed):
                self._count(row)
        self._rewrite(own)

    def mend(self, planned: Collection[Key] | None = None) -> list[str]:
        """Repair an unfinished journal and return what was dropped, in words.

        Lines that a crash cut short go, as do rows of no label and seed that is ``planned``, and
        outcomes that were changed, or whose rows or models were.
        """
        for name in (METRICS, LOG, ENDED):
            with suppress(FileNotFoundError):
                whole, newline, torn = self.file(name).read_bytes().rpartition(b"\n")
                if torn:
                    self.write(name, whole + newline)
        rows = self.recorded()
        own = [row for row in rows if planned is None or key_of(row) in planned]
        for row in own:
            self.left.setdefault(key_of(row), set()).add(row["round"])
            self._count(row)
        dropped = self._disown(planned)
        if len(own) < len(rows):
            self._rewrite(own)
            dropped.append(
                f"{len(rows) - len(own)} rows are of no method and seed of this run: removed"
            )
        return dropped

    def arrange(self, order: Mapping[Key, int]) -> None:
        """Sort the rows by label and seed, where several processes have mixed them."""
        rows = self.recorded()
        ordered = sorted(rows, key=lambda row: order.get(key_of(row), len(order)))
        if ordered != rows:
            self._rewrite(ordered)

    def recorded(self) -> list[Row]:
        """The rows; none if the file does not exist yet."""
        return self.rows() if self.file(METRICS).exists() else []

    def rows(self) -> list[Row]:
        """Every recorded row, without a last line that a crash cut short."""
        path = self.file(METRICS)
        try:
            lines = path.read_text(encoding="utf-8").split("\n")
        except FileNotFoundError:
            raise BadFolder(
                f"{path} does not exist: {self.path} is not the folder of a run"
            ) from None
        except (OSError, UnicodeDecodeError) as error:
            raise BadFolder(f"{path} cannot be read: {error}") from None
        rows: list[Row] = []
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
            whole = path.name == COMPLETE
            found = json.loads(text) if whole else map(json.loads, text.split("\n")[:-1])
            return [
                Outcome(**{key: v for key, v in entry.items() if key != PROOF}) for entry in found
            ]
        except FileNotFoundError:
            return []
        except (ValueError, TypeError, AttributeError):
            raise BadFolder(f"{path} cannot be read") from None

    def close(self) -> None:
        for listener in self.listeners:
            listener.close()
        for file in self._open.values():
            file.close()
        self._open.clear()

    def _count(self, row: Row) -> None:
        """Add a row to the digest of its label and seed."""
        known = self._digests.setdefault(key_of(row), hashlib.sha256())
        known.update(f"{_json(row)}\n".encode())

    def _proof(self, outcome: Outcome) -> str:
        """A digest of the run's identity, of an outcome and of its rows."""
        rows = self._digests.get(outcome.key, hashlib.sha256()).hexdigest()
        text = json.dumps([self.identity, outcome.record(), rows], sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()

    def _disown(self, planned: Collection[Key] | None) -> list[str]:
        """Drop unsound outcomes and return them in words. Older versions left no proof to check."""
        outcomes = self.outcomes()
        if self.complete or not outcomes:
            return []
        lines = self.file(ENDED).read_text(encoding="utf-8").split("\n")[:-1]
        sound, dropped = list[str](), list[str]()
        for line, outcome in zip(lines, outcomes, strict=True):
            proof = json.loads(line).get(PROOF)
            there = all(self.file(name).is_file() for name in outcome.files.values())
            wanted = planned is None or outcome.key in planned
            older = proof is None and not self.identity
            if wanted and there and (older or proof == self._proof(outcome)):
                sound.append(line)
            else:
                dropped.append(
                    f"{outcome.label}, seed {outcome.seed}: "
                    "its rows, outcome or model have been changed"
                )
        if dropped:
            self.write(ENDED, "".join(f"{line}\n" for line in sound))
        return dropped

    def _rewrite(self, rows: Iterable[Row]) -> None:
        if file := self._open.pop(METRICS, None):
            file.close()
        self.write(METRICS, "".join(f"{_json(row)}\n" for row in rows))

    def _line(self, name: str, text: str) -> None:
        with naming(self.file(name)):
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


def key_of(row: Row) -> Key:
    """Whose row it is."""
    return row["label"], row["seed"]


def _json(row: Row) -> str:
    return json.dumps(finite(row))


def finite(row: Row) -> Row:
    """JSON has no NaN and no infinity: those become null."""
    return {
        key: None if isinstance(value, float) and not math.isfinite(value) else value
        for key, value in row.items()
    }


def columns(rows: Iterable[Row]) -> dict[str, list[Any]]:
    """Rows as columns; the first row has no drift."""
    rows = list(rows)
    names = dict.fromkeys(name for row in rows for name in row)
    return {name: [row.get(name) for row in rows] for name in names}


def _parsed(line: str) -> object:
    try:
        return json.loads(line)
    except ValueError:
        return None
